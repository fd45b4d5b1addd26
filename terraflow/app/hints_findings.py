"""What `terraflow hints doctor` can find: a table of codes, each with its severity and the reader's next step.

1. A code is permanent: pipelines look for it. It is retired, never given another meaning. Codes that the reference's
   doctor has mean here what they mean there.
2. The exit code is the worst severity's: 0 for OK and INFO, 1 for WARN, 2 for FAIL.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import msgspec


class Severity(IntEnum):
    """How bad a finding is."""

    OK = 0
    INFO = 1
    WARN = 2
    FAIL = 3


class Known(NamedTuple):
    """A row of the table."""

    severity: Severity
    check: str
    next: str
    """The reader's next step; empty where none is needed."""


OK, INFO, WARN, FAIL = Severity.OK, Severity.INFO, Severity.WARN, Severity.FAIL

# fmt: off
KNOWN: dict[str, Known] = {
    "SV001": Known(FAIL, "server", "Start it with `terraflow hints serve`, or give its address with --endpoint."),
    "SV002": Known(FAIL, "server", "Read the service's log: it is starting, stopping, or cannot serve."),
    "SV003": Known(OK, "server", ""),
    "TL001": Known(INFO, "tls", "Nothing, as long as only this machine reaches it."),
    "TL002": Known(WARN, "tls", "Give tls_cert_file and tls_key_file, or keep it behind a proxy that ends TLS."),
    "TL003": Known(FAIL, "tls", "Renew the certificate; the service reads the file again by itself."),
    "TL004": Known(WARN, "tls", "Renew the certificate; the service reads the file again by itself."),
    "TL005": Known(FAIL, "tls", "Give the authority that signed it with --ca, the name that it is for with"
                                " --server-name, and --client-cert where the service wants one."),
    "TL006": Known(OK, "tls", ""),
    "HL001": Known(FAIL, "health", "Compare http_host and http_port with --public; then read the service's log."),
    "HL002": Known(FAIL, "health", "Wait until it has restored its snapshot; then read the service's log."),
    "HL003": Known(OK, "health", ""),
    "SN001": Known(FAIL, "snapshot", "Compare internal_host and internal_port with --internal."),
    "SN002": Known(WARN, "snapshot", "See whether something else answers at this address."),
    "SN003": Known(INFO, "snapshot", "Nothing with a service whose internal listener has no token."),
    "SN004": Known(OK, "snapshot", ""),
    "SN005": Known(WARN, "snapshot", "Give the internal listener's token with --token-file: by default it is"
                                     " internal.token in the service's data folder."),
    "FD001": Known(WARN, "feeds", "Configure a feed for each engine ([[feeds]], or `terraflow hints subscribe`), or"
                                  " send a request through an engine and look again."),
    "FD002": Known(WARN, "feeds", "See whether the engine runs and publishes its KV events; then read its feed's log."),
    "FD003": Known(OK, "feeds", ""),
    "FD004": Known(INFO, "feeds", "Let the feed scrape the engine's metrics, so that loaded replicas are spared."),
    "FD005": Known(WARN, "feeds", "Read the feed's log. A replay endpoint lets it fill gaps; loras names adapters."),
    "FD006": Known(WARN, "feeds", "See whether the engine runs and whether the feed's endpoint is its own."),
    "FD007": Known(WARN, "feeds", "Give the feed the engine's replay endpoint (replay_endpoint), so that gaps are"
                                  " filled; it heals when the engine starts anew or clears its cache."),
    "PL001": Known(FAIL, "policy", "Compare internal_host and internal_port with --internal."),
    "PL002": Known(OK, "policy", ""),
    "PL003": Known(WARN, "policy", "Read the service's log."),
    "PB001": Known(FAIL, "probe", "Compare internal_host and internal_port with --internal."),
    "PB002": Known(OK, "probe", ""),
    "PB003": Known(WARN, "probe", "Read the service's log."),
    "PB004": Known(FAIL, "probe", "Restart the service; if the stage fails again, report it with this output."),
    "CT001": Known(WARN, "tenants", "Raise quota.maxIndexEntries of its CacheTenant, or maxIndexEntries of what is"
                                    " posted, or accept that its oldest go."),
    "CT002": Known(OK, "tenants", ""),
    "CP001": Known(INFO, "policies", "Nothing: the defaults hold. Write a CachePolicy for what should differ."),
    "CP002": Known(OK, "policies", ""),
    "CP004": Known(FAIL, "policies", "Correct the manifest. A running service keeps what was in force before."),
    "CP005": Known(FAIL, "policies", "Give a folder that exists and can be read, with --manifests or policy_dir."),
    "CP006": Known(FAIL, "policies", "Read the service's log for file, line and field, or lint its folder with"
                                     " --manifests."),
    "PD001": Known(WARN, "topologies", "Add the annotation inferencecache.io/hash-scheme with the engines' scheme."),
    "PD002": Known(WARN, "topologies", "Label the replicas in replicas.yaml, or in their feeds' settings."),
    "PD003": Known(OK, "topologies", ""),
}
# fmt: on


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding, as it is printed."""

    code: str
    status: str
    check: str
    resource: str
    message: str
    next: str


def found(code: str, resource: str, message: str, step: str = "") -> Finding:
    """A finding of the table. `step` is the next step where more is known than the table has."""
    known = KNOWN[code]
    return Finding(
        code=code,
        status=known.severity.name,
        check=known.check,
        resource=resource,
        message=message,
        next=step or known.next,
    )


class Summary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many findings there are of each severity, and the exit code."""

    ok: int
    info: int
    warn: int
    fail: int
    exit_code: int


class Checkup(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was found, in the order of the checks."""

    summary: Summary
    findings: tuple[Finding, ...]


def summed(findings: list[Finding]) -> Checkup:
    """The findings with their summary."""
    counts = dict.fromkeys(Severity, 0)
    for finding in findings:
        counts[Severity[finding.status]] += 1
    worst = max((severity for severity, count in counts.items() if count), default=OK)
    summary = Summary(
        ok=counts[OK], info=counts[INFO], warn=counts[WARN], fail=counts[FAIL], exit_code=max(worst - INFO, 0)
    )
    return Checkup(summary=summary, findings=tuple(findings))
