"""One record's proof, verified: C2SP tlog-proof, without extra data."""

from __future__ import annotations

import re

from terraflow.verifier.formats import Checkpoint, LogKey, Refused, decode_base64, open_checkpoint
from terraflow.verifier.tree import leaf_hash, root_of_path

_HEAD = re.compile(r"c2sp\.org/tlog-proof@v1\nindex (0|[1-9][0-9]{0,15})\n((?:[A-Za-z0-9+/]{43}=\n){0,63})\n")


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
