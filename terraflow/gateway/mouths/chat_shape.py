"""The shape of a chat-completions body, as OpenAI's API description gives it, for checking alone.

1. Every field that the plane reads or prices is typed here; a field that is not here is unknown and travels on.
2. `check` names the path and the rule of the first problem, never a value and never a key of the caller's choosing.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from terraflow.core.outcome import Problem

Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Name = Annotated[str, Meta(min_length=1, max_length=256)]


# Whoever serves the model fetches the address from where it stands: no file of its own, and no plain http, which is
# what services without a password speak inside.
IMAGE = Meta(pattern=r"^(https://|data:image/)", description="an https address, or a data URL of an image")
ADDRESS = Meta(pattern=r"^https://", description="an https address")


class _ImageUrl(msgspec.Struct):
    url: Annotated[str, IMAGE]
    detail: str | None = None


class _Audio(msgspec.Struct):
    data: str
    format: str


class _File(msgspec.Struct):
    file_data: str | None = None
    file_id: str | None = None
    filename: str | None = None


class _TextPart(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class _RefusalPart(msgspec.Struct, tag_field="type", tag="refusal"):
    refusal: str


class ImagePart(msgspec.Struct, tag_field="type", tag="image_url"):
    image_url: _ImageUrl


class AudioPart(msgspec.Struct, tag_field="type", tag="input_audio"):
    input_audio: _Audio


class FilePart(msgspec.Struct, tag_field="type", tag="file"):
    file: _File


_Part = _TextPart | _RefusalPart | ImagePart | AudioPart | FilePart


class _CalledFunction(msgspec.Struct):
    name: Name
    arguments: str


class _CalledCustom(msgspec.Struct):
    name: Name
    input: str


class _FunctionCall(msgspec.Struct, tag_field="type", tag="function"):
    id: str
    function: _CalledFunction


class _CustomCall(msgspec.Struct, tag_field="type", tag="custom"):
    id: str
    custom: _CalledCustom


class _System(msgspec.Struct, tag_field="role", tag="system"):
    content: str | list[_TextPart]
    name: str | None = None


class _Developer(msgspec.Struct, tag_field="role", tag="developer"):
    content: str | list[_TextPart]
    name: str | None = None


class _User(msgspec.Struct, tag_field="role", tag="user"):
    content: str | Annotated[list[_Part], Meta(min_length=1)]
    name: str | None = None


class _Thinking(msgspec.Struct, tag_field="type", tag="thinking"):
    thinking: str
    signature: str | None = None


class _RedactedThinking(msgspec.Struct, tag_field="type", tag="redacted_thinking"):
    data: str


class _Place(msgspec.Struct):
    type: Literal["thinking", "text", "tool_use"]
    characters: Annotated[int, Meta(ge=0, le=1_000_000_000)] | None = None


class Assistant(msgspec.Struct, tag_field="role", tag="assistant"):
    content: str | list[_Part] | None = None
    refusal: str | None = None
    name: str | None = None
    tool_calls: list[_FunctionCall | _CustomCall] | None = None
    function_call: _CalledFunction | None = None
    audio: dict[str, Any] | None = None
    reasoning_content: str | None = None
    thinking_blocks: list[_Thinking | _RedactedThinking] | None = None
    block_order: Annotated[list[_Place], Meta(max_length=4096)] | None = None


class _Tool(msgspec.Struct, tag_field="role", tag="tool"):
    content: str | list[_Part]
    tool_call_id: str


class _Function(msgspec.Struct, tag_field="role", tag="function"):
    content: str | None
    name: Name


_Message = _System | _Developer | _User | Assistant | _Tool | _Function


class _Definition(msgspec.Struct):
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _CustomDefinition(msgspec.Struct):
    name: Name
    description: str | None = None
    format: dict[str, Any] | None = None


class _FunctionTool(msgspec.Struct, tag_field="type", tag="function"):
    function: _Definition


class CustomTool(msgspec.Struct, tag_field="type", tag="custom"):
    custom: _CustomDefinition


class _Named(msgspec.Struct):
    name: Name


class _ChosenFunction(msgspec.Struct, tag_field="type", tag="function"):
    function: _Named


class _ChosenCustom(msgspec.Struct, tag_field="type", tag="custom"):
    custom: _Named


class _AllowedTool(msgspec.Struct):
    type: Literal["function", "custom"]
    function: _Named | None = None
    custom: _Named | None = None
    name: Name | None = None

    @property
    def named(self) -> str:
        """Its name, in either of the forms that clients write; empty for none, which no contract lists."""
        inner = self.function or self.custom
        return inner.name if inner is not None else self.name or ""


class _Allowed(msgspec.Struct):
    mode: Literal["auto", "required"]
    tools: Annotated[list[_AllowedTool], Meta(max_length=128)]


class _AllowedTools(msgspec.Struct, tag_field="type", tag="allowed_tools"):
    allowed_tools: _Allowed


class _StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    # Its fields end here: chunks are the plane's own, and carry no padding either way.
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class _JsonSchema(msgspec.Struct):
    name: Name
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class _TextFormat(msgspec.Struct, tag_field="type", tag="text"):
    pass


class _ObjectFormat(msgspec.Struct, tag_field="type", tag="json_object"):
    pass


class _SchemaFormat(msgspec.Struct, tag_field="type", tag="json_schema"):
    json_schema: _JsonSchema


class ChatBody(msgspec.Struct):
    """The typed part of a chat-completions request."""

    messages: Annotated[list[_Message], Meta(min_length=1, max_length=4096)]
    model: str | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    tools: Annotated[list[_FunctionTool | CustomTool], Meta(max_length=128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | _ChosenFunction | _ChosenCustom | _AllowedTools | None = None
    functions: Annotated[list[_Definition], Meta(max_length=128)] | None = None
    function_call: Literal["none", "auto"] | _Named | None = None
    parallel_tool_calls: bool | None = None
    response_format: _TextFormat | _ObjectFormat | _SchemaFormat | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    # Other tiers have prices of their own, which no capability states.
    service_tier: Literal["auto", "default"] | None = None
    store: bool | None = None
    metadata: dict[str, str] | None = None
    modalities: list[Literal["text", "audio"]] | None = None
    audio: dict[str, Any] | None = None
    prediction: dict[str, Any] | None = None
    web_search_options: dict[str, Any] | None = None


def chosen_names(body: ChatBody) -> list[str]:
    """The tools that `tool_choice` and `function_call` name, whether or not they are offered."""
    names = []
    for choice in (body.tool_choice, body.function_call):
        if isinstance(choice, _Named):
            names.append(choice.name)
        elif isinstance(choice, _ChosenFunction):
            names.append(choice.function.name)
        elif isinstance(choice, _ChosenCustom):
            names.append(choice.custom.name)
        elif isinstance(choice, _AllowedTools):
            names += [tool.named for tool in choice.allowed_tools.tools]
    return names


_AT = re.compile(r" - at `(?:key in )?\$\.?(?P<path>[^`]*)`$")
_MISSING = re.compile(r"Object missing required field `([a-z_]+)`")
_UNKNOWN = "Object contains unknown field"
_EXPECTED = re.compile(r"Expected (`[a-z0-9_. |\[\]]+`(?: (?:of length )?[<>=]+ [0-9.-]+)?)")
_PLAIN_PATH = re.compile(r"[a-z_]+(?:\[(?:[0-9]+|\.\.\.)?\])*(?:\.[a-z_]+(?:\[(?:[0-9]+|\.\.\.)?\])*)*")

_WORD = re.compile(r"[a-z]+")
_JSON_WORDS = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}


def check(document: dict[str, Any]) -> ChatBody | Problem:
    """The typed body, or where it departs from the shape."""
    try:
        return msgspec.convert(document, ChatBody, strict=True)
    except msgspec.ValidationError as error:
        return problem_of(str(error))


def problem_of(said: str, kind: type[msgspec.Struct] | None = None) -> Problem:
    """What msgspec `said` of a body, without the value and without any key that the caller chose. `kind`: the body's
    struct, if it takes no other fields than its own; one that is not among them is answered with their names."""
    at = _AT.search(said)
    path = at["path"] if at is not None and _PLAIN_PATH.fullmatch(at["path"]) else ""
    missing = _MISSING.match(said)
    if missing is not None:
        return Problem(field=f"{path}.{missing[1]}".lstrip("."), rule="is required")
    if said.startswith(_UNKNOWN):
        if kind is not None and at is None:
            return Problem(field="body", rule="must hold nothing but " + ", ".join(sorted(kind.__struct_fields__)))
        return Problem(field=path or "body", rule="must hold no unknown field")
    for address in (IMAGE, ADDRESS):
        if f"matching regex '{address.pattern}'" in said:
            return Problem(field=path or "body", rule=f"must be {address.description}")
    expected = _EXPECTED.match(said)
    if expected is None:
        return Problem(field=path or "body", rule="has a value that is not allowed")
    words = _WORD.sub(lambda word: _JSON_WORDS.get(word[0], word[0]), expected[1].replace("`", ""))
    return Problem(field=path or "body", rule=f"must be {words.replace(' | ', ' or ')}")
