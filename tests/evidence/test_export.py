"""An export is accepted as it was written, and refused when anything about it is changed by whoever holds no key."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import pytest

from terraflow.evidence import export as export_module
from terraflow.evidence import record
from terraflow.evidence.export import ExportExists, NothingToExport, write_export
from terraflow.evidence.log import Integrator
from terraflow.evidence.merkle import TileMissing
from terraflow.verifier.export import verify_export
from terraflow.verifier.formats import Refused, parse_key
from tests.evidence.ledger import SqliteLedger
from tests.evidence.sample import KEY, TENANT, VERIFIER_KEY, entries, export_of, feedback, intent, ledger_of, outcome
from trust.evidence_flips import flip

SIZES = (1, 256, 300, 700)
LOG_KEY = parse_key(VERIFIER_KEY)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("export")
    export_of(SIZES, directory)
    return directory


@pytest.fixture
def export(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "copy"))


def test_an_export_is_accepted_as_it_was_written(written: Path) -> None:
    report = verify_export(written, LOG_KEY)
    assert (report.origin, report.size, report.checkpoints) == ("terraflow.acme/evidence", 700, len(SIZES))
    assert (report.intents, report.outcomes, report.open) == (352, 348, 4)
    assert report.files == sum(1 for path in written.rglob("*") if path.is_file())


@pytest.mark.parametrize("size", [1, 2, 255, 256, 257, 512])
def test_an_export_of_any_size_is_accepted(size: int, tmp_path: Path) -> None:
    export_of((size,), tmp_path)
    assert verify_export(tmp_path, LOG_KEY).size == size


def test_decisions_of_very_many_capabilities_are_exported_and_accepted(tmp_path: Path) -> None:
    ledger = SqliteLedger()
    ledger.append(TENANT, [record.encode(intent(number, capabilities=number * 1_000)) for number in range(6)])
    Integrator(ledger, KEY).step(TENANT)
    write_export(ledger, TENANT, tmp_path, KEY)
    assert verify_export(tmp_path, LOG_KEY).open == 6
    assert b'"packed":' in (tmp_path / "records.jsonl").read_bytes()


SAID = record.encode_feedback(feedback(0))
INTENT, OUTCOME = record.encode(intent(0)), record.encode(outcome(0))


@pytest.mark.parametrize("between", [0, 16 * 256])
def test_feedback_is_accepted_after_its_outcome(between: int, tmp_path: Path) -> None:
    others = [record.encode(intent(number)) for number in range(1, between + 1)]
    _export([INTENT, OUTCOME, *others, SAID, SAID], tmp_path)
    report = verify_export(tmp_path, LOG_KEY)
    assert (report.intents, report.outcomes, report.feedbacks, report.open) == (1 + between, 1, 2, between)


@pytest.mark.parametrize(
    ("log", "what"),
    [
        ([INTENT, SAID, OUTCOME], "comes after feedback"),
        ([SAID, INTENT, OUTCOME], "comes after feedback"),
        ([INTENT, SAID], "has feedback without an outcome"),
        ([SAID], "has feedback without an outcome"),
    ],
)
@pytest.mark.parametrize("between", [0, 16 * 256])
def test_feedback_before_its_outcome_is_refused(log: list[bytes], what: str, between: int, tmp_path: Path) -> None:
    others = [record.encode(intent(number)) for number in range(1, between + 1)]
    _export([*log[:2], *others, *log[2:]], tmp_path)
    if between and len(log) == 3:
        what = "has feedback without an outcome"
    with pytest.raises(Refused, match=what) as refused:
        verify_export(tmp_path, LOG_KEY)
    assert refused.value.record is not None and refused.value.record.request_id == feedback(0).request_id


def _export(log: list[bytes], directory: Path) -> None:
    ledger = SqliteLedger()
    ledger.append(TENANT, log)
    Integrator(ledger, KEY).step(TENANT)
    write_export(ledger, TENANT, directory, KEY)


def test_many_processes_come_to_the_same_report(tmp_path: Path) -> None:
    export_of((20_000,), tmp_path)
    seen: list[tuple[int, int]] = []
    report = verify_export(tmp_path, LOG_KEY, processes=2, progress=lambda done, total: seen.append((done, total)))
    assert report == verify_export(tmp_path, LOG_KEY)
    assert [total for _, total in seen] == [20_000] * 5 and seen[-1][0] == 20_000
    changed = tmp_path / "tile/entries/070"
    changed.write_bytes(changed.read_bytes().replace(b"starter", b"stArter", 1))
    with pytest.raises(Refused, match="tile/entries/070"):
        verify_export(tmp_path, LOG_KEY, processes=2)


def test_the_same_log_gives_the_same_bytes(written: Path, tmp_path: Path) -> None:
    export_of(SIZES, tmp_path)
    for path in written.rglob("*"):
        if path.is_file():
            assert (tmp_path / path.relative_to(written)).read_bytes() == path.read_bytes()


def test_what_is_appended_after_the_checkpoint_waits_for_the_next_export(tmp_path: Path) -> None:
    ledger = ledger_of((300,))
    ledger.append(TENANT, itertools.islice(entries(), 300, 400))
    write_export(ledger, TENANT, tmp_path / "first", KEY)
    assert verify_export(tmp_path / "first", LOG_KEY).size == 300
    Integrator(ledger, KEY).step(TENANT)
    write_export(ledger, TENANT, tmp_path / "second", KEY)
    previous = (tmp_path / "first" / "checkpoint").read_bytes()
    report = verify_export(tmp_path / "second", LOG_KEY, previous)
    assert (report.size, report.previous_size) == (400, 300)


def test_a_long_history_is_thinned_and_its_ends_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_module, "HISTORY_MAX", 10)
    ledger = ledger_of(tuple(range(1, 98)))
    write_export(ledger, TENANT, tmp_path, KEY)
    notes = [json.loads(line)["checkpoint"] for line in (tmp_path / "checkpoints.jsonl").read_text().splitlines()]
    assert [int(note.split("\n")[1]) for note in notes] == [1, 11, 21, 31, 41, 51, 61, 71, 81, 91, 97]
    assert verify_export(tmp_path, LOG_KEY).checkpoints == 11
    for note in ledger.checkpoints(TENANT):
        assert verify_export(tmp_path, LOG_KEY, note).size == 97


def test_there_is_no_export_of_nothing_or_over_something(tmp_path: Path) -> None:
    with pytest.raises(NothingToExport):
        write_export(SqliteLedger(), TENANT, tmp_path, KEY)
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(ExportExists):
        write_export(ledger_of((3,)), TENANT, tmp_path, KEY)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_log_whose_tiles_are_lost_is_not_exported(tmp_path: Path) -> None:
    ledger = ledger_of((300,))
    ledger.db.execute("DELETE FROM tile WHERE level = 1")
    with pytest.raises(TileMissing):
        write_export(ledger, TENANT, tmp_path, KEY)
    assert not (tmp_path / "statement.dsse.json").exists()


def test_random_flips_are_noticed_in_every_file(export: Path) -> None:
    done, unnoticed = flip(export, 400, seed=1)
    assert unnoticed == []
    assert len(done) == sum(1 for path in export.rglob("*") if path.is_file()) == 11


def test_every_byte_of_the_signed_statement_counts(export: Path) -> None:
    statement = export / "statement.dsse.json"
    raw = statement.read_bytes()
    for at in range(len(raw)):
        statement.write_bytes(raw[:at] + bytes([raw[at] ^ 1 << at % 8]) + raw[at + 1 :])
        with pytest.raises(Refused):
            verify_export(export, LOG_KEY)


def test_a_byte_more_or_less_is_noticed_in_every_file(export: Path) -> None:
    for path in [path for path in export.rglob("*") if path.is_file()]:
        raw = path.read_bytes()
        for changed in (raw + b"\n", raw[:-1], b"", raw + raw):
            path.write_bytes(changed)
            with pytest.raises(Refused):
                verify_export(export, LOG_KEY)
        path.write_bytes(raw)
    assert verify_export(export, LOG_KEY).size == 700


def test_a_file_taken_away_or_renamed_is_named(export: Path) -> None:
    for path in [path for path in export.rglob("*") if path.is_file()]:
        name, renamed = str(path.relative_to(export)), path.with_name("renamed")
        for target in (export.parent / "away", renamed):
            path.rename(target)
            with pytest.raises(Refused) as refused:
                verify_export(export, LOG_KEY)
            assert name.startswith(refused.value.where) or refused.value.where == str(renamed.relative_to(export))
            target.rename(path)


def test_something_added_is_named(export: Path) -> None:
    (export / "tile" / "more").mkdir()
    with pytest.raises(Refused, match="tile/more/: is an empty directory"):
        verify_export(export, LOG_KEY)
    (export / "tile" / "more" / "note.txt").write_text("x")
    with pytest.raises(Refused, match="is not listed"):
        verify_export(export, LOG_KEY)
    shutil.rmtree(export / "tile" / "more")
    (export / "link").symlink_to(export / "checkpoint")
    with pytest.raises(Refused, match="link: is neither"):
        verify_export(export, LOG_KEY)


def test_a_link_in_place_of_a_file_is_refused_though_it_holds_the_same(export: Path) -> None:
    (export / "checkpoint").rename(export.parent / "elsewhere")
    (export / "checkpoint").symlink_to(export.parent / "elsewhere")
    with pytest.raises(Refused, match="checkpoint"):
        verify_export(export, LOG_KEY)


def test_files_of_another_export_of_the_same_log_do_not_fit(export: Path, tmp_path: Path) -> None:
    export_of((1, 256, 300), tmp_path / "older")
    for name in ("checkpoint", "checkpoints.jsonl", "records.jsonl", "statement.dsse.json"):
        mixed = Path(shutil.copytree(export, tmp_path / f"with {name}"))
        shutil.copy(tmp_path / "older" / name, mixed / name)
        with pytest.raises(Refused):
            verify_export(mixed, LOG_KEY)
