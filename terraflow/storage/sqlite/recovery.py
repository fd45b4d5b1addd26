"""What a crash left behind."""

from __future__ import annotations

from terraflow.ports.store import Orphan, RecordedEntry, Reservation
from terraflow.storage.sqlite.connection import Database
from terraflow.storage.sqlite.log import INDEX_MASK
from terraflow.storage.sqlite.money import Money


def find_orphans(database: Database, money: Money) -> list[Orphan]:
    """Requests with an intent and no outcome, or with a reservation left open; with all that closing them needs.

    Reads committed rows: on a running plane, requests in flight are among them.
    """
    found = []
    for (request_id,) in database.read("orphaned_requests"):
        newest = database.read("newest_leaf_of_request", (request_id,))
        if not newest:
            continue
        position, kind, data, application, tenant = newest[0]
        keyed = database.read("running_claim_of_request", (request_id,))
        settled = database.read("posted_of_request", (request_id + "/", request_id + "0", request_id))
        found.append(
            Orphan(
                entry=RecordedEntry(position & INDEX_MASK, kind, data),
                tenant=tenant,
                application=application,
                request_id=request_id,
                open_reservations=_open_reservations(database, money, request_id),
                settled=settled[0][0],
                keyed=keyed[0][0] if keyed else None,
            )
        )
    return sorted(found, key=lambda orphan: (orphan.tenant, orphan.entry.index))


def _open_reservations(database: Database, money: Money, request_id: str) -> tuple[Reservation, ...]:
    rows = database.read("open_reservations_of_request", (request_id,))
    return tuple(
        Reservation(no, request_id, tenant, capability, amount, bool(chargeable), money.lines(lines))
        for no, tenant, capability, amount, chargeable, lines in rows
    )
