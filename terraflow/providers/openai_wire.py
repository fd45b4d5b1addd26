"""What may come back of OpenAI's chat completions, typed: a whole answer, and chunk by chunk.

1. Everything that comes back is typed here down to its leaves, so that nothing unforeseen, and nothing deeper than
   these types, travels on; a field that is not here is not passed on. Engines name the stop sequence that was met.
2. A stream is whole when every choice has finished and `[DONE]` came; anything less is CUT_OFF.
3. Cached, cache-written and audio tokens are inside `prompt_tokens`, reasoning and audio inside
   `completion_tokens` (OpenAI's `CompletionUsage`); each token ends in one field of `Usage`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Required, TypedDict

import msgspec
from msgspec import Meta

from terraflow.ports.upstream import NOTHING_BESIDE, Answer, Beside, Call, Chunk, Failure, ProviderFailure, Usage
from terraflow.providers.failures import OPENAI, failure_of_success
from terraflow.providers.incidental import UNSAID, known
from terraflow.providers.openai_extensions import heard_names
from terraflow.providers.tool_calls import CallIndices, new_call_id, renew

_Tokens = Annotated[int, Meta(ge=0, le=1_000_000_000)]
_Index = Annotated[int, Meta(ge=0, le=1023)]
_Word = Annotated[str, Meta(max_length=256)]


class _Function(TypedDict, total=False):
    name: str | None
    arguments: str | None


class _Custom(TypedDict, total=False):
    name: str | None
    input: str | None


class _ToolCall(TypedDict, total=False):
    id: str | None
    type: _Word
    function: _Function
    custom: _Custom


class _ToolDelta(TypedDict, total=False):
    index: Required[_Index]
    id: str | None
    type: _Word | None
    function: _Function | None
    custom: _Custom | None


class _TopToken(TypedDict, total=False):
    token: Required[str]
    logprob: Required[float]
    bytes: list[int] | None


class _Token(TypedDict, total=False):
    token: Required[str]
    logprob: Required[float]
    bytes: list[int] | None
    top_logprobs: list[_TopToken]


class _Logprobs(TypedDict, total=False):
    content: list[_Token] | None
    refusal: list[_Token] | None


class _UrlCitation(TypedDict, total=False):
    start_index: int
    end_index: int
    title: str
    url: str


class _Annotation(TypedDict, total=False):
    type: Required[_Word]
    url_citation: _UrlCitation


class _Audio(TypedDict, total=False):
    id: str
    data: str
    expires_at: int
    transcript: str


class _Said(TypedDict, total=False):
    role: _Word | None
    content: str | None
    refusal: str | None
    reasoning_content: str | None
    reasoning: str | None
    function_call: _Function | None
    annotations: list[_Annotation] | None
    audio: _Audio | None


class _Message(_Said, total=False):
    tool_calls: list[_ToolCall] | None


class _Delta(_Said, total=False):
    tool_calls: list[_ToolDelta] | None


class _Choice(TypedDict, total=False):
    index: Required[_Index]
    message: Required[_Message]
    finish_reason: Required[_Word | None]
    stop_reason: Any
    matched_stop: Any
    logprobs: _Logprobs | None


class _ChunkChoice(TypedDict, total=False):
    index: Required[_Index]
    delta: _Delta | None
    finish_reason: _Word | None
    stop_reason: Any
    matched_stop: Any
    logprobs: _Logprobs | None


class _Moderated(TypedDict, total=False):
    flagged: bool
    model: str
    type: _Word
    categories: dict[str, bool]
    category_scores: dict[str, float]
    category_applied_input_types: dict[str, list[_Word]]


class _Moderations(TypedDict, total=False):
    # Of an error, its code: the words are the vendor's.
    type: Required[_Word]
    model: str
    results: list[_Moderated]
    code: _Word


class _Moderation(TypedDict, total=False):
    input: _Moderations
    output: _Moderations


class _InputDetails(msgspec.Struct):
    cached_tokens: _Tokens | None = None
    cache_write_tokens: _Tokens | None = None
    audio_tokens: _Tokens | None = None
    text_tokens: _Tokens | None = None
    image_tokens: _Tokens | None = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: _Tokens | None = None
    audio_tokens: _Tokens | None = None
    text_tokens: _Tokens | None = None
    accepted_prediction_tokens: _Tokens | None = None
    rejected_prediction_tokens: _Tokens | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: _Tokens
    completion_tokens: _Tokens | None = None
    prompt_tokens_details: _InputDetails | None = None
    completion_tokens_details: _OutputDetails | None = None


class _Envelope(msgspec.Struct, kw_only=True):
    usage: _Usage | None = None
    system_fingerprint: _Word | None = None
    service_tier: _Word | None = None
    moderation: msgspec.Raw = UNSAID
    # Nothing but null: an error beside the choices is no answer.
    error: None = None


class _Whole(_Envelope, kw_only=True):
    choices: list[_Choice]
    metadata: msgspec.Raw = UNSAID


class _Piece(_Envelope, kw_only=True):
    choices: list[_ChunkChoice]


_decode_whole = msgspec.json.Decoder(_Whole).decode
_decode_piece = msgspec.json.Decoder(_Piece).decode
_BAD = (msgspec.DecodeError, RecursionError)

_SHOWN_PROMPT = ("text_tokens", "image_tokens")
_SHOWN_COMPLETION = ("text_tokens", "accepted_prediction_tokens", "rejected_prediction_tokens")
# A stored answer's, and what engines say of themselves there.
_METADATA = msgspec.json.Decoder(dict[str, str] | None)
_MODERATION = msgspec.json.Decoder(_Moderation | None)

_FINISHES: dict[str, str | None] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "function_call": "function_call",
    "": None,
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "end_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
}
"""OpenAI's words, and those of engines that keep their own; "abort" and whatever else is not a whole answer."""


def parse_answer(raw: bytes, call: Call) -> Answer:
    """The answer in a response's body. Raises ProviderFailure."""
    try:
        whole = _decode_whole(raw)
    except _BAD:
        whole = None
    if whole is None:
        raise failure_of_success(OPENAI, raw)
    if sorted(choice["index"] for choice in whole.choices) != [*range(call.request.choices)]:
        raise ProviderFailure(Failure.MALFORMED, reached=True, status=200)
    stopped: str | None = None
    old = "functions" in call.request.document
    for choice in whole.choices:
        stopped = _stopped_by(choice) or stopped
        choice["finish_reason"] = _finish(choice["finish_reason"], old)
        if choice["finish_reason"] is None:
            raise ProviderFailure(Failure.CUT_OFF, reached=True, status=200)
        if not old:
            renew(choice["message"])  # type: ignore[arg-type]
        calls = choice["message"].get("tool_calls") or ()
        for called in calls:
            called["id"] = called.get("id") or new_call_id()
        if calls and call.request.extended:
            _hear(calls, heard_names(call.request.document))
    usage = _usage(whole.usage) or Usage.counted(call.request, len(raw))
    return Answer(
        choices=whole.choices,  # type: ignore[arg-type]
        usage=usage,
        extras=_moderated(_extras(whole), whole) | _said({"metadata": known(whole.metadata, _METADATA)}),
        stop_sequence=stopped,
        beside=_beside(whole.usage) or NOTHING_BESIDE,
    )


class ChunkParser:
    """The chunks of one stream, in order, and whether the stream was whole."""

    __slots__ = ("_calls", "_done", "_extras", "_fingerprint", "_names", "_old", "_tier", "_unfinished")

    def __init__(self, call: Call) -> None:
        self._unfinished = set(range(call.request.choices))
        self._calls: CallIndices | None = None
        self._names = heard_names(call.request.document) if call.request.extended else {}
        self._old = "functions" in call.request.document
        self._done = False
        self._fingerprint: str | None = None
        self._tier: str | None = None
        self._extras: dict[str, Any] = {}

    @property
    def done(self) -> bool:
        """Whether the end mark was seen."""
        return self._done

    @property
    def whole(self) -> bool:
        """Whether every choice finished before the end mark."""
        return self._done and not self._unfinished

    def parse(self, event: bytes) -> Chunk | None:
        """The chunk of an event, None for the end mark. Raises ProviderFailure."""
        try:
            piece = _decode_piece(event)
        except _BAD:
            piece = None
        if piece is None:
            if event == b"[DONE]":
                self._done = True
                return None
            raise failure_of_success(OPENAI, event)
        stopped: str | None = None
        for choice in piece.choices:
            if "stop_reason" in choice or "matched_stop" in choice:
                stopped = _stopped_by(choice)
            delta = choice.get("delta")
            if delta is not None and "function_call" in delta and not self._old:
                renew(delta, index=0)  # type: ignore[arg-type]
            if delta is None:
                choice["delta"] = {}
            elif delta.get("tool_calls"):
                self._calls = self._calls or CallIndices()
                self._calls.settle(choice["index"], delta["tool_calls"])  # type: ignore[arg-type]
                if self._names:
                    _hear(delta["tool_calls"] or (), self._names)
            said = choice.get("finish_reason")
            choice["finish_reason"] = finish = None if said is None else _finish(said, self._old)
            if finish is not None:
                self._unfinished.discard(choice["index"])
            elif choice["index"] not in self._unfinished:
                self._after_the_end(choice)
        if piece.system_fingerprint != self._fingerprint or piece.service_tier != self._tier:
            self._fingerprint, self._tier = piece.system_fingerprint, piece.service_tier
            self._extras = _extras(piece)
        usage = _usage(piece.usage)
        return Chunk(
            choices=piece.choices,  # type: ignore[arg-type]
            usage=usage,
            extras=_moderated(self._extras, piece),
            stop_sequence=stopped,
            beside=_beside(piece.usage),
        )

    def _after_the_end(self, choice: _ChunkChoice) -> None:
        """An engine may follow a finish with an empty delta; a choice nobody asked for, or more text, is no
        answer."""
        if any(choice["delta"].get(key) for key in ("content", "tool_calls", "refusal")):  # type: ignore[union-attr]
            raise ProviderFailure(Failure.MALFORMED, reached=True, status=200)


def _hear(calls: Iterable[_ToolCall | _ToolDelta], names: Mapping[str, str]) -> None:
    """Give the calls of tools whose names were told in another form their own, in place."""
    for called in calls:
        function = called.get("function")
        if function is not None and (own := names.get(function.get("name") or "")) is not None:
            function["name"] = own


def _stopped_by(choice: _Choice | _ChunkChoice) -> str | None:
    """The stop sequence that ended a choice, which vLLM and SGLang tell beside it, each by its own name (or the id of a
    token); taken out of it."""
    said = choice.pop("stop_reason", None), choice.pop("matched_stop", None)
    return next((word for word in said if isinstance(word, str)), None)


def _finish(said: str | None, old: bool) -> str | None:
    """OpenAI's word for a finish, None for one that is still to come; `old`: calls were asked for in their old form.
    Raises ProviderFailure for no finish at all."""
    if said is None:
        return None
    if said not in _FINISHES:
        raise ProviderFailure(Failure.CUT_OFF, reached=True, status=200)
    return "tool_calls" if said == "function_call" and not old else _FINISHES[said]


def _extras(wire: _Envelope) -> dict[str, Any]:
    return _said({"system_fingerprint": wire.system_fingerprint, "service_tier": wire.service_tier})


def _moderated(extras: dict[str, Any], wire: _Envelope) -> dict[str, Any]:
    """The extras, with the moderation of an answer or of this piece of it."""
    found = known(wire.moderation, _MODERATION)
    return extras if found is None else {**extras, "moderation": found}


def _said(fields: dict[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in fields.items() if value is not None}


def _usage(wire: _Usage | None) -> Usage | None:
    """None where the answer's tokens are not counted: nothing is not zero."""
    if wire is None or wire.completion_tokens is None:
        return None
    into = wire.prompt_tokens_details or _InputDetails()
    out = wire.completion_tokens_details or _OutputDetails()
    cached, written, heard = into.cached_tokens or 0, into.cache_write_tokens or 0, into.audio_tokens or 0
    thought, spoken = out.reasoning_tokens or 0, out.audio_tokens or 0
    if cached + written + heard > wire.prompt_tokens:
        # These are parts of the prompt: a part that is larger than the whole is no count to pay by.
        raise ProviderFailure(Failure.MALFORMED, reached=True, status=200)
    return Usage(
        input=wire.prompt_tokens - cached - written - heard,
        cached_input=cached,
        cache_write=written,
        audio_input=heard,
        output=max(0, wire.completion_tokens - thought - spoken),
        reasoning=thought,
        audio_output=spoken,
    )


def _beside(wire: _Usage | None) -> Beside | None:
    """Counts that are shown alone: they are parts of others, and have no price of their own."""
    if wire is None:
        return None
    return Beside(
        prompt_tokens=_counts(wire.prompt_tokens_details, _SHOWN_PROMPT),
        completion_tokens=_counts(wire.completion_tokens_details, _SHOWN_COMPLETION),
    )


def _counts(details: msgspec.Struct | None, names: Iterable[str]) -> dict[str, int]:
    return {name: count for name in names if (count := getattr(details, name, None)) is not None}
