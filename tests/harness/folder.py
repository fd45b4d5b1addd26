"""A data folder: made, given bundles and keys by the product's own functions, and looked into while no plane runs."""

from __future__ import annotations

import base64
import json
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from terraflow.app.keys import new_key
from terraflow.app.runtime import SystemClock
from terraflow.contracts.document import PAYLOAD_TYPE, BundleDocument
from terraflow.contracts.verify import sign_bundle
from terraflow.core.signature import sign_envelope
from terraflow.identity.keys import key_digest, make_key
from terraflow.ports.store import ApiKey
from terraflow.storage.sqlite.folder import DATABASE
from terraflow.storage.sqlite.tools import open_tools
from tests.harness.bundle import APPLICATION, TENANT, Json


class DataFolder:
    """One data folder with a bundle-signing key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._clock = SystemClock()
        self._sequence = 0
        with open_tools(path, make=True):
            pass
        self._signing = new_key(path / "keys" / "bundle.pem")

    def activate(self, document: Json) -> None:
        """Sign a document as the next in sequence, and make it the active bundle."""
        self._sequence += 1
        typed = msgspec.convert(document | {"sequence": self._sequence}, BundleDocument)
        with open_tools(self.path) as tools:
            assert tools.activate_bundle(sign_bundle(typed, self._signing), self._sequence, self._clock.now())

    def tamper_with_bundle(self, change: str, sequence: int = 1) -> None:
        """Put a bundle in the database that must not be enforced, by its own statement: nobody activates such a one."""
        with open_tools(self.path) as tools:
            envelope = json.loads(tools.active_bundle() or b"")
        if change == "signature":
            signature = bytearray(base64.b64decode(envelope["signatures"][0]["sig"]))
            signature[7] ^= 1
            envelope["signatures"][0]["sig"] = base64.b64encode(signature).decode()
        elif change == "payload":
            payload = base64.b64decode(envelope["payload"])
            envelope["payload"] = base64.b64encode(payload.replace(b'"version":1', b'"version":2')).decode()
        raw = json.dumps(envelope, sort_keys=True, separators=(",", ":")).encode()
        if change == "other key":
            raw = sign_envelope(base64.b64decode(envelope["payload"]), PAYLOAD_TYPE, Ed25519PrivateKey.generate())
        elif change == "dialect":
            payload = base64.b64decode(envelope["payload"]).replace(b'"dialect":"current"', b'"dialect":"self_hosted"')
            raw = sign_envelope(payload, PAYLOAD_TYPE, self._signing)
        elif change == "no envelope":
            raw = b"not an envelope"
        statement = "INSERT OR REPLACE INTO bundle (sequence, envelope, activated_at) VALUES (?, ?, 0)"
        with self.database() as database:
            database.execute(statement, (sequence, raw))

    def issue_key(self, tenant: str = TENANT, application: str = APPLICATION) -> str:
        """A new API key."""
        made = make_key(secrets.token_urlsafe, secrets.token_hex)
        with open_tools(self.path) as tools:
            tools.add_key(ApiKey(made.id, tenant, application, made.digest, self._clock.now()))
        return made.text

    def revoke(self, api_key: str) -> None:
        """End an API key."""
        [(key_id,)] = self.rows("SELECT id FROM api_key WHERE digest = ?", key_digest(api_key.encode()))
        with open_tools(self.path) as tools:
            assert tools.revoke_key(key_id, self._clock.now())

    def erase(self, request_id: str) -> int:
        """Remove the stored answer of a request; how many there were."""
        with open_tools(self.path) as tools:
            erased, _ = tools.erase(now=self._clock.now(), request_id=request_id)
        return erased.answers

    @contextmanager
    def database(self) -> Iterator[sqlite3.Connection]:
        """The database file, for looking and for tampering."""
        with closing(sqlite3.connect(self.path / DATABASE, timeout=5)) as database, database:
            yield database

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """What a query finds."""
        with self.database() as database:
            return database.execute(query, values).fetchall()

    def money(self, tenant: str = TENANT) -> tuple[int, int]:
        """Micro-dollars reserved and posted in a tenant, over all months."""
        query = (
            "SELECT sum(reserved), sum(posted) FROM counter WHERE tenant = ? AND level = 'tenant' AND window = 'month'"
        )
        reserved, posted = self.rows(query, tenant)[0]
        return reserved or 0, posted or 0

    def loose_ends(self) -> list[str]:
        """What no stopped plane may leave: money that is reserved or that no outcome names, requests without an
        outcome."""
        found = [f"{row[0]} has no outcome" for row in self.rows("SELECT request_id FROM open_request")]
        recorded: dict[str, int] = {}
        for (data,) in self.rows("SELECT data FROM leaf WHERE kind = 'outcome'"):
            outcome = json.loads(data)
            recorded[outcome["tenant"]] = recorded.get(outcome["tenant"], 0) + outcome.get("cost_micro_usd", 0)
        for tenant, cost in recorded.items():
            reserved, posted = self.money(tenant)
            if (reserved, posted) != (0, cost):
                found.append(f"{tenant}: {reserved} reserved, {posted} posted, and the outcomes say {cost}")
        return found

    def files_with(self, *texts: str) -> list[str]:
        """Files that hold any of the texts, in any place."""
        wanted = [text.encode() for text in texts]
        files = [path for path in self.path.rglob("*") if path.is_file()]
        return [path.name for path in files if any(text in path.read_bytes() for text in wanted)]
