"""Who is at the other end of a connection, and how many connections that one may have."""

from __future__ import annotations

import pytest

from terraflow.app.peers import Places, many_come_through, plain_address, within


@pytest.mark.parametrize(
    ("host", "plain"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
    ],
)
def test_an_address_is_unwrapped(host: str, plain: str) -> None:
    assert plain_address(host) == plain


def test_an_ipv4_address_is_one_caller_and_an_ipv6_network_is_one() -> None:
    places = Places(100, 2, lambda _: False)
    assert places.take("192.0.2.7") and places.take("192.0.2.7") and places.take("192.0.2.8")
    assert places.take("192.0.2.7") is None
    assert places.take("2001:db8::1") and places.take("2001:db8::ffff:1") and places.take("2001:db8:0:1::1")
    assert places.take("2001:db8::2") is None
    assert places.open == 6


def test_a_place_is_given_back_once() -> None:
    places = Places(2, 2, lambda _: False)
    first, second = places.take("192.0.2.7"), places.take("192.0.2.7")
    assert first is not None and second is not None
    assert places.take("192.0.2.8") is None
    assert places.refused == 1
    first.give_back()
    first.give_back()
    assert places.open == 1
    assert places.take("192.0.2.7") is not None
    assert places.take("192.0.2.7") is None
    assert places.refused == 2


def test_whom_many_come_through_is_counted_in_all_alone() -> None:
    places = Places(3, 1, many_come_through(["10.4.0.0/28", "2001:db8::/64"]))
    assert places.take("10.4.0.1") and places.take("10.4.0.1") and places.take("2001:db8::1")
    assert places.take("10.4.0.1") is None


@pytest.mark.parametrize(
    ("networks", "address", "many"),
    [
        ([], "127.0.0.1", True),
        ([], "::1", True),
        ([], "192.0.2.7", False),
        (["10.4.0.0/28"], "10.4.0.1", True),
        (["10.4.0.0/28"], "10.4.0.16", False),
        (["10.4.0.0/28"], "127.0.0.1", False),
    ],
)
def test_who_stands_for_many(networks: list[str], address: str, many: bool) -> None:
    assert many_come_through(networks)(address) is many


def test_what_is_no_address_is_in_no_network() -> None:
    assert within(["0.0.0.0/0", "::/0"])("nonsense") is False
