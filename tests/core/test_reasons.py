"""The registry against the vocabulary's facts, and the choice among an answer's reasons."""

from __future__ import annotations

import csv
import itertools
import pickle
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from terraflow import __version__
from terraflow.core.reasons import (
    ANSWER_PRECEDENCE,
    CODES,
    PLANNED,
    REASONS,
    Console,
    Governed,
    Kind,
    Lookup,
    ModelApi,
    first_of,
    reason,
    status_of,
)

FACTS = Path(__file__).parent / "facts" / "reason_codes.tsv"


def facts() -> list[tuple[str, str, int | None, str]]:
    with FACTS.open(newline="") as file:
        return [
            (row["surface"], row["code"], None if row["status"] == "-" else int(row["status"]), row["kind"])
            for row in csv.DictReader(file, delimiter="\t")
        ]


def test_surfaces_codes_statuses_and_kinds_are_the_vocabularys() -> None:
    ours = [(row.surface.value, row.code, row.status, row.kind.value) for row in REASONS]
    assert sorted(ours, key=str) == sorted(facts(), key=str)


def test_there_are_141_codes_of_the_api_and_12_of_the_hints() -> None:
    hints = [row for row in REASONS if row.status is None]
    assert (len(REASONS) - len(hints), len(hints)) == (141, 12)


def test_second_statuses() -> None:
    assert {
        row.code: (
            row.surface,
            row.second.status,
            "/v1/batches" in row.second.where,
            "/v1/messages" in row.second.where,
        )
        for row in REASONS
        if row.second
    } == {
        "REVIEW_PENDING": ("governed", 200, False, True),
        "UNKNOWN_WORKLOAD": ("governed", 404, True, False),
        "IDEMPOTENCY_REPLAY": ("governed", None, False, False),
    }


@pytest.mark.parametrize("code", CODES, ids=lambda code: f"{reason(code).surface}-{code}")
def test_a_code_is_its_name_everywhere(code: Governed) -> None:
    assert code.value == code.name == str(code) == f"{code}" == reason(code).code
    assert type(code)(code.value) is code
    assert pickle.loads(pickle.dumps(code)) is code
    assert {code.value: 1}[code] == 1


def test_the_same_name_on_two_surfaces_is_two_codes() -> None:
    assert ModelApi.NOT_FOUND is not Console.NOT_FOUND
    assert reason(ModelApi.NOT_FOUND).meaning != reason(Console.NOT_FOUND).meaning
    assert (status_of(Governed.REVIEW_EXPIRED), status_of(Console.REVIEW_EXPIRED)) == (410, 410)


def test_a_hint_has_no_http_status() -> None:
    assert reason(Lookup.NO_HINT).status is None
    with pytest.raises(TypeError, match="NO_HINT"):
        status_of(Lookup.NO_HINT)  # type: ignore[arg-type]


def test_since_is_a_version_up_to_this_one_or_planned() -> None:
    now = [int(part) for part in __version__.split(".")]
    for row in REASONS:
        assert row.since == PLANNED or [int(part) for part in row.since.split(".")] <= now, row.code


def test_statuses_that_say_come_back_are_the_ones_to_retry() -> None:
    retried = {row.code for row in REASONS if row.retry}
    assert all(row.status in {429, 500, 503, 504, 403, 409} for row in REASONS if row.retry)
    assert {
        "QUEUE_SHED",
        "RATE_LIMITED",
        "TENANT_QUEUE_LIMIT",
        "TIER_NOT_AVAILABLE",
        "DEADLINE_EXPIRED",
    } <= retried
    in_vain = {"BUDGET_REQUEST_LIMIT", "NO_ROUTE_WITHIN_REQUEST_LIMIT", "BUDGET_EXHAUSTED", "IDEMPOTENCY_CONFLICT"}
    assert not retried & in_vain
    assert not any(row.retry for row in REASONS if row.status is None or row.status == 200)


def test_texts_speak_of_this_product() -> None:
    foreign = re.compile(r"preview|altius|phase 4b|\$5|starter", re.IGNORECASE)
    assert [row.code for row in REASONS if foreign.search(f"{row.meaning} {row.action} {row.note}")] == []


def test_every_answers_kind_has_a_place_in_the_precedence() -> None:
    produced = {code for code in Governed if reason(code).kind is Kind.PRODUCED_ANSWER}
    assert set(ANSWER_PRECEDENCE) == produced | {Governed.REVIEW_PENDING}
    assert len(set(ANSWER_PRECEDENCE)) == len(ANSWER_PRECEDENCE)


def test_the_first_of_any_two_reasons_is_the_one_that_the_pipeline_lists_first() -> None:
    listed = [
        *("REVIEW_PENDING", "OUTPUT_REDACTED", "VALIDATION_ESCALATED", "VALIDATION_REPAIRED", "SAFE_PATH_USED"),
        *("PROVIDER_ERROR_RECOVERED", "CACHE_HIT", "PER_TYPE_UNCALIBRATED", "PERMITTED"),
    ]
    for first, second in itertools.combinations(listed, 2):
        reasons = [Governed(first), Governed(second), Governed.BUDGET_THROTTLED]
        random.Random(first + second).shuffle(reasons)
        assert first_of(reasons) is Governed(first)


def test_a_refusal_is_never_chosen_as_an_answers_code() -> None:
    with pytest.raises(ValueError, match="none of the reasons"):
        first_of([Governed.BUDGET_THROTTLED])


def test_importing_the_registry_brings_in_no_framework() -> None:
    program = (
        "import sys; before = set(sys.modules); import terraflow.core.reasons;"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"terraflow", *sys.stdlib_module_names}
    assert "dataclasses" not in done.stdout.split()
