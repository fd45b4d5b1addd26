"""The state of a data folder, read beside a running plane or without one: what is in force, recorded and spent.

1. Reading changes nothing, and takes no lock that a plane waits for.
2. What is wrong is told, never raised: a folder whose key is lost still shows the rest.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from terraflow.app.keys import KeyUnusable, read_private_key
from terraflow.app.log_key import log_key_path, require_signer
from terraflow.app.notices import find_notices
from terraflow.app.opening import CannotStart, bundle_keys
from terraflow.app.settings import Settings, read_secret
from terraflow.contracts.bundle import Bundle
from terraflow.contracts.decode import BundleRejected
from terraflow.contracts.document import BundleDocument
from terraflow.contracts.verify import read_unverified, verify_bundle
from terraflow.contracts.workload import instant
from terraflow.core.budget import Level, Window
from terraflow.core.outcome import Problem
from terraflow.core.types import Instant, parse_usd
from terraflow.spend.windows import window_key
from terraflow.storage.sqlite.folder import plane_runs
from terraflow.storage.sqlite.tools import Tools, open_tools


class BudgetState(msgspec.Struct, frozen=True, kw_only=True):
    """A budget, or a counter without a limit, in its current window; amounts in micro-dollars."""

    level: str
    of: str
    window: str
    window_key: str
    limit_micro_usd: int | None
    reserved_micro_usd: int
    posted_micro_usd: int
    left_micro_usd: int | None


class TenantState(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant; `signed` counts the records that the newest checkpoint covers, `root` is its root hash in base64."""

    tenant: str
    records: int
    signed: int
    root: str | None
    keys: int
    answers: int
    budgets: list[BudgetState]


class BundleState(msgspec.Struct, frozen=True, kw_only=True):
    """The bundle activated last. `digest` is None of one that this folder's keys do not verify."""

    sequence: int
    digest: str | None
    issued: str
    expires: str
    expired: bool
    notices: list[Problem]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A data folder. `troubles` are sentences about what keeps a plane from starting or from being ready."""

    data_dir: str
    plane_runs: bool
    open_requests: int
    bundle: BundleState | None
    tenants: list[TenantState]
    troubles: list[str]


def read_status(settings: Settings, now: Instant) -> Status:
    """The state as of now. Raises DatabaseMissing, DatabaseUnusable, StoreUnavailable."""
    folder = Path(settings.data_dir)
    troubles: list[str] = []
    with open_tools(folder) as tools:
        bundle, document = _bundle(settings, tools, now, troubles)
        _check_log_key(settings, tools, troubles)
        keys, answers, logs = tools.count_keys(), tools.count_answers(now), tools.ledger.tenants()
        named = [] if document is None else [entry.id for entry in document.tenants]
        tenants = [
            _tenant(tools, tenant, document, keys.get(tenant, 0), answers.get(tenant, 0), now)
            for tenant in dict.fromkeys([*named, *logs, *keys])
        ]
        return Status(
            data_dir=str(folder),
            plane_runs=plane_runs(folder),
            open_requests=tools.count_open_requests(),
            bundle=bundle,
            tenants=tenants,
            troubles=troubles,
        )


def _bundle(
    settings: Settings, tools: Tools, now: Instant, troubles: list[str]
) -> tuple[BundleState | None, BundleDocument | None]:
    envelope = tools.active_bundle()
    if envelope is None:
        troubles.append("no bundle is in force: every request is refused")
        return None, None
    try:
        found: Bundle | None = verify_bundle(envelope, bundle_keys(settings), now, active=True)
    except (BundleRejected, CannotStart, KeyUnusable) as trouble:
        troubles.append(f"the bundle in force does not verify: {trouble}")
        found = None
    try:
        document = read_unverified(envelope) if found is None else found.document
    except BundleRejected:
        return None, None
    expired = instant(document.expires) <= now
    if expired:
        troubles.append("the bundle in force has expired: every request is refused")
    state = BundleState(
        sequence=document.sequence,
        digest=None if found is None else found.digest,
        issued=document.issued.isoformat(),
        expires=document.expires.isoformat(),
        expired=expired,
        notices=[] if found is None else list(find_notices(found, now, read_secret)),
    )
    return state, document


def _check_log_key(settings: Settings, tools: Tools, troubles: list[str]) -> None:
    path = log_key_path(settings)
    signed = any(tools.ledger.checkpoint(tenant) is not None for tenant in tools.ledger.tenants())
    if not signed and not path.exists():
        return
    try:
        require_signer(path, read_private_key(path).public_key(), tools.ledger)
    except KeyUnusable as trouble:
        troubles.append(str(trouble))


def _tenant(
    tools: Tools, tenant: str, document: BundleDocument | None, keys: int, answers: int, now: Instant
) -> TenantState:
    note = tools.ledger.checkpoint(tenant)
    lines = [] if note is None else note.decode("utf-8", "replace").split("\n")
    known = len(lines) > 2 and lines[1].isdigit()
    return TenantState(
        tenant=tenant,
        records=tools.ledger.size(tenant),
        signed=int(lines[1]) if known else 0,
        root=lines[2] if known else None,
        keys=keys,
        answers=answers,
        budgets=_budgets(tools, tenant, document, now),
    )


def _budgets(tools: Tools, tenant: str, document: BundleDocument | None, now: Instant) -> list[BudgetState]:
    limits = {
        (entry.level.value, entry.of, entry.window.value): parse_usd(entry.limit_usd)
        for entry in (() if document is None else document.budgets)
        if entry.tenant == tenant
    }
    current = {window.value: window_key(window, now) for window in Window}
    used = {
        (use.level, use.of, use.window): (use.reserved, use.posted)
        for use in tools.budgets(tenant)
        if current.get(use.window) == use.window_key
    }
    levels = [level.value for level in Level]
    found = []
    for level, of, window in sorted({*limits, *used}, key=lambda key: (levels.index(key[0]), *key[1:])):
        limit = limits.get((level, of, window))
        reserved, posted = used.get((level, of, window), (0, 0))
        found.append(
            BudgetState(
                level=level,
                of=of,
                window=window,
                window_key=current[window],
                limit_micro_usd=limit,
                reserved_micro_usd=reserved,
                posted_micro_usd=posted,
                left_micro_usd=None if limit is None else max(0, limit - reserved - posted),
            )
        )
    return found
