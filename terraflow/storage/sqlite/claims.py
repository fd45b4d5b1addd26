"""Idempotency keys."""

from __future__ import annotations

from terraflow.core.types import Instant
from terraflow.ports.store import Claim, Claimed, Conflicting, Finished, Held, KeyClaim, KeyOutcome
from terraflow.storage.sqlite.answers import Answers
from terraflow.storage.sqlite.connection import Database


class Claims:
    """Claiming and ending keys, inside a transaction."""

    def __init__(self, database: Database, answers: Answers) -> None:
        self._database = database
        self._answers = answers

    def claim(self, claim: KeyClaim, now: Instant) -> Claim:
        """Take the key, or say who has it."""
        held = self._database.write("find_claim", (claim.tenant, claim.application, claim.key)).fetchone()
        if held is not None:
            body_digest, request_id, expires_at, status, reason = held
            if expires_at > now:
                if body_digest != claim.body_digest:
                    return Conflicting()
                if status is None:
                    return Held(request_id)
                return Finished(request_id, status, reason, self._answers.of_request(claim.tenant, request_id, now))
        self._database.write(
            "take_claim",
            (claim.tenant, claim.application, claim.key, claim.body_digest, claim.request_id, claim.expires_at),
        )
        return Claimed()

    def end(self, key: KeyOutcome) -> None:
        """Keep the outcome for replay, or free the key. A key that expired and is another's by now stays
        theirs.
        """
        held = (key.tenant, key.application, key.key, key.request_id)
        if key.keep:
            self._database.write("keep_claim", (key.status, key.reason, *held))
        else:
            self._database.write("free_claim", held)
