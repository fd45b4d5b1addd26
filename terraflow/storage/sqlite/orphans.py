"""What a crash left behind."""

from __future__ import annotations

from terraflow.ports.store import Orphan, RecordedEntry, Reservation
from terraflow.storage.sqlite.connection import Database
from terraflow.storage.sqlite.log import INDEX_MASK
from terraflow.storage.sqlite.money import Money


def find_orphans(database: Database, money: Money) -> list[Orphan]:
    """Requests that have not ended, in the order of their leaves, with all that closing them needs.

    Reads committed rows: on a running plane, requests in flight are among them.
    """
    found = []
    for (request_id,) in database.read("orphaned_requests"):
        newest = database.read("newest_leaf_of_request", (request_id,))
        claim = database.read("running_claim_of_request", (request_id,))
        entry = None
        if newest:
            position, kind, data, application, tenant = newest[0]
            entry = RecordedEntry(position & INDEX_MASK, kind, data)
        elif claim:
            _, tenant, application = claim[0]
        else:
            continue
        made = database.read("reservations_of_request", (request_id + "/", request_id + "0", request_id))
        reservations, settled = made[0]
        found.append(
            Orphan(
                entry=entry,
                tenant=tenant,
                application=application,
                request_id=request_id,
                open_reservations=_open_reservations(database, money, request_id),
                reservations=reservations,
                settled=settled,
                keyed=claim[0][0] if claim else None,
            )
        )
    return sorted(found, key=lambda orphan: (orphan.tenant, -1 if orphan.entry is None else orphan.entry.index))


def _open_reservations(database: Database, money: Money, request_id: str) -> tuple[Reservation, ...]:
    rows = database.read("open_reservations_of_request", (request_id,))
    return tuple(
        Reservation(no, request_id, tenant, capability, amount, bool(chargeable), money.lines(lines))
        for no, tenant, capability, amount, chargeable, lines in rows
    )
