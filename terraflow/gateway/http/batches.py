"""The routes of batches and of the files that they are made of, in the shape of OpenAI's.

1. `POST /v1/batches` takes OpenAI's object that names a file, or, as `application/jsonl`, the lines themselves.
2. What the workload's headers declare on it holds for every item. Headers that belong to one request are refused.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from terraflow.core.outcome import Refuse, invalid_request
from terraflow.core.reasons import Governed, ModelApi
from terraflow.core.strict_json import BadJson, parse_json
from terraflow.core.types import MICRO
from terraflow.gateway.batches.desk import RESULTS, UPLOADED, Asked, ResultFile, Shortened, no_room, result_files
from terraflow.gateway.batches.item import ENDPOINTS
from terraflow.gateway.exchange import Declared
from terraflow.gateway.http.arrived import Arrived, Edge, read_body
from terraflow.gateway.http.head import JSON_TYPE, Head, parse_declared
from terraflow.gateway.http.multipart import Part, boundary_of, parse_form
from terraflow.gateway.http.replies import page_answer, plain_answer, request_id_headers
from terraflow.gateway.http.wire import Reply, Stalled
from terraflow.ports.batches import Batch, BatchFile, BatchStatus

FORM_BYTES = 16 * 1024
"""What a form has beside its file."""
EXPIRY_MIN_S, EXPIRY_MAX_S = 3_600, 2_592_000
"""OpenAI's bounds of a file's time, where the form names one."""
PAGE, PAGE_MAX = 20, 100
"""Batches of a page, where the query does not say how many, and at most."""
FILES_ASKED_MAX = 10_000
"""OpenAI's bound, and what its API gives where the query does not say how many."""
FILES_PAGE_MAX = 100
"""Files of a page at most, however many are asked for: clients ask for the next. Each costs the loop some 5 µs, and ten
times that where its batch has long metadata."""
WINDOW = re.compile(r"([1-9][0-9]{0,4})([smh])")
"""A completion window: so many seconds, minutes or hours."""
METADATA_PAIRS, METADATA_NAME, METADATA_VALUE = 16, 64, 512
"""The most pairs of a batch's metadata, and the most characters of a name and of a value: OpenAI's bounds."""

_JSONL = re.compile(
    rb"application/(?:jsonl|x-ndjson|x-jsonlines)\s*(?:;\s*charset\s*=\s*\"?utf-8\"?\s*)?", re.IGNORECASE
)
_LINES = b"application/jsonl"
_SECONDS = {"s": 1, "m": 60, "h": 3_600}
_WINDOW_MAX_S = 86_400
_EXPIRY = {"anchor": "expires_after[anchor]", "seconds": "expires_after[seconds]"}
"""A form's names of an object's fields."""
_SECONDS_SAID = re.compile(rb"[1-9][0-9]{0,8}")
_FIELDS = frozenset(("input_file_id", "endpoint", "completion_window", "metadata"))
_ID = re.compile(r"[a-z]{1,8}[_-][0-9a-f]{32}(?:-[a-z]{1,8})?")
_QUERY = re.compile(r"(?P<name>[a-z]{1,16})=(?P<value>[A-Za-z0-9_-]{1,64})")
_BATCHES_QUERY, _FILES_QUERY = ("limit", "after"), ("limit", "after", "order", "purpose")
_ORDERS = {"asc": False, "desc": True}
"""Whether the newest come first."""

_METADATA_RULE = f"must be at most {METADATA_PAIRS} texts of {METADATA_VALUE} characters, by names of {METADATA_NAME}"

_encode = msgspec.json.Encoder().encode


# Files.


async def upload(edge: Edge, arrived: Arrived) -> Reply | Refuse | None:
    """`POST /v1/files`: a form with `purpose` and `file`, and perhaps with `expires_after`."""
    boundary = boundary_of(arrived.head.values.get(b"content-type"))
    if boundary is None:
        return invalid_request("content-type", "must be multipart/form-data with a boundary")
    if arrived.head.values.get(b"content-encoding", b"identity") != b"identity":
        return invalid_request("content-encoding", "must be absent: bodies are sent uncompressed")
    async with edge.desk.uploads.place(arrived.caller.tenant) as placed:
        if not placed:
            return no_room()
        raw = await read_body(edge, arrived, edge.desk.limits.bytes_max + FORM_BYTES)
        form = raw if isinstance(raw, Refuse) else parse_form(raw, boundary)
        if isinstance(form, Refuse):
            return form
        file = _file_of(form, edge.desk.limits.bytes_max)
        if isinstance(file, Refuse):
            return file
        keep_s = _keep_s(form, edge.desk.limits.keep_s)
        if isinstance(keep_s, Refuse):
            return keep_s
        kept = await edge.desk.keep(arrived.caller, file.filename or "", file.data, keep_s)
    return kept if isinstance(kept, Refuse) else plain_answer(_file(kept), arrived.request_id)


def _file_of(form: dict[str, Part], bytes_max: int) -> Part | Refuse:
    if form.keys() - _EXPIRY.values() != {"purpose", "file"}:
        return invalid_request("body", "must be a form of purpose, file and perhaps expires_after, and no other field")
    if form["purpose"].data != b"batch":
        return invalid_request("purpose", "must be batch")
    file = form["file"]
    if file.filename is None or len(file.filename) > 255:
        return invalid_request("file", "must be a file with a name of at most 255 characters")
    if not 1 <= len(file.data) <= bytes_max:
        return invalid_request("file", f"must have 1 to {bytes_max} bytes")
    return file


def _keep_s(form: dict[str, Part], most_s: int) -> int | Refuse:
    """The seconds for which a file is to be kept: fewer than the plane's, if the form says so."""
    if form.keys().isdisjoint(_EXPIRY.values()):
        return most_s
    anchor, seconds = (None if part is None else part.data for part in map(form.get, _EXPIRY.values()))
    if anchor != b"created_at":
        return invalid_request("expires_after.anchor", "must be created_at")
    most_s = min(most_s, EXPIRY_MAX_S)
    if seconds is None or _SECONDS_SAID.fullmatch(seconds) is None or not EXPIRY_MIN_S <= int(seconds) <= most_s:
        return invalid_request("expires_after.seconds", f"must be {EXPIRY_MIN_S} to {most_s}")
    return int(seconds)


async def file(edge: Edge, arrived: Arrived) -> Reply | Refuse | None:
    """`GET /v1/files/{id}`."""
    found = await _found(edge, arrived)
    return found if isinstance(found, Refuse) else plain_answer(_file(found), arrived.request_id)


async def files(edge: Edge, arrived: Arrived) -> Reply | Refuse | None:
    """`GET /v1/files?purpose=…&limit=…&order=…&after=…`: uploaded files and those of results, newest first."""
    said = _query(arrived.wire.raw_query, _FILES_QUERY)
    if isinstance(said, Refuse):
        return said
    limit = _limit(said, FILES_ASKED_MAX, FILES_ASKED_MAX)
    if isinstance(limit, Refuse):
        return limit
    order, after = said.get("order", "desc"), said.get("after")
    if order not in _ORDERS:
        return invalid_request("order", "must be asc or desc")
    if after is not None and _ID.fullmatch(after) is None:
        return Refuse(reason=ModelApi.NOT_FOUND)
    page = await edge.desk.files(
        arrived.caller,
        after,
        min(limit, FILES_PAGE_MAX),
        newest_first=_ORDERS[order],
        purpose=said.get("purpose"),
    )
    if isinstance(page, Refuse):
        return page
    return page_answer([_file(one) for one in page[0]], arrived.request_id, more=page[1])


async def content(edge: Edge, arrived: Arrived) -> Reply | Refuse | None:
    """`GET /v1/files/{id}/content`: the bytes, as a stream."""
    found = Refuse(reason=ModelApi.NOT_FOUND) if arrived.wire.method == "HEAD" else await _found(edge, arrived)
    if isinstance(found, Refuse):
        return found
    async with edge.desk.reader(arrived.caller.tenant):
        return await _send(edge, arrived, found)


async def _send(edge: Edge, arrived: Arrived, found: BatchFile | ResultFile) -> Reply | Refuse | None:
    wire, named = arrived.wire, request_id_headers(arrived.mouth, arrived.request_id)
    gone = asyncio.Event()
    wire.on_leave(gone.set)
    last = b""
    started = False
    try:
        async for piece in edge.desk.pieces(found):
            if gone.is_set():
                # Whatever is written goes nowhere, and nothing would hold its reading up.
                return None
            if last and not started:
                wire.start_stream(200, [(b"content-type", _LINES), *named], edge.plane.limits.deadline_ms_max / 1000)
                started = True
            if last and piece:
                await wire.send_event(last)
            last = piece or last
    except Stalled:
        return Refuse(reason=Governed.DEADLINE_EXPIRED)
    except Shortened:
        # What has begun is broken off by this: a part of a file must not look like all of it.
        return Refuse(reason=ModelApi.NOT_FOUND)
    if not started:
        return Reply(200, named, last, _LINES)
    wire.end_stream(last)
    return None


async def drop(edge: Edge, arrived: Arrived) -> Reply | Refuse | None:
    """`DELETE /v1/files/{id}`: an uploaded file is erased; the files of results go with their batch."""
    if not await edge.desk.drop(arrived.caller, arrived.argument):
        return Refuse(reason=ModelApi.NOT_FOUND)
    return plain_answer({"id": arrived.argument, "object": "file", "deleted": True}, arrived.request_id)


async def _found(edge: Edge, arrived: Arrived) -> BatchFile | ResultFile | Refuse:
    found = await edge.desk.file(arrived.caller, arrived.argument) if _ID.fullmatch(arrived.argument) else None
    return Refuse(reason=ModelApi.NOT_FOUND) if found is None else found


def _file(file: BatchFile | ResultFile) -> dict[str, Any]:
    if isinstance(file, BatchFile):
        name, purpose, expires = file.name, UPLOADED, file.expires_at
    else:
        assert file.batch.erase_at is not None
        word = "output" if file.completed else "errors"
        name, purpose, expires = f"{file.batch.id}_{word}.jsonl", RESULTS, file.batch.erase_at
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.size_bytes,
        "created_at": file.created_at // MICRO,
        "expires_at": expires // MICRO,
        "filename": name,
        "purpose": purpose,
        "status": "processed",
        "status_details": None,
    }


# Batches.


async def create(edge: Edge, arrived: Arrived) -> Reply | Refuse | None:
    """`POST /v1/batches`."""
    values = arrived.head.values
    kind = values.get(b"content-type")
    inline = kind is not None and _JSONL.fullmatch(kind) is not None
    if kind is not None and not inline and JSON_TYPE.fullmatch(kind) is None:
        return invalid_request("content-type", "must be application/json, or application/jsonl of lines, in UTF-8")
    declared = _declared(Head({k: v for k, v in values.items() if k != b"content-type"}) if inline else arrived.head)
    if isinstance(declared, Refuse):
        return declared
    asked = Asked() if inline else await _read_asked(edge, arrived)
    if isinstance(asked, Refuse):
        return asked
    async with edge.desk.uploads.place(arrived.caller.tenant) as placed:
        if not placed:
            return no_room()
        if inline:
            raw = await read_body(edge, arrived, edge.desk.limits.bytes_max)
            made = raw if isinstance(raw, Refuse) else await edge.desk.create(arrived.caller, declared, asked, raw)
        else:
            made = await edge.desk.create_of_file(arrived.caller, declared, asked)
    return made if isinstance(made, Refuse) else plain_answer(_batch(made), arrived.request_id)


def _declared(head: Head) -> Declared | Refuse:
    for name in (b"idempotency-key", b"x-terraflow-deadline-ms", b"x-terraflow-run-id", b"x-terraflow-run-budget-usd"):
        if name in head.values:
            return invalid_request(name.decode(), "is not for batches")
    return parse_declared(head)


async def _read_asked(edge: Edge, arrived: Arrived) -> Asked | Refuse:
    raw = await read_body(edge, arrived, edge.plane.limits.body_bytes_max)
    return raw if isinstance(raw, Refuse) else _asked(raw)


def _asked(raw: bytes) -> Asked | Refuse:
    try:
        body = parse_json(raw, nodes_max=1_000)
    except BadJson as bad:
        return invalid_request("body", bad.rule)
    if type(body) is not dict or not body.keys() <= _FIELDS:
        return invalid_request("body", "must be an object of input_file_id, endpoint, completion_window and metadata")
    file_id, endpoint = body.get("input_file_id"), body.get("endpoint")
    if type(file_id) is not str or _ID.fullmatch(file_id) is None:
        return invalid_request("input_file_id", "must be a file that this application uploaded")
    if type(endpoint) is not str or endpoint not in ENDPOINTS:
        return invalid_request("endpoint", "must be one of " + ", ".join(ENDPOINTS))
    window = body.get("completion_window", "24h")
    found = WINDOW.fullmatch(window) if type(window) is str else None
    window_s = 0 if found is None else int(found[1]) * _SECONDS[found[2]]
    if not 0 < window_s <= _WINDOW_MAX_S:
        return invalid_request("completion_window", "must be a time up to 24h, such as 90s, 30m or 24h")
    metadata = body.get("metadata")
    if metadata is not None and not _is_metadata(metadata):
        return invalid_request("metadata", _METADATA_RULE)
    return Asked(
        endpoint=endpoint,
        input_file=file_id,
        window=window,
        window_s=window_s,
        metadata=b"" if metadata is None else _encode(metadata),
    )


def _is_metadata(given: object) -> bool:
    return (
        type(given) is dict
        and len(given) <= METADATA_PAIRS
        and all(
            len(name) <= METADATA_NAME and type(value) is str and len(value) <= METADATA_VALUE
            for name, value in given.items()
        )
    )


async def batch(edge: Edge, arrived: Arrived) -> Reply | Refuse | None:
    """`GET /v1/batches/{id}`."""
    found = await edge.desk.find(arrived.caller, arrived.argument)
    return found if isinstance(found, Refuse) else plain_answer(_batch(found), arrived.request_id)


async def batches(edge: Edge, arrived: Arrived) -> Reply | Refuse | None:
    """`GET /v1/batches?limit=…&after=…`: newest first."""
    said = _query(arrived.wire.raw_query, _BATCHES_QUERY)
    if isinstance(said, Refuse):
        return said
    limit = _limit(said, PAGE, PAGE_MAX)
    if isinstance(limit, Refuse):
        return limit
    page = await edge.desk.page(arrived.caller, said.get("after"), limit)
    if isinstance(page, Refuse):
        return page
    return page_answer([_batch(one) for one in page[0]], arrived.request_id, more=page[1])


def _query(raw: bytes, names: Sequence[str]) -> dict[str, str] | Refuse:
    said: dict[str, str] = {}
    for pair in raw.decode("latin-1").split("&") if raw else ():
        found = _QUERY.fullmatch(pair)
        if found is None or found["name"] in said or found["name"] not in names:
            return invalid_request("query", f"must hold {', '.join(names[:-1])} and {names[-1]}, each at most once")
        said[found["name"]] = found["value"]
    return said


def _limit(said: dict[str, str], unsaid: int, most: int) -> int | Refuse:
    limit = said.get("limit", str(unsaid))
    if not limit.isascii() or not limit.isdigit() or not 1 <= int(limit) <= most:
        return invalid_request("limit", f"must be 1 to {most}")
    return int(limit)


async def cancel(edge: Edge, arrived: Arrived) -> Reply | Refuse | None:
    """`POST /v1/batches/{id}/cancel`."""
    found = await edge.desk.cancel(arrived.caller, arrived.argument)
    return found if isinstance(found, Refuse) else plain_answer(_batch(found), arrived.request_id)


def _batch(batch: Batch) -> dict[str, Any]:
    output, errors = result_files(batch)

    def at(instant: int | None, status: BatchStatus | None = None) -> int | None:
        return None if instant is None or status not in (None, batch.status) else instant // MICRO

    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "errors": None,
        "input_file_id": batch.input_file or "",
        "completion_window": batch.window,
        "status": batch.status.value,
        "output_file_id": output,
        "error_file_id": errors,
        "created_at": at(batch.created_at),
        "in_progress_at": at(batch.in_progress_at),
        "expires_at": at(batch.expires_at),
        "finalizing_at": at(batch.finalizing_at),
        "completed_at": at(batch.ended_at, BatchStatus.COMPLETED),
        "failed_at": at(batch.ended_at, BatchStatus.FAILED),
        "expired_at": at(batch.ended_at, BatchStatus.EXPIRED),
        "cancelling_at": at(batch.cancelling_at),
        "cancelled_at": at(batch.ended_at, BatchStatus.CANCELLED),
        "request_counts": {"total": batch.total, "completed": batch.completed, "failed": batch.failed},
        "metadata": msgspec.Raw(batch.metadata) if batch.metadata else None,
    }
