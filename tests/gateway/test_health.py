"""Faults in a row make a capability rest; one probe decides whether it comes back."""

import logging

import pytest

from terraflow.gateway.capacity import CAPABILITIES_MAX
from terraflow.gateway.health import TELL_EVERY_S, Health, HealthRule

RULE = HealthRule(faults_max=2, rest_s=10.0, retry_after_max_s=60.0)


def sick(health: Health, now: float = 0.0, retry_after_s: float | None = None) -> None:
    health.failed("m", now, now, retry_after_s)
    health.failed("m", now, now, retry_after_s)


def test_one_fault_is_no_illness_and_a_success_forgets_it() -> None:
    health = Health(RULE)
    health.failed("m", 0, 0, None)
    assert health.healthy("m", 0)
    assert health.recent_faults("m") == 1
    health.succeeded("m", 10.0, 10.0)
    health.failed("m", 0, 0, None)
    assert health.healthy("m", 0)


def test_it_rests_and_then_lets_one_probe_through() -> None:
    health = Health(RULE)
    sick(health)
    assert not health.healthy("m", 9.9)
    assert health.recovers_in_s("m", 4.0) == 6.0
    assert health.healthy("m", 10.0)
    health.began("m", 10.0)
    assert not health.healthy("m", 10.0)
    health.succeeded("m", 10.0, 10.0)
    assert health.healthy("m", 10.0)


def test_a_failed_probe_starts_a_new_rest() -> None:
    health = Health(RULE)
    sick(health)
    health.began("m", 10.0)
    health.failed("m", 10.0, 10.0, None)
    assert not health.healthy("m", 19.0)
    assert health.healthy("m", 20.0)


def test_an_abandoned_probe_lets_another_through() -> None:
    health = Health(RULE)
    sick(health)
    health.began("m", 10.0)
    health.abandoned("m", 10.0)
    assert health.healthy("m", 10.0)


def test_an_older_call_that_ends_while_the_probe_runs_lets_no_other_through() -> None:
    health = Health(RULE)
    sick(health)
    health.began("m", 10.0)
    health.abandoned("m", 9.0)
    assert not health.healthy("m", 11.0)
    health.abandoned("m", 10.0)
    assert health.healthy("m", 11.0)


def test_retry_after_is_obeyed_from_the_first_fault_on_and_within_bounds() -> None:
    health = Health(RULE)
    health.failed("m", 0, 0, 30.0)
    assert not health.healthy("m", 29.0)
    assert health.recovers_in_s("m", 20.0) == 10.0
    assert health.healthy("m", 30.0)
    health.failed("m", 100.0, 100.0, 3600.0)
    assert not health.healthy("m", 159.0)
    assert health.healthy("m", 160.0)


def test_what_else_succeeds_does_not_shorten_retry_after() -> None:
    health = Health(RULE)
    sick(health, retry_after_s=30.0)
    health.succeeded("m", 10.0, 12.0)
    assert health.recent_faults("m") == 0
    assert not health.healthy("m", 29.0)
    assert health.healthy("m", 30.0)
    health.succeeded("m", 31.0, 31.0)
    assert health._states == {}


def test_capabilities_do_not_share_their_health() -> None:
    health = Health(RULE)
    sick(health)
    assert health.healthy("other", 0)


def test_a_success_from_before_the_rest_does_not_end_it() -> None:
    health = Health(RULE)
    sick(health, now=5.0)
    health.succeeded("m", 4.0, 6.0)
    assert health.recent_faults("m") == 2
    assert not health.healthy("m", 14.9)
    health.began("m", 15.0)
    health.succeeded("m", 4.0, 16.0)
    assert not health.healthy("m", 16.0)
    health.succeeded("m", 15.0, 17.0)
    assert health.healthy("m", 17.0)


def test_a_fault_from_before_the_rest_neither_ends_the_probe_nor_starts_a_new_rest() -> None:
    health = Health(RULE)
    sick(health)
    health.failed("m", -1.0, 9.0, None)
    assert health.healthy("m", 10.0)
    health.began("m", 10.0)
    health.failed("m", -1.0, 11.0, None)
    assert not health.healthy("m", 19.9)
    assert health.healthy("m", 20.0)


def test_retry_after_is_obeyed_whenever_its_call_began() -> None:
    health = Health(RULE)
    sick(health)
    health.failed("m", -1.0, 5.0, 30.0)
    assert not health.healthy("m", 34.9)
    assert health.healthy("m", 35.0)


def test_what_is_remembered_of_capabilities_is_bounded() -> None:
    health = Health(RULE)
    for number in range(CAPABILITIES_MAX + 50):
        health.failed(str(number), 0.0, 0.0, None)
    assert len(health._states) == CAPABILITIES_MAX
    assert health.recent_faults(str(CAPABILITIES_MAX + 49)) == 1


def test_a_probe_that_takes_long_lets_another_beside_it() -> None:
    health = Health(RULE)
    sick(health)
    health.began("m", 10.0)
    assert not health.healthy("m", 19.9)
    assert health.healthy("m", 20.0)


def test_rests_are_counted_when_they_begin() -> None:
    health = Health(RULE)
    assert health.rests("m") == 0
    sick(health)
    health.failed("m", 0, 1.0, None)
    health.failed("m", 0, 1.0, 30.0)
    assert health.rests("m") == 1, "what fails during a rest begins none"
    health.began("m", 40.0)
    health.failed("m", 40.0, 40.0, None)
    assert health.rests("m") == 2
    health.succeeded("m", 60.0, 60.0)
    assert health.rests("m") == 2
    health.failed("m", 61.0, 61.0, 5.0)
    assert health.rests("m") == 3, "the provider asked for it"


def test_rests_of_few_capabilities_are_remembered() -> None:
    health = Health(HealthRule(faults_max=1))
    for number in range(CAPABILITIES_MAX + 1):
        health.failed(f"m{number}", 0, 0, None)
    assert (health.rests("m0"), health.rests("m1"), health.rests(f"m{CAPABILITIES_MAX}")) == (0, 1, 1)


def test_a_rest_is_told_when_it_begins_and_when_a_success_ends_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    health = Health(RULE)
    health.succeeded("m", 0, 0)
    sick(health)
    assert caplog.messages == ["capability m rests for 10.0 s: faults in a row: 2"]
    health.succeeded("m", 5.0, 6.0)
    health.began("m", 10.0)
    assert len(caplog.messages) == 1, "what began before its end says nothing of it"
    health.failed("m", 10.0, 10.0, None)
    assert caplog.messages[1:] == ["capability m rests for 10.0 s: faults in a row: 3"]
    health.succeeded("m", 20.0, 21.0)
    health.succeeded("m", 22.0, 23.0)
    assert caplog.messages[2:] == ["capability m answers again"]


def test_a_rest_that_a_provider_asked_for_is_over_when_it_has_passed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    health = Health(RULE)
    health.failed("m", 0, 0, 30.0)
    assert caplog.messages == ["capability m rests for 30.0 s: faults in a row: 1, and its provider asked for it"]
    health.succeeded("m", 0, 20.0)
    assert len(caplog.messages) == 1
    health.succeeded("m", 31.0, 32.0)
    assert caplog.messages[1:] == ["capability m answers again"]


def test_short_rests_are_told_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    health = Health(RULE)
    for tenth in range(int(TELL_EVERY_S * 10) + 1):
        health.failed("m", tenth / 10, tenth / 10, 0.05)
        health.succeeded("m", tenth / 10 + 0.06, tenth / 10 + 0.07)
    assert health.rests("m") == TELL_EVERY_S * 10 + 1
    assert [message.split()[2] for message in caplog.messages] == ["rests", "answers"] * 2
