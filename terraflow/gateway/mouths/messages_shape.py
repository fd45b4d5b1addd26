"""The shape of a Messages body, as Anthropic's API reference gives it, for checking and reading.

1. Every field that the plane can tell a provider of is typed here, and no other is let in: what is not here would be
   lost in the translation, so it is refused, as Anthropic's own API refuses what it does not know.
2. Not here, and why: sources of type `file` (the ids belong to the provider's account, not to the caller); blocks and
   fields of server tools, containers and MCP servers (they run, reach out and cost where no capability says so); other
   speeds and regions of inference (other prices); threads (the conversation would be the provider's to keep). A
   thread is refused under its own name, `THREAD`, because clients that begin one go on without when they are told.
3. Of the fields that are not here `NOTHING_WHEN_NULL` may be null, which asks for nothing: Anthropic's clients send it.
4. A tool with a `type` of its own is let in as it is: adapters know which of them they can tell.

Sources: Anthropic's API reference, "Create a Message"; the types of its client library.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from terraflow.core.outcome import Problem
from terraflow.gateway.mouths.chat_shape import ADDRESS, Count, Name, problem_of

TURNS_MAX = 4096
TOOLS_MAX = 512
NOTHING_WHEN_NULL = frozenset({"container", "diagnostics", "inference_geo", "thread"})
THREAD = Problem(field="thread", rule="must be absent: no conversation is kept here, so send the whole of it")


class _Closed(msgspec.Struct, forbid_unknown_fields=True):
    pass


class CacheControl(_Closed):
    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class Citations(_Closed):
    enabled: bool = False


class Text(_Closed, tag_field="type", tag="text"):
    text: str
    cache_control: CacheControl | None = None
    citations: list[dict[str, Any]] | None = None


class ImageData(_Closed, tag_field="type", tag="base64"):
    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    data: str


class Url(_Closed, tag_field="type", tag="url"):
    url: Annotated[str, ADDRESS]


class Image(_Closed, tag_field="type", tag="image"):
    source: ImageData | Url
    cache_control: CacheControl | None = None


class PdfData(_Closed, tag_field="type", tag="base64"):
    media_type: Literal["application/pdf"]
    data: str


class PlainText(_Closed, tag_field="type", tag="text"):
    media_type: Literal["text/plain"]
    data: str


class Blocks(_Closed, tag_field="type", tag="content"):
    content: str | list[Text | Image]


class Document(_Closed, tag_field="type", tag="document"):
    source: PdfData | PlainText | Url | Blocks
    title: str | None = None
    context: str | None = None
    citations: Citations | None = None
    cache_control: CacheControl | None = None


class SearchResult(_Closed, tag_field="type", tag="search_result"):
    source: str
    title: str
    content: list[Text]
    citations: Citations | None = None
    cache_control: CacheControl | None = None


class Thinking(_Closed, tag_field="type", tag="thinking"):
    thinking: str
    signature: str


class RedactedThinking(_Closed, tag_field="type", tag="redacted_thinking"):
    data: str


class Caller(_Closed):
    type: Literal["direct"]


class ToolUse(_Closed, tag_field="type", tag="tool_use"):
    id: Name
    name: Name
    input: dict[str, Any]
    caller: Caller | None = None
    # Of a toolset's calls and their results alone, and null in every other.
    toolset_name: None = None
    cache_control: CacheControl | None = None


class ToolResult(_Closed, tag_field="type", tag="tool_result"):
    tool_use_id: Name
    content: str | list[Text | Image | Document | SearchResult] | None = None
    is_error: bool | None = None
    toolset_name: None = None
    cache_control: CacheControl | None = None


Said = Text | Thinking | RedactedThinking | ToolUse
Given = Text | Image | Document | SearchResult | ToolResult


class User(_Closed, tag_field="role", tag="user"):
    content: str | Annotated[list[Given], Meta(min_length=1)]


class Assistant(_Closed, tag_field="role", tag="assistant"):
    content: str | list[Said]


class System(_Closed, tag_field="role", tag="system"):
    content: str | list[Text]


class CustomTool(_Closed):
    """A tool that the caller defines; `type` is "custom" or absent."""

    name: Name
    input_schema: dict[str, Any]
    type: Literal["custom"] | None = None
    description: str | None = None
    strict: bool | None = None
    cache_control: CacheControl | None = None
    defer_loading: bool | None = None
    allowed_callers: list[str] | None = None
    input_examples: list[dict[str, Any]] | None = None
    eager_input_streaming: bool | None = None


class NamedTool(msgspec.Struct):
    """A tool that Anthropic defines, of the `type` that it carries; its other fields are that type's."""

    type: Name
    name: Name
    cache_control: CacheControl | None = None


class ChoiceAuto(_Closed, tag_field="type", tag="auto"):
    disable_parallel_tool_use: bool | None = None


class ChoiceAny(_Closed, tag_field="type", tag="any"):
    disable_parallel_tool_use: bool | None = None


class ChoiceTool(_Closed, tag_field="type", tag="tool"):
    name: Name
    disable_parallel_tool_use: bool | None = None


class ChoiceNone(_Closed, tag_field="type", tag="none"):
    pass


_Display = Literal["summarized", "omitted"]


class ThinkingEnabled(_Closed, tag_field="type", tag="enabled"):
    budget_tokens: Annotated[int, Meta(ge=1024, le=1_000_000_000)]
    display: _Display | None = None


class ThinkingAdaptive(_Closed, tag_field="type", tag="adaptive"):
    display: _Display | None = None


class ThinkingDisabled(_Closed, tag_field="type", tag="disabled"):
    pass


class ThinkingBetweenTools(_Closed, tag_field="type", tag="between_tools"):
    """Thinking is off; what the model says of its progress between calls comes as thinking."""


class JsonFormat(_Closed):
    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(_Closed):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JsonFormat | None = None


class Metadata(_Closed):
    user_id: str | None = None


class CountedBody(_Closed, kw_only=True):
    """What may be counted: a Messages request but for what bounds and steers its answer."""

    messages: Annotated[list[User | Assistant | System], Meta(min_length=1, max_length=TURNS_MAX)]
    model: str | None = None
    system: str | list[Text] | None = None
    tools: Annotated[list[dict[str, Any]], Meta(max_length=TOOLS_MAX)] | None = None
    tool_choice: ChoiceAuto | ChoiceAny | ChoiceTool | ChoiceNone | None = None
    thinking: ThinkingEnabled | ThinkingAdaptive | ThinkingDisabled | ThinkingBetweenTools | None = None
    output_config: OutputConfig | None = None
    output_format: JsonFormat | None = None
    cache_control: CacheControl | None = None
    speed: Literal["standard"] | None = None


class MessagesBody(CountedBody, kw_only=True):
    """A Messages request."""

    max_tokens: Count
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    metadata: Metadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None


_Body = TypeVar("_Body", bound=CountedBody)


def check(document: Any, kind: type[_Body]) -> _Body | Problem:
    """The typed body, or where it departs from the shape. `document` is any JSON value."""
    if isinstance(document, dict) and document.get("thread") is not None:
        return THREAD
    if isinstance(document, dict) and not NOTHING_WHEN_NULL.isdisjoint(document):
        document = {k: v for k, v in document.items() if v is not None or k not in NOTHING_WHEN_NULL}
    try:
        return msgspec.convert(document, kind, strict=True)
    except msgspec.ValidationError as error:
        return problem_of(str(error), kind)


def check_tool(tool: dict[str, Any], at: int) -> CustomTool | NamedTool | Problem:
    """The same of the tool at an index."""
    kind: type[CustomTool | NamedTool] = CustomTool if tool.get("type") in (None, "custom") else NamedTool
    try:
        return msgspec.convert(tool, kind, strict=True)
    except msgspec.ValidationError as error:
        problem = problem_of(str(error))
        inside = "" if problem.field == "body" else f".{problem.field}"
        return Problem(field=f"tools[{at}]{inside}", rule=problem.rule)
