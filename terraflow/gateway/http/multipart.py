"""A form with a file in it, `multipart/form-data` as clients send it (RFC 7578), and nothing beyond that.

1. No text before the first boundary, no nested form, no coding of a part: two readers could take these differently.
2. Problems name a field or the rule; nothing of the form is repeated.
"""

from __future__ import annotations

import re

import msgspec

from terraflow.core.outcome import Refuse, invalid_request

PARTS_MAX = 8
PART_HEAD_MAX = 2_048

_TYPE = re.compile(
    rb"multipart/form-data\s*;\s*boundary=(?:\"([0-9A-Za-z'()+_,./:=? -]{1,70})\"|([0-9A-Za-z'+_.-]{1,70}))\s*",
    re.IGNORECASE,
)
_NAME = re.compile(rb';\s*name="([^"\r\n]*)"', re.IGNORECASE)
_FILENAME = re.compile(rb';\s*filename="((?:[^"\\\r\n]|\\.)*)"', re.IGNORECASE)
_MALFORMED = invalid_request("body", "must be a form of multipart/form-data")


class Part(msgspec.Struct, frozen=True):
    """A field of the form; `filename` None: it is no file."""

    filename: str | None
    data: bytes


def boundary_of(content_type: bytes | None) -> bytes | None:
    """The boundary that a Content-Type names, None when it is no form's."""
    found = None if content_type is None else _TYPE.fullmatch(content_type)
    return None if found is None else found[1] or found[2]


def parse_form(body: bytes, boundary: bytes) -> dict[str, Part] | Refuse:
    """The fields by their names, each given once; INVALID_REQUEST."""
    start, between = b"--" + boundary, b"\r\n--" + boundary
    if not body.startswith(start):
        return _MALFORMED
    form: dict[str, Part] = {}
    at = len(start)
    while len(form) < PARTS_MAX and (end := body.find(between, at)) >= 0:
        read = _part(body, at, end)
        if read is None or read[0] in form:
            return _MALFORMED
        form[read[0]] = read[1]
        at = end + len(between)
    return form if body[at : at + 5] in (b"--", b"--\r\n") else _MALFORMED


def _part(body: bytes, start: int, end: int) -> tuple[str, Part] | None:
    """The field between two places of the body, whose bytes are copied once."""
    head_end = body.find(b"\r\n\r\n", start, min(end, start + PART_HEAD_MAX))
    if head_end < 0 or not body.startswith(b"\r\n", start):
        return None
    said: dict[bytes, bytes] = {}
    for line in body[start + 2 : head_end].split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if not colon or name.lower() in said:
            return None
        said[name.lower()] = value.strip()
    disposition = said.get(b"content-disposition", b"")
    if not disposition.lower().startswith(b"form-data") or b"content-transfer-encoding" in said:
        return None
    named, file = _NAME.search(disposition), _FILENAME.search(disposition)
    if named is None:
        return None
    try:
        name_text = named[1].decode()
        filename = None if file is None else re.sub(rb"\\(.)", rb"\1", file[1]).decode()
    except UnicodeDecodeError:
        return None
    return name_text, Part(filename, body[head_end + 4 : end])
