"""The recovery table: a row for every failure, and what follows from it."""

import random

import pytest

from terraflow.core.reasons import Governed
from terraflow.gateway.recovery import (
    RECOVERY,
    RETRIES_MAX,
    Ended,
    Move,
    Retry,
    Then,
    decide_next,
    retry_delay_s,
)
from terraflow.ports.upstream import Failure, ProviderFailure

JITTER = random.Random(1)


def after(failure: Failure, **change: object) -> Retry | Move | Ended:
    given: dict[str, object] = {"retries": 0, "tries_left": 5, "routes_left": 1, "left_s": 30.0, "jitter": JITTER}
    given["rests_s"] = 0.0
    failed = ProviderFailure(failure, reached=True, retry_after_s=change.pop("retry_after_s", None))  # type: ignore[arg-type]
    return decide_next(failed, **{**given, **change})  # type: ignore[arg-type]


def test_every_failure_has_a_row() -> None:
    assert set(RECOVERY) == set(Failure)


@pytest.mark.parametrize("failure", [f for f in Failure if RECOVERY[f].then is Then.RETRY])
def test_a_passing_fault_is_retried_then_the_next_route_then_the_end(failure: Failure) -> None:
    assert isinstance(after(failure), Retry)
    assert isinstance(after(failure, retries=RETRIES_MAX), Move)
    assert after(failure, retries=RETRIES_MAX, routes_left=0) == Ended(Governed.PROVIDER_ERROR_UNRECOVERED)


@pytest.mark.parametrize("failure", [f for f in Failure if RECOVERY[f].then is Then.RETRY])
def test_a_vendor_that_says_that_a_retry_is_in_vain_is_not_asked_again(failure: Failure) -> None:
    failed = ProviderFailure(failure, reached=True, retry_after_s=0.1, in_vain=True)
    given = {"retries": 0, "tries_left": 5, "left_s": 30.0, "rests_s": 0.0, "jitter": JITTER}
    assert isinstance(decide_next(failed, routes_left=1, **given), Move)  # type: ignore[arg-type]
    ends = decide_next(failed, routes_left=0, **given)  # type: ignore[arg-type]
    assert ends == Ended(Governed.PROVIDER_ERROR_UNRECOVERED)


@pytest.mark.parametrize("failure", [f for f in Failure if RECOVERY[f].then is Then.NEXT_ROUTE])
def test_a_fault_of_the_route_moves_on_without_a_retry(failure: Failure) -> None:
    assert isinstance(after(failure), Move)
    assert after(failure, routes_left=0) == Ended(RECOVERY[failure].ends_as)


def failed_elsewhere(failure: Failure, reached: bool) -> ProviderFailure:
    failed = ProviderFailure(failure, reached=reached)
    failed.elsewhere = True
    return failed


@pytest.mark.parametrize("failure", [f for f in Failure if RECOVERY[f].then is not Then.REFUSE])
def test_a_replicas_own_failure_is_tried_on_another_at_once(failure: Failure) -> None:
    given = {"routes_left": 1, "left_s": 30.0, "rests_s": 0.0, "jitter": JITTER}
    unreached, reached = failed_elsewhere(failure, False), failed_elsewhere(failure, True)
    assert decide_next(unreached, retries=4, tries_left=2, **given) == Retry(0.0)  # type: ignore[arg-type]
    assert decide_next(reached, retries=RETRIES_MAX - 1, tries_left=2, **given) == Retry(0.0)  # type: ignore[arg-type]
    # One that may have broken the replica does not go through all of them, and every route keeps its try.
    assert isinstance(decide_next(reached, retries=RETRIES_MAX, tries_left=2, **given), Move)  # type: ignore[arg-type]
    assert isinstance(decide_next(unreached, retries=0, tries_left=1, **given), Move)  # type: ignore[arg-type]
    given["rests_s"] = 0.1
    assert isinstance(decide_next(unreached, retries=RETRIES_MAX, tries_left=2, **given), Move)  # type: ignore[arg-type]


def test_a_capability_is_not_retried_before_it_may_be_called() -> None:
    assert after(Failure.RATE_LIMITED, retry_after_s=1.0, rests_s=0.999) == Retry(1.0)
    assert isinstance(after(Failure.RATE_LIMITED, retry_after_s=1.0, rests_s=1.001), Move)
    assert isinstance(after(Failure.SERVER_ERROR, rests_s=10.0), Move)
    ends = after(Failure.SERVER_ERROR, rests_s=10.0, routes_left=0)
    assert ends == Ended(Governed.PROVIDER_ERROR_UNRECOVERED)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (Failure.REJECTED_CONTENT, Governed.PROVIDER_REJECTED_REQUEST),
        (Failure.CONTENT_FILTERED, Governed.CONTENT_FILTERED),
    ],
)
def test_what_the_caller_sent_is_refused_at_once_and_blames_nobody(failure: Failure, code: Governed) -> None:
    assert after(failure) == Ended(code)
    assert not RECOVERY[failure].blames_provider


def test_the_deadline_ends_everything_but_a_refusal() -> None:
    assert after(Failure.SERVER_ERROR, left_s=0.0) == Ended(Governed.DEADLINE_EXPIRED)
    assert after(Failure.TIMEOUT, left_s=0.0009) == Ended(Governed.DEADLINE_EXPIRED)
    assert after(Failure.CONTENT_FILTERED, left_s=0.0) == Ended(Governed.CONTENT_FILTERED)


def test_a_retry_that_would_come_too_late_moves_on() -> None:
    assert isinstance(after(Failure.RATE_LIMITED, retry_after_s=40.0), Move)
    assert after(Failure.RATE_LIMITED, retry_after_s=3.0, routes_left=0) == Retry(3.0)


def test_nobody_waits_long_for_a_route_while_another_is_ready() -> None:
    assert isinstance(after(Failure.RATE_LIMITED, retry_after_s=3.0), Move)
    assert after(Failure.RATE_LIMITED, retry_after_s=1.0) == Retry(1.0)


def test_a_try_is_kept_for_every_route_that_follows() -> None:
    tried, tries_left, routes_left, retries = [], 6, 2, 0
    while True:
        tries_left -= 1
        tried.append(routes_left)
        step = after(Failure.OVERLOADED, tries_left=tries_left, routes_left=routes_left, retries=retries)
        if isinstance(step, Ended):
            break
        routes_left, retries = (routes_left, retries + 1) if isinstance(step, Retry) else (routes_left - 1, 0)
    assert set(tried) == {2, 1, 0}
    assert len(tried) == 6


def test_attempts_are_bounded_in_all() -> None:
    assert after(Failure.SERVER_ERROR, tries_left=0) == Ended(Governed.PROVIDER_ERROR_UNRECOVERED)


def test_the_pause_doubles_and_is_spread() -> None:
    for retry, bound in ((1, 0.1), (2, 0.2), (10, 2.0)):
        pauses = {retry_delay_s(retry, None, JITTER) for _ in range(50)}
        assert len(pauses) > 10
        assert all(bound / 2 <= pause <= bound for pause in pauses)
