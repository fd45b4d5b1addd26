"""What must hold of a database after a crash, judged in plain SQL and by what was acknowledged."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from pathlib import Path

from terraflow.storage.sqlite.folder import DATABASE

INDEX_BITS = 40


class Acknowledged:
    """What a writer was told. A kill may cut the last line, which then says nothing."""

    def __init__(self) -> None:
        self.begun: dict[str, int] = {}
        self.done: dict[str, int | None] = {}

    def add(self, told: bytes) -> None:
        """The whole lines of `told`, but for the first, which only says that the writer is there."""
        whole = told[: told.rfind(b"\n") + 1]
        for line in whole.decode().splitlines()[1:]:
            word, *rest = line.split()
            if word == "begun":
                self.begun[rest[0]] = int(rest[1])
            elif word == "done":
                self.done[rest[0]] = None if rest[1] == "void" else int(rest[1])


def problems(folder: Path, acknowledged: Acknowledged) -> list[str]:
    """Every way in which the database breaks its promises; empty when it keeps them."""
    database = sqlite3.connect(folder / DATABASE)
    try:
        (sound,) = database.execute("PRAGMA integrity_check").fetchone()
        if sound != "ok":
            return ["the database is damaged"]
        return [
            *_gaps(database),
            *_wrong_hashes(database),
            *_lost_or_doubled(database, acknowledged),
            *_money(database, acknowledged),
            *_counters(database),
        ]
    finally:
        database.close()


def _gaps(database: sqlite3.Connection) -> list[str]:
    rows = database.execute(
        "SELECT position >> 40, count(*), min(position & 0xFFFFFFFFFF), max(position & 0xFFFFFFFFFF) "
        "FROM leaf GROUP BY 1"
    )
    return [f"tenant {no} has gaps" for no, count, first, last in rows if first != 0 or last != count - 1]


def _wrong_hashes(database: sqlite3.Connection) -> list[str]:
    rows = database.execute("SELECT position, data, hash FROM leaf")
    return [f"leaf {p} does not hash" for p, data, h in rows if hashlib.sha256(b"\0" + data).digest() != h]


def _lost_or_doubled(database: sqlite3.Connection, acknowledged: Acknowledged) -> list[str]:
    count: dict[tuple[str, str], int] = {}
    for request, kind in database.execute("SELECT request_id, kind FROM leaf"):
        count[request, kind] = count.get((request, kind), 0) + 1
    found = [f"{request} has {n} leaves of kind {kind}" for (request, kind), n in count.items() if n > 1]
    found += [f"the intent of {r} is lost" for r in acknowledged.begun if (r, "intent") not in count]
    found += [f"the outcome of {r} is lost" for r in acknowledged.done if (r, "outcome") not in count]
    return found


def _money(database: sqlite3.Connection, acknowledged: Acknowledged) -> list[str]:
    rows = database.execute("SELECT request_id, amount, state, posted FROM reservation")
    kept = {request: (amount, state, posted) for request, amount, state, posted in rows}
    found = []
    for request, amount in acknowledged.begun.items():
        if request not in kept or kept[request][0] != amount:
            found.append(f"the reservation of {request} is lost")
    for request, posted in acknowledged.done.items():
        expected = ("voided", 0) if posted is None else ("posted", posted)
        if kept.get(request, (0, "", 0))[1:] != expected:
            found.append(f"the settlement of {request} is lost")
    ended = {r for (r,) in database.execute("SELECT request_id FROM leaf WHERE kind = 'outcome'")}
    opened = {r for (r,) in database.execute("SELECT request_id FROM open_request")}
    for request, (_, state, _) in kept.items():
        if (state == "reserved") is (request in ended) or (request in opened) is (request in ended):
            found.append(f"{request} is half settled")
    return found


def _counters(database: sqlite3.Connection) -> list[str]:
    kept = {
        no: (reserved, posted) for no, reserved, posted in database.execute("SELECT id, reserved, posted FROM counter")
    }
    summed = dict.fromkeys(kept, (0, 0))
    for amount, lines, state, posted in database.execute("SELECT amount, lines, state, posted FROM reservation"):
        for no, _limit in json.loads(lines):
            reserved_sum, posted_sum = summed[no]
            summed[no] = (reserved_sum + (amount if state == "reserved" else 0), posted_sum + posted)
    return [f"counter {no} is {kept[no]} and should be {summed[no]}" for no in kept if kept[no] != summed[no]]
