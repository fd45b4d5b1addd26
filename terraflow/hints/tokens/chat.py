"""Chat templates: messages to the text that an engine tokenizes.

1. A template is Jinja in the sandbox that does not let it change what it is given, with the settings that model
   authors write for: blocks trimmed, `break` and `continue`, `raise_exception`, `tojson` that leaves characters alone.
2. Deterministic: there is no clock and no chance. A template that asks for the date without a default fails.
3. Bounded: what it renders, and how far `range` counts. A template itself is the operator's and trusted to end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

TEMPLATE_CHARACTERS_MAX = 1 << 18
RENDERED_CHARACTERS_MAX = 1 << 22


class TemplateFault(ValueError):
    """A template that cannot be used, or one that could not render what it was given. Quotes no message."""


class ChatTemplate:
    """One template, compiled. `variables` are what a tokenizer's configuration gives it, as `bos_token`."""

    def __init__(self, source: str, variables: Mapping[str, str] | None = None) -> None:
        if len(source) > TEMPLATE_CHARACTERS_MAX:
            raise TemplateFault(f"the template is longer than {TEMPLATE_CHARACTERS_MAX} characters")
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        try:
            self._template = environment.from_string(source)
        except (TemplateError, RecursionError) as fault:
            raise TemplateFault(f"the template cannot be read: {fault}") from None
        self._variables = dict(variables or {})

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None) -> str:
        """The prompt, ready for the assistant's turn. Raises TemplateFault."""
        given = {**self._variables, "messages": messages, "tools": tools or None, "add_generation_prompt": True}
        parts: list[str] = []
        length = 0
        try:
            for part in self._template.generate(**given):
                length += len(part)
                if length > RENDERED_CHARACTERS_MAX:
                    raise TemplateFault(f"more than {RENDERED_CHARACTERS_MAX} characters were rendered")
                parts.append(part)
        except TemplateFault:
            raise
        except Exception as fault:
            raise TemplateFault(f"the template failed: {type(fault).__name__}") from None
        return "".join(parts)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)
