"""Which path does what: a row a route.

1. A row names who answers, in which mouth's shape, and how `openapi` describes it.
2. Every answer of a route has its mouth's shape. An error from before the route is known has that of the mouth whose
   path was asked for, whatever the method.
3. Where either vendor's clients ask (models, and paths that are none), `anthropic-version`, which Anthropic's always
   send, says which shape that is.
"""

from __future__ import annotations

import msgspec

from terraflow.gateway.http import acts, batches, governed, reads
from terraflow.gateway.http import operations as said
from terraflow.gateway.http.arrived import Answering
from terraflow.gateway.http.operations import Operation
from terraflow.gateway.http.wire import Wire
from terraflow.gateway.mouths.anthropic_messages import MESSAGES
from terraflow.gateway.mouths.invocations import INVOCATIONS
from terraflow.gateway.mouths.mouth import Mouth
from terraflow.gateway.mouths.openai_chat import CHAT


class Route(msgspec.Struct, frozen=True):
    """What answers a path, in which shape, and what is said of it."""

    answer: Answering
    mouth: Mouth
    operation: Operation


# fmt: off
ROUTES: dict[tuple[str, str], Route] = {
    ("POST",   "/v1/chat/completions"):      Route(governed.answer,    CHAT,        said.CHAT_COMPLETION),
    ("POST",   "/v1/invocations"):           Route(governed.answer,    INVOCATIONS, said.INVOCATION),
    ("POST",   "/v1/messages"):              Route(governed.answer,    MESSAGES,    said.MESSAGE),
    ("POST",   "/v1/messages/count_tokens"): Route(reads.count_tokens, MESSAGES,    said.COUNT_TOKENS),
    ("GET",    "/v1/models"):                Route(reads.models,       CHAT,        said.MODELS),
    ("GET",    "/v1/models/*"):              Route(reads.model,        CHAT,        said.MODEL),
    ("GET",    "/v1/evidence/*"):            Route(reads.evidence,     CHAT,        said.EVIDENCE),
    ("GET",    "/v1/reviews/*"):             Route(reads.review,       CHAT,        said.REVIEW),
    ("DELETE", "/v1/requests/*"):            Route(acts.cancel,        CHAT,        said.CANCEL),
    ("POST",   "/v1/files"):                 Route(batches.upload,     CHAT,        said.UPLOAD),
    ("GET",    "/v1/files"):                 Route(batches.files,      CHAT,        said.FILES),
    ("GET",    "/v1/files/*"):               Route(batches.file,       CHAT,        said.FILE),
    ("DELETE", "/v1/files/*"):               Route(batches.drop,       CHAT,        said.DROP_FILE),
    ("GET",    "/v1/files/*/content"):       Route(batches.content,    CHAT,        said.CONTENT),
    ("POST",   "/v1/batches"):               Route(batches.create,     CHAT,        said.CREATE_BATCH),
    ("GET",    "/v1/batches"):               Route(batches.batches,    CHAT,        said.BATCHES),
    ("GET",    "/v1/batches/*"):             Route(batches.batch,      CHAT,        said.BATCH),
    ("POST",   "/v1/batches/*/cancel"):      Route(batches.cancel,     CHAT,        said.CANCEL_BATCH),
    ("POST",   "/v1/requests/*/feedback"):   Route(acts.give_feedback, CHAT,        said.FEEDBACK),
}
# fmt: on
_WITH_ARGUMENT = frozenset(name for _, name in ROUTES if "*" in name)
_MODELS = b"models"
_MOUTHS = {name.split("/")[2].encode(): route.mouth for (_, name), route in ROUTES.items()}


def mouth_at(wire: Wire) -> Mouth:
    """The mouth of a path, or of the room that it lies in; for models, and where there is none, by rule 3."""
    _, _, below = wire.raw_path.partition(b"/v1/")
    room = below.partition(b"/")[0]
    if room in _MOUTHS and room != _MODELS:
        return _MOUTHS[room]
    return MESSAGES if any(name == b"anthropic-version" for name, _ in wire.headers) else CHAT


def split(path: str) -> tuple[str, str]:
    """A path's route, and the id at the route's star: `/v1/evidence/req_1` is `("/v1/evidence/*", "req_1")`."""
    parts = path.split("/", 5)
    if len(parts) > 3 and parts[3]:
        name = "/".join((*parts[:3], "*", *parts[4:]))
        if name in _WITH_ARGUMENT:
            return name, parts[3]
    return path, ""
