"""The bundle: the signed snapshot of everything the plane enforces.

1. A `Bundle` verifies itself while it is built: from an envelope whose signature held and whose references all
   resolve. There is no other way to have one.
2. It is immutable, and indexed once, so that a request's lookups are dictionary reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import NoReturn

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from terraflow.contracts.capability import Capability
from terraflow.contracts.compiled import compile_capability
from terraflow.contracts.decode import BundleRejected, decode_document
from terraflow.contracts.document import PAYLOAD_TYPE, BundleDocument
from terraflow.contracts.exact import PolicyEvaluationError
from terraflow.contracts.references import InsideBoundary, find_notices, find_problems
from terraflow.contracts.workload import Workload, build_workload, instant
from terraflow.core.canonical import NotCanonical, parse_canonical
from terraflow.core.outcome import Problem
from terraflow.core.signature import SignatureInvalid, verify_envelope
from terraflow.core.types import Instant

ENVELOPE_BYTES_MAX = 16 * 1024 * 1024
"""Thousands of workloads; bounds what a hostile file can cost before its signature is checked."""


class Application(msgspec.Struct, frozen=True):
    """What an application may call."""

    id: str
    tenant: str
    workloads: frozenset[str]
    default_workload: str


class Bundle:
    """A verified bundle. Keys of `applications` and `workloads` are (tenant, id); instants are microseconds.

    `digest` is the SHA-256 of the payload in hexadecimal. `notices` are what its author should know, and no ground
    to refuse it.
    """

    __slots__ = (
        "applications",
        "capabilities",
        "digest",
        "document",
        "expires_at",
        "issued_at",
        "notices",
        "sequence",
        "workloads",
    )

    sequence: int
    digest: str
    issued_at: Instant
    expires_at: Instant
    document: BundleDocument
    applications: Mapping[tuple[str, str], Application]
    workloads: Mapping[tuple[str, str], Workload]
    capabilities: Mapping[str, Capability]
    notices: tuple[Problem, ...]

    def __init__(
        self,
        envelope: bytes,
        keys: Mapping[str, Ed25519PublicKey],
        now: Instant,
        *,
        active: bool = False,
        inside_boundary: InsideBoundary | None = None,
    ) -> None:
        """See `verify.verify_bundle`."""
        document, digest = _read(envelope, keys)
        expires_at = instant(document.expires)
        problems = find_problems(document, inside_boundary)
        if not active and expires_at <= now:
            problems = (*problems, Problem("expires", "has passed: sign the bundle anew with a later one"))
        if problems:
            raise BundleRejected(problems)
        compiled = tuple(compile_capability(capability) for capability in document.capabilities)
        contracts = {contract.id: contract for contract in document.contracts}
        try:
            workloads = {
                (entry.tenant, entry.id): build_workload(entry, contracts[entry.contract], document, compiled)
                for entry in document.workloads
            }
        except PolicyEvaluationError as error:
            raise BundleRejected((Problem("workloads", str(error)),)) from error
        applications = {
            (entry.tenant, entry.id): Application(
                entry.id, entry.tenant, frozenset(entry.workloads), entry.default_workload
            )
            for entry in document.applications
        }
        capabilities = {capability.id: capability for capability in document.capabilities}
        put = object.__setattr__
        put(self, "sequence", document.sequence)
        put(self, "digest", digest)
        put(self, "issued_at", instant(document.issued))
        put(self, "expires_at", expires_at)
        put(self, "document", document)
        put(self, "applications", MappingProxyType(applications))
        put(self, "workloads", MappingProxyType(workloads))
        put(self, "capabilities", MappingProxyType(capabilities))
        put(self, "notices", find_notices(document))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a bundle is immutable")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a bundle is immutable")


def _read(envelope: bytes, keys: Mapping[str, Ed25519PublicKey]) -> tuple[BundleDocument, str]:
    if len(envelope) > ENVELOPE_BYTES_MAX:
        raise BundleRejected((Problem("$", f"is larger than {ENVELOPE_BYTES_MAX} bytes"),))
    try:
        payload = verify_envelope(envelope, keys, PAYLOAD_TYPE)
        value = parse_canonical(payload)
    except SignatureInvalid as error:
        raise BundleRejected((Problem("signature", str(error)),)) from None
    except NotCanonical as error:
        raise BundleRejected((Problem("payload", str(error)),)) from None
    return decode_document(value), sha256(payload).hexdigest()
