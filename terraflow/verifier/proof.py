"""One record or one request, verified without the rest of the log: C2SP tlog-proof, without extra data."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from terraflow.verifier.formats import (
    Checkpoint,
    LogKey,
    RecordName,
    Refused,
    decode_base64,
    open_checkpoint,
    parse_json,
)
from terraflow.verifier.packed import whole
from terraflow.verifier.tree import leaf_hash, root_of_path

_HEAD = re.compile(r"c2sp\.org/tlog-proof@v1\nindex (0|[1-9][0-9]{0,15})\n((?:[A-Za-z0-9+/]{43}=\n){0,63})\n")


class Proven(NamedTuple):
    """A request whose records are in the log: their indexes, and the size of the tree that has them."""

    request_id: str
    kinds: tuple[str, ...]
    indexes: tuple[int, ...]
    size: int


def verify_proof(entry: bytes, proof: bytes, key: LogKey, where: str = "proof") -> tuple[int, Checkpoint]:
    """The entry's index, and the signed checkpoint that covers it. Raises Refused."""
    try:
        found = _HEAD.match(proof.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise Refused(where, "is not a tlog-proof")
    path = [decode_base64(line) for line in found[2].split()]
    checkpoint = open_checkpoint(proof[len(found[0].encode()) :], key, where)
    hashes = [node for node in path if node is not None]
    root = root_of_path(leaf_hash(entry), int(found[1]), checkpoint.size, hashes)
    if len(hashes) != len(path) or root != checkpoint.root:
        raise Refused(where, "does not prove that this record is in the log")
    return int(found[1]), checkpoint


def verify_answer(raw: bytes, key: LogKey) -> Proven:
    """Verify what `GET /v1/evidence/{request_id}` answered: each record is in the log, and is shown as it is there.

    Raises Refused, also while a record has no proof yet.
    """
    try:
        answer = json.loads(raw)
        request_id, parts = answer["request_id"], list(answer["records"])
        shown = {"intent": answer["decision"], "outcome": answer["outcome"], "feedback": answer.get("feedback")}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Refused("answer", "is not evidence of a request") from None
    proven = [_verify_named(part, key, f"record {at}") for at, part in enumerate(parts)]
    records = {record["kind"]: whole(record, f"record {at}") for at, (record, _, _) in enumerate(proven)}
    if not proven or any(record["request_id"] != request_id for record, _, _ in proven):
        raise Refused("answer", "has records of another request, or none")
    kinds, indexes = tuple(record["kind"] for record, _, _ in proven), tuple(index for _, index, _ in proven)
    if list(indexes) != sorted(set(indexes)) or kinds.count("intent") > 1 or kinds.count("outcome") > 1:
        raise Refused("answer", "has its records out of order or twice")
    if any(records.get(kind) != record for kind, record in shown.items()):
        raise Refused("answer", "shows another decision, outcome or feedback than its records")
    return Proven(request_id, kinds, indexes, max(size for _, _, size in proven))


def _verify_named(part: Any, key: LogKey, where: str) -> tuple[dict[str, Any], int, int]:
    """As `_verify_part`; a refusal names the record, by what the answer says of it."""
    try:
        return _verify_part(part, key, where)
    except Refused as refused:
        match part:
            case {"index": int(index), "record": {"tenant": str(tenant), "request_id": str(request_id)}}:
                raise Refused(refused.where, refused.what, RecordName(tenant, index, request_id)) from None
        raise


def _verify_part(part: Any, key: LogKey, where: str) -> tuple[dict[str, Any], int, int]:
    match part:
        case {"entry": str(text), "inclusion_proof": str(proof), "record": shown, "index": index, "kind": str(kind)}:
            entry = decode_base64(text)
        case {"inclusion_proof": None}:
            raise Refused(where, "has no proof yet: no checkpoint covers it, ask again in a second")
        case _:
            raise Refused(where, "is not a record with its proof")
    if entry is None:
        raise Refused(where, "holds base64 that is not in its canonical encoding")
    found, checkpoint = verify_proof(entry, proof.encode(), key, where)
    record = parse_json(entry, where)
    if not isinstance(record, dict) or not {"kind", "request_id"} <= set(record):
        raise Refused(where, "is in the log, but is no record of a request")
    if (record, record["kind"], found) != (shown, kind, index):
        raise Refused(where, "is shown otherwise than it is in the log")
    return record, found, checkpoint.size
