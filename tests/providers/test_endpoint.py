"""Where calls may go: the pure check, and the pool that connects to checked addresses alone."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terraflow.app.runtime import SystemClock
from terraflow.contracts.capability import Boundary, Dialect, ProviderKind
from terraflow.ports.upstream import Failure, ProviderFailure
from terraflow.providers.endpoint import Standing, decide_standing, parse_networks, parse_place, unwrap
from terraflow.providers.open import Opened, open_provider
from terraflow.providers.outbound import Outbound
from tests.providers.sample import call, capability, collect, reaching
from tests.providers.vendor import Vendor, says, streams

PRIVATE, EXTERNAL = Boundary.PRIVATE, Boundary.EXTERNAL
P, OUT, NO, NONE = Standing.PERMITTED, Standing.OUTSIDE, Standing.FORBIDDEN, Standing.UNRESOLVED
NETWORKS = parse_networks(["10.0.0.0/8", "192.168.0.0/16", "127.0.0.0/8", "::1/128", "fc00::/7", "169.254.0.0/16"])
HELLO = says(
    200, {"choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]}
)

# addresses, of a private capability, of an external one
TABLE: list[tuple[Sequence[str], Standing, Standing]] = [
    ([], NONE, NONE),
    (["10.1.2.3"], P, NO),
    (["127.0.0.1"], P, NO),
    (["::1"], P, NO),
    (["fd12::1"], P, NO),
    (["8.8.8.8"], OUT, P),
    (["2606:4700::1111"], OUT, P),
    (["10.1.2.3", "8.8.8.8"], OUT, NO),
    (["8.8.8.8", "10.1.2.3"], OUT, NO),
    (["172.16.0.1"], OUT, NO),
    (["100.64.0.1"], OUT, NO),
    (["198.18.0.1"], OUT, NO),
    (["169.254.1.1"], NO, NO),
    (["169.254.169.254"], NO, NO),
    (["fd00:ec2::254"], NO, NO),
    (["100.100.100.200"], NO, NO),
    (["168.63.129.16"], NO, NO),
    (["fe80::1"], NO, NO),
    (["fe80::1%eth0"], NO, NO),
    (["224.0.0.1"], NO, NO),
    (["ff02::1"], NO, NO),
    (["0.0.0.0"], NO, NO),
    (["0.1.2.3"], NO, NO),
    (["::"], NO, NO),
    (["240.0.0.1"], NO, NO),
    (["255.255.255.255"], NO, NO),
    # Addresses that carry another.
    (["::ffff:10.1.2.3"], P, NO),
    (["::ffff:8.8.8.8"], OUT, P),
    (["::ffff:169.254.169.254"], NO, NO),
    (["64:ff9b::a01:203"], P, NO),
    (["64:ff9b::808:808"], OUT, P),
    (["64:ff9b::a9fe:a9fe"], NO, NO),
    (["2002:a01:203::1"], P, NO),
    (["2002:808:808::1"], OUT, P),
    (["2002:a9fe:a9fe::1"], NO, NO),
    (["::10.1.2.3"], P, NO),
    (["2001:0:808:808::1"], NO, NO),
    (["64:ff9b:1::808:808"], NO, NO),
]


@pytest.mark.parametrize(("addresses", "private", "external"), TABLE, ids=lambda v: str(v))
def test_where_a_name_may_lead(addresses: Sequence[str], private: Standing, external: Standing):
    place = parse_place("https://models.example.com/v1")
    assert decide_standing(place, addresses, PRIVATE, NETWORKS) is private
    assert decide_standing(place, addresses, EXTERNAL, NETWORKS) is external


def test_an_external_endpoint_that_is_itself_an_inside_address_is_meant_so():
    for endpoint, address in (("http://127.0.0.1:9/v1", "127.0.0.1"), ("http://localhost:9/v1", "127.0.0.1")):
        assert decide_standing(parse_place(endpoint), [address], EXTERNAL, NETWORKS) is P
        assert decide_standing(parse_place(endpoint), [address], EXTERNAL, ()) is NO


def test_plain_http_stays_inside():
    place = parse_place("http://models.example.com/v1")
    assert decide_standing(place, ["8.8.8.8"], EXTERNAL, NETWORKS) is NO
    assert decide_standing(place, ["10.0.0.1"], PRIVATE, NETWORKS) is P


@given(st.ip_addresses(v=4), st.sampled_from(["::ffff:0:0", "64:ff9b::", "::", "2002"]))
def test_no_clothing_changes_what_an_ipv4_address_may(address, clothing: str):
    number = int(address)
    dressed = (
        f"2002:{number >> 16:x}:{number & 0xFFFF:x}::1"
        if clothing == "2002"
        else f"{clothing.removesuffix('0:0')}{address}"
    )
    place = parse_place("https://models.example.com")
    if clothing == "::" and number <= 0xFFFF:
        return
    for boundary in Boundary:
        plain = decide_standing(place, [str(address)], boundary, NETWORKS)
        assert decide_standing(place, [dressed], boundary, NETWORKS) is plain


@given(st.ip_addresses(v=6))
def test_unwrapping_ends(address):
    found = unwrap(address)
    assert found is None or found.version == 4 or found == address


@pytest.mark.parametrize(
    "endpoint",
    ["", "models.example.com", "ftp://example.com", "https://", "https://user:secret@example.com", "https://example.com/?k=secret",
     "https://example.com/#secret", "http://127.1", "http://2130706433", "http://0x7f.0.0.1", "http://017700000001",
     "http://[fe80::1%25eth0]/", "https://exa mple.com", "https://example.com.", "https://-", "https://exam_ple..", "https://a\nb"],
)  # fmt: skip
def test_what_is_no_endpoint(endpoint: str):
    with pytest.raises(ValueError) as caught:
        parse_place(endpoint)
    assert "secret" not in str(caught.value)


def test_what_is_one():
    assert parse_place("https://api.example.com/v1/")[:4] == (
        "https://api.example.com/v1",
        "api.example.com",
        443,
        True,
    )
    assert parse_place("http://[::1]:8000")[:4] == ("http://[::1]:8000", "::1", 8000, False)


class Names:
    """A name server whose answers a test changes."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.asked = 0
        self.honest = True
        """Whether "no address" is an error, as it should be, or an empty answer."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked += 1
        if not self.addresses and self.honest:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return self.addresses


async def opened(outbound: Outbound, port: int, host: str = "models.example.com") -> Opened:
    asked = capability(ProviderKind.OPENAI, endpoint=f"http://{host}:{port}/v1")
    return await open_provider(asked, None, outbound, SystemClock())


async def test_a_connection_goes_to_the_checked_address_and_names_are_not_asked_again():
    names = Names("127.0.0.1")
    async with Vendor(HELLO) as vendor, reaching(resolve=names.resolve) as outbound:
        one = await opened(outbound, vendor.port)
        for _ in range(3):
            await one.provider.complete(call())
        assert names.asked == 1
        assert vendor.requests[0].header("host") == f"models.example.com:{vendor.port}"


async def test_a_name_that_moves_outside_is_shut_until_it_comes_back():
    names = Names("127.0.0.1")
    async with Vendor(HELLO, streams()) as vendor, reaching(resolve=names.resolve) as outbound:
        one = await opened(outbound, vendor.port)
        await one.provider.complete(call())
        names.addresses = ["8.8.8.8"]
        await outbound.refresh()
        assert one.standing is Standing.OUTSIDE
        for asked in (one.provider.complete(call()), collect(one.provider, call(stream=True))):
            with pytest.raises(ProviderFailure) as caught:
                await asked
            assert (caught.value.failure, caught.value.reached) == (Failure.CONNECT, False)
        assert len(vendor.requests) == 1
        names.addresses = ["127.0.0.1"]
        await outbound.refresh()
        assert one.standing is Standing.PERMITTED


@pytest.mark.parametrize("honest", [True, False])
async def test_a_name_that_stops_resolving_keeps_its_checked_addresses(honest: bool):
    names = Names("127.0.0.1")
    async with Vendor(HELLO) as vendor, reaching(resolve=names.resolve) as outbound:
        one = await opened(outbound, vendor.port)
        names.addresses, names.honest = [], honest
        await outbound.refresh()
        await one.provider.complete(call())


async def test_a_name_that_does_not_resolve_yet_is_looked_up_again():
    names = Names()
    async with Vendor(HELLO) as vendor, reaching(resolve=names.resolve, refresh_s=0.02) as outbound:
        one = await opened(outbound, vendor.port)
        assert one.standing is Standing.UNRESOLVED
        with pytest.raises(ProviderFailure):
            await one.provider.complete(call())
        names.addresses = ["127.0.0.1"]
        await asyncio.sleep(0.1)
        await one.provider.complete(call())


async def test_an_endpoint_without_users_is_forgotten():
    names = Names("127.0.0.1")
    async with reaching(resolve=names.resolve) as outbound:
        one, two = await opened(outbound, 9), await opened(outbound, 9)
        await one.provider.close()
        await one.provider.close()
        await outbound.refresh()
        assert names.asked == 2
        await two.provider.close()
        await outbound.refresh()
        assert names.asked == 2


async def test_an_endpoint_is_looked_at_for_as_long_as_one_of_its_users_is_there():
    names, answering = Names("127.0.0.1"), asyncio.Event()

    async def resolve(host: str, port: int) -> Sequence[str]:
        await answering.wait()
        return await names.resolve(host, port)

    async with reaching(resolve=resolve) as outbound:
        place = parse_place("http://models.example.com:9/v1")
        stays = asyncio.create_task(outbound.open(place, Boundary.PRIVATE))
        leaves = asyncio.create_task(outbound.open(place, Boundary.PRIVATE))
        breaks_off = asyncio.create_task(outbound.open(place, Boundary.PRIVATE))
        await asyncio.sleep(0)
        leaves.add_done_callback(lambda opening: outbound.release(opening.result()))
        breaks_off.cancel()
        await asyncio.sleep(0)
        answering.set()
        kept = await stays
        await asyncio.wait((leaves, breaks_off))
        assert kept.standing is leaves.result().standing is Standing.PERMITTED
        names.addresses = ["8.8.8.8"]
        await outbound.refresh()
        assert kept.standing is Standing.OUTSIDE
        outbound.release(kept)
        asked = names.asked
        await outbound.refresh()
        assert names.asked == asked, "nobody is there any more"


async def test_boundaries_share_no_connection():
    async with Vendor(HELLO) as vendor, reaching() as outbound:
        endpoint = f"http://127.0.0.1:{vendor.port}/v1"
        for boundary in Boundary:
            asked = capability(ProviderKind.OPENAI, endpoint=endpoint, boundary=boundary)
            await (await open_provider(asked, None, outbound, SystemClock())).provider.complete(call())
        assert vendor.connections == 2


async def test_no_delay_and_probes_are_set(monkeypatch: pytest.MonkeyPatch):
    async with Vendor(streams(0.2)) as vendor, reaching() as outbound:
        one = await opened(outbound, vendor.port, "127.0.0.1")
        made: list[socket.socket] = []
        create = asyncio.get_running_loop().create_connection

        async def watched(*args, sock: socket.socket, **more):
            made.append(sock)
            return await create(*args, sock=sock, **more)

        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", watched)
        task = asyncio.create_task(collect(one.provider, call(stream=True)))
        await vendor.asked.wait()
        assert made[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert made[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        await asyncio.gather(task, return_exceptions=True)


async def test_what_is_opened_says_where_it_stands_and_not_with_what():
    async with reaching(resolve=Names("8.8.8.8").resolve) as outbound:
        definitions = [
            capability(ProviderKind.SIMULATED, name="made-up"),
            capability(ProviderKind.OPENAI, name="keyed", secret="env:KEY", endpoint="http://127.0.0.1:9/v1"),
            capability(ProviderKind.OPENAI, name="moved", endpoint="http://models.example.com/v1"),
        ]
        opened = [await open_provider(d, "sk-secret", outbound, SystemClock()) for d in definitions]
        assert [one.standing for one in opened] == [Standing.PERMITTED, Standing.PERMITTED, Standing.OUTSIDE]
        for one in opened:
            assert "sk-secret" not in repr(one) + repr(one.provider)
            await one.provider.close()
            await one.provider.close()


@pytest.mark.parametrize("secret", ["sk-sec\r\nX: y", "sk-sec\x00", "sk-sécret"])
async def test_a_credential_that_no_header_carries_is_refused_without_being_shown(secret: str):
    async with reaching() as outbound:
        keyed = capability(ProviderKind.OPENAI, secret="env:KEY", endpoint="http://127.0.0.1:9/v1")
        with pytest.raises(ValueError) as caught:
            await open_provider(keyed, secret, outbound, SystemClock())
        assert "sk-s" not in str(caught.value)


async def test_a_dialect_of_another_vendor_is_refused():
    async with reaching() as outbound:
        for kind, dialect in (
            (ProviderKind.OPENAI, Dialect.BUDGETED_THINKING),
            (ProviderKind.ANTHROPIC, Dialect.SELF_HOSTED),
        ):
            with pytest.raises(ValueError):
                await open_provider(
                    capability(kind, endpoint="http://127.0.0.1:9", dialect=dialect), None, outbound, SystemClock()
                )
