"""RenderTemplate: one pass, no code, and hashes that anybody can compute again."""

from __future__ import annotations

import hashlib
import hmac

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from terraflow.core.reasons import Render
from terraflow.hints.policy.body import MalformedBody, Part, parse_body
from terraflow.hints.policy.policies import Policies, PromptTemplate, Slot
from terraflow.hints.render import OUTPUT_BYTES_MAX, VARIABLES_MAX, render_template

SLOTS = (
    Slot(name="role", stable=True, required=True),
    Slot(name="tone", stable=True, required=False),
    Slot(name="question", stable=False, required=True),
    Slot(name="hint", stable=False, required=False),
)
REVISION = "sha256:" + "0" * 64


def policies(body: str, slots: tuple[Slot, ...] = SLOTS) -> Policies:
    parts = tuple(parse_body(body))
    template = PromptTemplate(ref="acme/chat", parts=parts, slots=slots, revision=REVISION)
    return Policies(templates={"acme/chat": template})


def framed(*texts: str) -> bytes:
    raw = [text.encode() for text in texts]
    return hashlib.sha256(b"".join(len(text).to_bytes(8, "big") + text for text in raw)).digest()


BODY = "You are {{role}}{{tone}}.\n{{question}} {{{{literal}} {{hint}}{{role}}"
GIVEN = {"role": "a clerk", "question": "What is {{role}}?"}


def test_a_rendering() -> None:
    found = render_template("acme/chat", GIVEN, "acme", policies(BODY))
    assert found.reason is Render.OK
    assert found.prompt == b"You are a clerk.\nWhat is {{role}}? {{literal}} a clerk"
    assert found.stable_prefix_hash == framed("acme", "acme/chat", REVISION, "You are a clerk.\n")
    assert found.tenant_namespace == b""
    assert found.revision == REVISION


def test_the_namespace_of_a_tenant_is_keyed() -> None:
    found = render_template("acme/chat", GIVEN, "acme", policies(BODY), b"key")
    assert found.tenant_namespace == hmac.digest(b"key", b"acme", "sha256")


def test_without_a_mutable_slot_all_is_stable() -> None:
    found = render_template("acme/chat", {"role": "é"}, "t", policies("a {{role}} z", SLOTS[:2]))
    assert found.stable_prefix_hash == framed("t", "acme/chat", REVISION, "a é z")


def test_mutable_values_do_not_move_the_stable_hash_and_everything_else_does() -> None:
    def stable(body: str = BODY, tenant: str = "acme", **given: str) -> bytes:
        return render_template("acme/chat", {**GIVEN, **given}, tenant, policies(body)).stable_prefix_hash

    assert stable() == stable(question="other", hint="more")
    assert (
        len({stable(), stable(tenant="other"), stable(role="x"), stable(tone=" kindly"), stable(body="_" + BODY)}) == 5
    )


# fmt: off
REFUSALS = [
    ("acme/other", GIVEN, Render.TEMPLATE_NOT_FOUND, ""),
    ("chat", GIVEN, Render.TEMPLATE_NOT_FOUND, ""),
    ("acme/chat", {"role": "x"}, Render.RENDER_ERROR, "missing_slot"),
    ("acme/chat", {**GIVEN, "who": "x"}, Render.RENDER_ERROR, "unknown_variable"),
    ("acme/chat", {**GIVEN, "role": "\ud800"}, Render.RENDER_ERROR, "not_text"),
    ("acme/chat", {**GIVEN, "role": "x" * (OUTPUT_BYTES_MAX // 2)}, Render.RENDER_ERROR, "too_large"),
    ("acme/chat", {**GIVEN, "role": "é" * (OUTPUT_BYTES_MAX // 4)}, Render.RENDER_ERROR, "too_large"),
    ("acme/chat", {f"v{n}": "" for n in range(VARIABLES_MAX + 1)}, Render.RENDER_ERROR, "too_large"),
]
# fmt: on


@pytest.mark.parametrize(("ref", "given_", "reason", "detail"), REFUSALS)
def test_refusals(ref: str, given_: dict[str, str], reason: Render, detail: str) -> None:
    found = render_template(ref, given_, "acme", policies(BODY))
    assert (found.reason, found.cause) == (reason, detail)
    assert (found.prompt, found.stable_prefix_hash, found.tenant_namespace) == (b"", b"", b"")


def test_a_required_slot_may_be_given_empty() -> None:
    assert render_template("acme/chat", {"role": "", "question": ""}, "t", policies(BODY)).reason is Render.OK


def test_as_large_as_it_may_be() -> None:
    found = render_template("acme/chat", {"role": "x" * OUTPUT_BYTES_MAX}, "t", policies("{{role}}", SLOTS[:1]))
    assert len(found.prompt) == OUTPUT_BYTES_MAX


# fmt: off
BODIES = [
    ("plain }} text { {", [Part("plain }} text { {", "")]),
    ("{{a}}{{b.c-d_0}}", [Part("", "a"), Part("", "b.c-d_0")]),
    ("{{{{a}}", [Part("{{", ""), Part("a}}", "")]),
    ("{{{{{{a}}", [Part("{{", ""), Part("", "a")]),
    ("{{{{{{{{", [Part("{{", ""), Part("{{", "")]),
    ("{{a}}}", [Part("", "a"), Part("}", "")]),
    ("{ {{a}}", [Part("{ ", ""), Part("", "a")]),
]
# fmt: on


@pytest.mark.parametrize(("body", "parts"), BODIES)
def test_bodies(body: str, parts: list[Part]) -> None:
    assert parse_body(body) == parts


MALFORMED = ["{{", "{{}}", "{{ a }}", "{{a", "{{a}", "{{.a}}", "{{{a}}}", "{{a b}}", "{{a|upper}}", "x\n{{{{{{"]


@pytest.mark.parametrize("body", MALFORMED)
def test_malformed_bodies(body: str) -> None:
    with pytest.raises(MalformedBody, match="in its line"):
        parse_body(body)


text = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20)
plain = text.map(lambda said: said.replace("{", "("))
names = st.sampled_from([slot.name for slot in SLOTS])
pieces = st.lists(
    st.tuples(st.just("text"), plain) | st.tuples(st.just("literal"), plain) | st.tuples(st.just("slot"), names)
)


@settings(deadline=None)
@given(pieces, st.dictionaries(names, text | st.just("{{role}}") | st.just("{{{{"), max_size=4))
def test_a_rendering_is_its_pieces_in_order(found: list[tuple[str, str]], given_: dict[str, str]) -> None:
    given_ = {"role": "r", "question": "q", **given_}
    written = {"text": "{}", "literal": "{{{{{{{{{}", "slot": "{{{{{}}}}}"}
    told = {"text": "{}", "literal": "{{{{{}", "slot": "{}"}
    body = " ".join(written[kind].format(piece) for kind, piece in found)
    values = ((kind, given_.get(piece, "") if kind == "slot" else piece) for kind, piece in found)
    expected = " ".join(told[kind].format(value) for kind, value in values)
    rendered = render_template("acme/chat", given_, "t", policies(body))
    assert rendered.reason is Render.OK
    assert rendered.prompt.decode() == expected
    assert rendered == render_template("acme/chat", dict(reversed(given_.items())), "t", policies(body))


@settings(deadline=None)
@given(st.text(alphabet="{}a .", max_size=24))
def test_any_body_is_parsed_or_refused_and_loses_nothing(body: str) -> None:
    try:
        parts = parse_body(body)
    except MalformedBody:
        return
    assert "".join(f"{{{{{part.slot}}}}}" if part.slot else part.text.replace("{{", "{{{{") for part in parts) == body


def test_tenant_and_template_cannot_be_shifted_into_each_other() -> None:
    (template,) = policies("a", ()).templates.values()
    other = Policies(templates={"me/chat": msgspec.structs.replace(template, ref="me/chat")})
    found = render_template("acme/chat", {}, "x", policies("a", ())), render_template("me/chat", {}, "xac", other)
    assert found[0].prompt == found[1].prompt
    assert found[0].stable_prefix_hash != found[1].stable_prefix_hash
