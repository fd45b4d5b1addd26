"""The check of the reason registry: each rule is given a planted fault and must find it, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from terraflow.core.reasons import PLANNED, REASONS, Governed, ModelApi, Reason, reason
from tools import fresh
from tools.pages import reasons as reasons_page
from tools.reasons_check import (
    RAISED_AT,
    RAISED_BY,
    built,
    documented,
    python_sources,
    seen_by_tests_that_exist,
    seen_everywhere,
    spelled,
    uses,
)
from tools.reasons_check import findings as every_finding
from tools.wording import copied, digests, reference_wording

GOOD = reason(Governed.CACHE_HIT)
OTHER = reason(Governed.QUEUE_SHED)
TEST = "tests/wire/test_cache.py::test_hit[second call]"


def findings(root: Path, rows: list[Reason]) -> list[str]:
    """What is found of rows that can occur nowhere."""
    return every_finding(root, rows, {row.code: () for row in rows if row.since != PLANNED})


def documentation_faults(row: Reason, *others: Reason) -> list[str]:
    return list(documented([*others, row], frozenset()))


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ({"meaning": ""}, "meaning says too little"),
        ({"meaning": "Served from the cache."}, "meaning says too little"),
        ({"action": "Use the answer."}, "action says too little"),
        ({"meaning": "The cache hit is a cache hit, this request was a hit."}, "only repeats the code's name"),
        ({"meaning": GOOD.meaning.rstrip(".")}, "not a whole sentence"),
        ({"action": "Nothing at all has to be done."}, "tells the reader to do nothing"),
        ({"action": "None for a caller of this plane."}, "tells the reader to do nothing"),
        ({"action": GOOD.meaning}, "its action is the same text as governed/CACHE_HIT's meaning"),
        ({"meaning": OTHER.meaning.upper()}, "its meaning is the same text as governed/QUEUE_SHED's meaning"),
        ({"action": OTHER.action}, "its action is the same text as governed/QUEUE_SHED's action"),
    ],
)
def test_an_undocumented_code_is_found(fault: dict[str, str], told: str) -> None:
    assert documentation_faults(GOOD, OTHER) == []
    found = documentation_faults(GOOD._replace(**fault), OTHER)
    assert any(told in line and line.startswith("governed/CACHE_HIT:") for line in found), found


@pytest.mark.parametrize("field", ["meaning", "action"])
def test_the_references_sentences_are_found(field: str) -> None:
    theirs = "The lantern above the door was lit by the keeper before the ships came home."
    reference = frozenset(digest for digest, _ in digests(theirs))
    copy = f"Know that, as always, {theirs[0].lower()}{theirs[1:]}"
    faulty = GOOD._replace(**{field: copy})
    assert list(documented([GOOD], reference)) == []
    assert [line for line in documented([faulty], reference) if "the reference's own words" in line]


def test_the_kept_digests_are_those_of_the_reference_and_the_registry_has_none_of_them() -> None:
    assert copied("(personal, card or health data, or a", reference_wording())
    assert len(reference_wording()) > 1500
    assert list(documented(REASONS, reference_wording())) == []


def product(tmp_path: Path, **files: str) -> Path:
    """A repository whose product has the given modules, a registry file beside them, and the test TEST."""
    for name, text in {"core/reasons": "", **files}.items():
        file = tmp_path / "terraflow" / (f"{name}.py" if "." not in name else name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    test = tmp_path / TEST.partition("::")[0]
    test.parent.mkdir(parents=True, exist_ok=True)
    test.write_text("class TestIt:\n    async def test_hit(self, raised): ...\n")
    page = tmp_path / "docs/reference/reason-codes.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(reasons_page.page())
    listed(tmp_path, {"governed/CACHE_HIT": TEST})
    return tmp_path


def listed(root: Path, raised_by: dict[str, str]) -> None:
    (root / RAISED_BY).write_text(json.dumps(raised_by))


USING = "from terraflow.core.reasons import Governed\nREASON = Governed.CACHE_HIT\n"


def test_a_true_product_has_no_findings(tmp_path: Path) -> None:
    assert findings(product(tmp_path, cache=USING), [GOOD]) == []


@pytest.mark.parametrize(
    "source",
    [
        "from terraflow.core.reasons import Governed as G\nREASON = G.CACHE_HIT\n",
        "from terraflow.core import reasons\nREASON = reasons.Governed.CACHE_HIT\n",
        "from terraflow.core.reasons import Governed\nmatch x:\n    case Governed.CACHE_HIT: ...\n",
    ],
)
def test_every_way_to_name_a_code_is_a_use(source: str, tmp_path: Path) -> None:
    assert findings(product(tmp_path, cache=source), [GOOD]) == []


@pytest.mark.parametrize(
    "source", ["", "REASON = Other.CACHE_HIT\n", "REASON = Console.CACHE_HIT\n", "# Governed.CACHE_HIT\n"]
)
def test_a_built_code_that_nothing_uses_is_found(source: str, tmp_path: Path) -> None:
    found = findings(product(tmp_path, cache=source), [GOOD])
    assert found == ["governed/CACHE_HIT: since 0.1.0, but nothing in terraflow/ uses Governed.CACHE_HIT"]


def test_a_use_in_the_registry_alone_does_not_count(tmp_path: Path) -> None:
    assert len(findings(product(tmp_path, **{"core/reasons": USING}), [GOOD])) == 1


def test_a_use_of_the_same_name_on_another_surface_does_not_count(tmp_path: Path) -> None:
    row = reason(ModelApi.NOT_FOUND)
    root = product(tmp_path, pages="from terraflow.core.reasons import Console\nREASON = Console.NOT_FOUND\n")
    found = list(built([row], uses(python_sources(root)), {"model_api/NOT_FOUND": TEST}))
    assert found == ["model_api/NOT_FOUND: since 0.1.0, but nothing in terraflow/ uses ModelApi.NOT_FOUND"]


def test_a_built_code_that_no_test_saw_is_found(tmp_path: Path) -> None:
    root = product(tmp_path, cache=USING)
    listed(root, {})
    (found,) = findings(root, [GOOD])
    assert found.startswith("governed/CACHE_HIT: since 0.1.0, but no black-box test saw it")
    (root / RAISED_BY).unlink()
    assert findings(root, [GOOD]) == [found]


@pytest.mark.parametrize(
    "test",
    [
        "tests/wire/test_cache.py::test_miss",
        "tests/wire/test_gone.py::test_hit",
        "tests/wire/test_cache.py",
        "terraflow/cache.py::used",
        "by hand",
    ],
)
def test_a_test_that_does_not_exist_is_found(test: str, tmp_path: Path) -> None:
    root = product(tmp_path, cache=USING + "def used(): ...\n")
    listed(root, {"governed/CACHE_HIT": test})
    (found,) = findings(root, [GOOD])
    assert f"governed/CACHE_HIT names {test}, which does not exist" in found


def test_a_listed_code_that_the_registry_lacks_is_found(tmp_path: Path) -> None:
    root = product(tmp_path, cache=USING)
    listed(root, {"governed/CACHE_HIT": TEST, "console_api/CACHE_HIT": TEST})
    assert findings(root, [GOOD]) == [f"{RAISED_BY}: console_api/CACHE_HIT is no code of the registry"]


def test_a_planned_code_that_is_used_is_found(tmp_path: Path) -> None:
    root = product(tmp_path, cache=USING)
    listed(root, {})
    (found,) = findings(root, [GOOD._replace(since=PLANNED)])
    assert found.startswith("terraflow/cache.py:2: Governed.CACHE_HIT is used, but its `since` says planned")


def test_a_planned_code_that_a_test_saw_is_found(tmp_path: Path) -> None:
    (found,) = findings(product(tmp_path), [GOOD._replace(since=PLANNED)])
    assert found.startswith("governed/CACHE_HIT: its `since` says planned, but tests/wire/")


@pytest.mark.parametrize(
    "source",
    [
        'REASON = "CACHE_HIT"\n',
        "REASON = b'CACHE_HIT'\n",
        'REASON = Governed["CACHE_HIT"]\n',
        "SQL = \"SELECT 1 FROM outcome WHERE reason = 'CACHE_HIT'\"\n",
        'REASON = f"{x}" + "CACHE_" "HIT"\n',
        'REASON = f"CACHE_HIT"\n',
    ],
)
def test_a_code_spelled_as_a_string_is_found(source: str, tmp_path: Path) -> None:
    root = product(tmp_path, cache=USING, other=source)
    assert findings(root, [GOOD]) == [
        "terraflow/other.py:1: CACHE_HIT is spelled as a string; name it through its enum"
    ]


def test_a_code_spelled_in_sql_is_found(tmp_path: Path) -> None:
    root = product(tmp_path, cache=USING, **{"storage/schema.sql": "-- outcomes\nCHECK (reason <> 'CACHE_HIT')\n"})
    (found,) = findings(root, [GOOD])
    assert found.startswith("terraflow/storage/schema.sql:2: CACHE_HIT is spelled in SQL")


def test_prose_about_a_code_is_no_spelling(tmp_path: Path) -> None:
    text = '"""Answers CACHE_HIT, which clients know as "CACHE_HIT"."""\nCACHE_HITS = "cache_hit"\n'
    root = product(tmp_path, cache=text)
    assert list(spelled(python_sources(root), root)) == []


def test_a_stale_reference_page_is_found(tmp_path: Path) -> None:
    root = product(tmp_path, cache=USING)
    page = root / "docs/reference/reason-codes.md"
    page.write_text(page.read_text().replace("CACHE_HIT", "CACHE_HITS"))
    assert findings(root, [GOOD]) == ["docs/reference/reason-codes.md is stale: mend it with `make fix`"]
    page.unlink()
    assert len(findings(root, [GOOD])) == 1


def test_the_products_own_strings_spell_no_code() -> None:
    assert list(spelled(python_sources(fresh.ROOT), fresh.ROOT)) == []


AT = {"chat CACHE_HIT": TEST, "item CACHE_HIT": TEST}
PLACES = {"CACHE_HIT": {"chat", "item"}}


@pytest.mark.parametrize(
    ("rows", "places", "at", "told"),
    [
        ([GOOD], PLACES, AT, None),
        ([GOOD], {}, {}, "CACHE_HIT has no row"),
        ([GOOD._replace(since=PLANNED)], PLACES, AT, "CACHE_HIT is none of the model API"),
        ([GOOD], PLACES, {"chat CACHE_HIT": TEST}, "CACHE_HIT can occur at item, but no black-box test saw it there"),
        ([GOOD], PLACES, AT | {"files CACHE_HIT": TEST}, f"{TEST} saw CACHE_HIT at files, which its row does not name"),
    ],
    ids=["right", "no-row", "planned", "unseen", "unnamed"],
)
def test_a_code_is_seen_wherever_it_can_occur(
    rows: list[Reason], places: dict[str, set[str]], at: dict[str, str], told: str | None
) -> None:
    found = list(seen_everywhere(rows, places, at))
    assert len(found) == (told is not None)
    assert all(told is not None and told in line for line in found), found


def test_a_sighting_names_a_test_that_exists(tmp_path: Path) -> None:
    root = product(tmp_path)
    assert list(seen_by_tests_that_exist({"chat CACHE_HIT": TEST}, root, RAISED_AT)) == []
    [found] = seen_by_tests_that_exist({"chat CACHE_HIT": f"{TEST}_gone"[::-1]}, root, RAISED_AT)
    assert found.startswith(f"{RAISED_AT}: chat CACHE_HIT names")
