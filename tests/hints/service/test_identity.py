"""Callers, and the tokens and certificates that say who they are."""

from __future__ import annotations

import asyncio
import base64
from contextlib import aclosing

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from terraflow.core.signature import pae
from terraflow.hints.deciding.look import Grounds
from terraflow.hints.http2.call import Peer
from terraflow.hints.http2.status import GrpcError, Status
from terraflow.hints.index.index import Index
from terraflow.hints.live import LiveHints
from terraflow.hints.service.access import Access
from terraflow.hints.service.identity import (
    SIGNED_AS,
    TOKEN_BYTES_MAX,
    Binding,
    Caller,
    Identities,
    TokenInvalid,
    names_of,
    sign_token,
    verify_token,
)
from terraflow.hints.service.metrics import Metrics
from terraflow.hints.service.rpcs import HintService
from terraflow.hints.service.writes import Writes
from terraflow.hints.wire import inferencecache_pb2 as pb
from terraflow.hints.words import Entry, Report
from tests.storage.makers import SetClock

KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
OTHER = Ed25519PrivateKey.from_private_bytes(b"o" * 32)
ENGINE = Binding(name="engines", tenants=("acme",), replicas=("engine-*", "solo"))
NOW = 1_000.0


def token(binding: Binding = ENGINE, expires: int = 2_000, key: Ed25519PrivateKey = KEY) -> str:
    return sign_token(binding, expires, key)


def test_a_producer_reports_for_its_own_tenants_and_replicas_only() -> None:
    caller = Caller(ENGINE)
    assert caller.may_report("acme", "engine-7/dp1")
    assert caller.may_report("acme", "solo")
    assert not caller.may_report("acme", "solo-2")
    assert not caller.may_report("acme", "other")
    assert not caller.may_report("rival", "engine-7")
    assert caller.sees("acme")
    assert not caller.sees("rival")


def test_a_reader_reports_nothing() -> None:
    caller = Caller(Binding(name="gateway", tenants=("*",)))
    assert caller.sees("anyone")
    assert not caller.produces
    assert not caller.may_report("anyone", "")


def test_a_token_says_what_was_signed() -> None:
    assert verify_token(token(), [OTHER.public_key(), KEY.public_key()], NOW) == (ENGINE, 2_000)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (token(key=OTHER), "no key that is trusted"),
        (token(expires=1_000), "expired"),
        ("", "not a token"),
        ("a.b", "not a token"),
        ("=.=", "not a token"),
        ("ä.ä", "not a token"),
        (token() + "A", "not a token|no key"),
        ("x" * (TOKEN_BYTES_MAX + 1), "too long"),
    ],
)
def test_any_other_token_is_refused(text: str, said: str) -> None:
    with pytest.raises(TokenInvalid, match=said):
        verify_token(text, [KEY.public_key()], NOW)


def test_every_changed_character_makes_a_token_invalid() -> None:
    good = token()
    for at, was in enumerate(good):
        changed = good[:at] + ("B" if was != "B" else "C") + good[at + 1 :]
        with pytest.raises(TokenInvalid):
            verify_token(changed, [KEY.public_key()], NOW)


def test_another_document_signed_by_the_same_key_is_no_token() -> None:
    payload = b'{"name":"x","tenants":["*"],"replicas":["*"],"expires":2000}'
    encode = lambda raw: base64.urlsafe_b64encode(raw).decode().rstrip("=")  # noqa: E731
    forged = f"{encode(payload)}.{encode(KEY.sign(pae('application/vnd.other', payload)))}"
    with pytest.raises(TokenInvalid, match="no key"):
        verify_token(forged, [KEY.public_key()], NOW)
    strange = b'{"name":"x","everything":true}'
    signed = f"{encode(strange)}.{encode(KEY.sign(pae(SIGNED_AS, strange)))}"
    with pytest.raises(TokenInvalid, match="says nothing"):
        verify_token(signed, [KEY.public_key()], NOW)


def test_a_kept_token_still_expires() -> None:
    identities = Identities(keys=[KEY.public_key()])
    header = f"Bearer {token()}"
    caller = identities.caller(header, (), NOW)
    assert identities.caller(header, (), NOW + 1) is caller
    with pytest.raises(TokenInvalid, match="expired"):
        identities.caller(header, (), 2_000.0)


def test_a_certificates_names_are_looked_up_in_order() -> None:
    identities = Identities(bindings=[ENGINE, Binding(name="spiffe://fleet/b", tenants=("b",))])
    assert identities.caller(None, ("unknown", "engines"), NOW).name == "engines"
    assert identities.caller(None, ("spiffe://fleet/b", "engines"), NOW).name == "spiffe://fleet/b"
    assert identities.caller(None, ("unknown",), NOW) is identities.anonymous
    certificate = {
        "subject": ((("organizationName", "Acme"),), (("commonName", "engines"),)),
        "subjectAltName": (("DNS", "engine-1"), ("IP Address", "10.0.0.1"), ("URI", "spiffe://fleet/b")),
    }
    assert names_of(certificate) == ("engine-1", "spiffe://fleet/b")
    assert names_of({"subject": certificate["subject"]}) == ("engines",)


def test_a_bad_token_is_not_taken_for_none() -> None:
    identities = Identities(bindings=[ENGINE], keys=[KEY.public_key()], insecure_producers=True)
    for header in ("Bearer x.y", "Basic abc", f"Bearer {token(key=OTHER)}"):
        with pytest.raises(TokenInvalid):
            identities.caller(header, ("engines",), NOW)


@pytest.mark.parametrize(
    ("readers", "producers", "sees", "reports"),
    [(True, False, True, False), (False, False, False, False), (True, True, True, True), (False, True, False, True)],
)
def test_anonymous_callers_may_what_the_settings_say(readers: bool, producers: bool, sees: bool, reports: bool) -> None:
    caller = Identities(anonymous_readers=readers, insecure_producers=producers).caller(None, (), NOW)
    assert (caller.sees("acme"), caller.may_report("acme", "r"), caller.known) == (sees, reports, False)


class Asked:
    """A call that shows a token."""

    def __init__(self, header: str) -> None:
        self._header = header
        self.peer = Peer("127.0.0.1")

    def get(self, name: str) -> str | None:
        return self._header if name == "authorization" else None


async def test_a_token_that_expires_ends_its_stream() -> None:
    clock = SetClock(int(NOW * 1e6))
    live = LiveHints(Grounds(index=Index()), clock)
    metrics = Metrics(live.index)
    access = Access(Identities(keys=[KEY.public_key()]), metrics, clock, 1, 1)
    update = pb.CacheStateUpdate(
        replica_id="solo", tenant_id="acme", model_id="m", hash_scheme="s", prefixes=[pb.PrefixEntry(prefix_hash=b"a")]
    )

    async def updates():  # type: ignore[no-untyped-def]
        yield update
        clock.time = 2_000_000_000
        yield update

    with pytest.raises(GrpcError, match="expired") as ended:
        await Writes(live, metrics, access).report_cache_state(updates(), Asked(f"Bearer {token()}"))  # type: ignore[arg-type]
    assert ended.value.status is Status.UNAUTHENTICATED
    assert live.index.keys("acme") == 1
    assert metrics.streams_open["reports"] == 0


async def test_a_readers_streams_end_when_its_token_does() -> None:
    clock = SetClock(int(NOW * 1e6))
    live = LiveHints(Grounds(index=Index()), clock)
    identities, metrics = Identities(keys=[KEY.public_key()]), Metrics(live.index)
    service = HintService(live, identities, metrics, report_streams_max=1, watch_streams_max=1)
    call = Asked(f"Bearer {token()}")
    entry = Entry("", [b"a"], [1], 1)
    report = Report(replica="r", model="m", tenant="acme", scheme="s", entries=(entry,))
    async with aclosing(service.stream_cache_events(pb.StreamEventsRequest(), call)) as events:  # type: ignore[type-var]
        first = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        live.ingest(report)
        assert (await first).prefix_hash == b"a"
        clock.time = 2_000_000_000
        live.evict("acme", "m", "r", b"a", None)
        with pytest.raises(StopAsyncIteration):
            await anext(events)
    assert live.index.changed is None


async def test_a_readers_metrics_end_when_its_token_does() -> None:
    clock = SetClock(int(NOW * 1e6))
    live = LiveHints(Grounds(index=Index()), clock)
    identities, metrics = Identities(keys=[KEY.public_key()]), Metrics(live.index)
    service = HintService(live, identities, metrics, report_streams_max=1, watch_streams_max=1)
    request = pb.StreamMetricsRequest(names=["inferencecache_server_up"])
    async with aclosing(service.stream_metrics(request, Asked(f"Bearer {token()}"))) as told:  # type: ignore[arg-type,type-var]
        assert (await anext(told)).name == "inferencecache_server_up"
        clock.time = 2_000_000_000
        with pytest.raises(StopAsyncIteration):
            await anext(told)
    assert metrics.streams_open["metrics"] == 0
