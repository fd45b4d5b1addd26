"""Prompt templates to prompts, for RenderTemplate.

1. A body is literal text and slots (`policy.body`). No code runs.
2. One pass: a value is put where its slot stands and is never read as a template itself.
3. An absent optional slot is empty. A variable that the template does not declare, a required one that is missing
   and anything beyond the bounds is RENDER_ERROR.
4. `stable_prefix_hash` is SHA-256 over four texts, each as UTF-8 behind its length in bytes as a big-endian u64:
   the tenant, the template's reference, its revision, and the rendered text before the body's first mutable slot
   (all of it, where there is none).
5. `tenant_namespace` is HMAC-SHA-256 of the tenant under the configured key, and empty without a key.
6. The same input gives the same bytes.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

import msgspec

from terraflow.core.reasons import Render
from terraflow.hints.policy.policies import Policies, PromptTemplate
from terraflow.hints.words import PROMPT_TEXT_BYTES_MAX

VARIABLES_MAX = 1024
OUTPUT_BYTES_MAX = PROMPT_TEXT_BYTES_MAX
"""As large as a prompt text that a lookup takes."""


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    """A rendering, or the code that says why there is none.

    `cause` says more of that, for a counter, from a closed vocabulary: "", "unknown_variable", "missing_slot",
    "too_large", "not_text".
    """

    reason: Render
    prompt: bytes = b""
    stable_prefix_hash: bytes = b""
    tenant_namespace: bytes = b""
    revision: str = ""
    cause: str = ""


def render_template(
    ref: str, variables: Mapping[str, str], tenant: str, policies: Policies, key: bytes | None = None
) -> Rendered:
    """The template `namespace/name`, filled with the variables. Never raises for what a caller sends."""
    template = policies.templates.get(ref)
    if template is None:
        return Rendered(reason=Render.TEMPLATE_NOT_FOUND)
    cause = _fault(template, variables)
    if not cause:
        try:
            prompt, stable = _fill(template, variables)
            framed = (tenant, template.ref, template.revision, stable)
            return Rendered(
                reason=Render.OK,
                prompt=prompt.encode(),
                stable_prefix_hash=_framed_digest([text.encode() for text in framed]),
                tenant_namespace=hmac.digest(key, tenant.encode(), "sha256") if key else b"",
                revision=template.revision,
            )
        except UnicodeEncodeError:
            cause = "not_text"
    return Rendered(reason=Render.RENDER_ERROR, revision=template.revision, cause=cause)


def _fault(template: PromptTemplate, variables: Mapping[str, str]) -> str:
    """What is wrong with the variables, before anything is built of them."""
    if len(variables) > VARIABLES_MAX:
        return "too_large"
    declared = {slot.name for slot in template.slots}
    if not variables.keys() <= declared:
        return "unknown_variable"
    if any(slot.required and slot.name not in variables for slot in template.slots):
        return "missing_slot"
    size = 0
    for part in template.parts:
        size += _bytes(part.text if not part.slot else variables.get(part.slot, ""))
        if size > OUTPUT_BYTES_MAX:
            return "too_large"
    return ""


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _fill(template: PromptTemplate, variables: Mapping[str, str]) -> tuple[str, str]:
    mutable = {slot.name for slot in template.slots if not slot.stable}
    filled: list[str] = []
    stable: str | None = None
    for part in template.parts:
        if stable is None and part.slot in mutable:
            stable = "".join(filled)
        filled.append(variables.get(part.slot, "") if part.slot else part.text)
    prompt = "".join(filled)
    return prompt, prompt if stable is None else stable


def _framed_digest(texts: list[bytes]) -> bytes:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(len(text).to_bytes(8, "big"))
        digest.update(text)
    return digest.digest()
