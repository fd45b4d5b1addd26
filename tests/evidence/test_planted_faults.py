"""Every check of the verifier is needed: each attack is refused, and is let through once its check is taken out.

The attacks that change what is signed are those of a writer that has the key and lies, or is wrong.
"""

from __future__ import annotations

import base64
import itertools
import json
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from terraflow.core.canonical import canonical
from terraflow.core.signature import sign_envelope
from terraflow.evidence.checkpoint import sign_checkpoint
from terraflow.evidence.export import STATEMENT_PAYLOAD_TYPE, write_export
from terraflow.evidence.log import Integrator
from terraflow.evidence.merkle import Tree, grow
from terraflow.verifier import export as verifier
from terraflow.verifier import formats, records
from terraflow.verifier.formats import Refused, parse_key
from tests.evidence.ledger import SqliteLedger
from tests.evidence.sample import KEY, TENANT, VERIFIER_KEY, entries, export_of
from trust.evidence_flips import flip

Attack = Callable[[Path], None]


class Plant(NamedTuple):
    """An attack on an export, and the check that sees it: a module's name to replace, and by what."""

    attack: Attack
    module: Any
    name: str
    fault: Any


def _resign(export: Path, change: Callable[[dict[str, Any]], object] = lambda _statement: None) -> None:
    """Sign a statement with the digests that the files now have, changed as told."""
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "predicateType": "urn:terraflow:evidence-export:v1",
        "predicate": {"origin": "terraflow.acme/evidence"},
        "subject": [
            {"name": str(path.relative_to(export)), "digest": {"sha256": records.sha256(path.read_bytes()).hexdigest()}}
            for path in sorted(export.rglob("*"), key=str)
            if path.is_file() and path.name != "statement.dsse.json"
        ],
    }
    change(statement)
    (export / "statement.dsse.json").write_bytes(sign_envelope(canonical(statement), STATEMENT_PAYLOAD_TYPE, KEY))


def _rewrite(export: Path, altered: Iterable[bytes]) -> None:
    """Export a log of these entries instead, signed as any other."""
    for path in sorted(export.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    ledger = SqliteLedger()
    ledger.append(TENANT, altered)
    Integrator(ledger, KEY).step(TENANT)
    write_export(ledger, TENANT, export, KEY)


SOURCE = list(itertools.islice(entries(), 300))


def _with(index: int, *altered: bytes) -> Attack:
    return lambda export: _rewrite(export, [*SOURCE[:index], *altered, *SOURCE[index + 1 :]])


def _altered(index: int, **fields: object) -> Attack:
    return _with(index, canonical({**json.loads(SOURCE[index]), **fields}))


def _change(name: str, old: bytes, new: bytes) -> Attack:
    def attack(export: Path) -> None:
        raw = (export / name).read_bytes()
        assert old in raw
        (export / name).write_bytes(raw.replace(old, new, 1))
        _resign(export)

    return attack


def _loose_bits(export: Path) -> None:
    """Change the bits that base64 leaves unused in the statement's signature."""
    path = export / "statement.dsse.json"
    raw = path.read_bytes()
    at = raw.rindex(b'=="') - 1
    alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    path.write_bytes(raw[:at] + bytes([alphabet[alphabet.index(raw[at]) ^ 1]]) + raw[at + 1 :])


def _added(export: Path) -> None:
    (export / "note.txt").write_text("not part of it")


def _other_tile(level: str) -> Attack:
    def attack(export: Path) -> None:
        path = next(path for path in (export / "tile" / level).rglob("*") if path.is_file())
        path.write_bytes(bytes(32) + path.read_bytes()[32:])
        _resign(export)

    return attack


def _other_root(export: Path) -> None:
    """Sign a checkpoint of another tree of the same size."""
    note = sign_checkpoint(TENANT, grow(Tree(), [bytes(32)] * 300)[0], KEY)
    (export / "checkpoint").write_bytes(note)
    (export / "checkpoints.jsonl").write_bytes(canonical({"checkpoint": note.decode()}) + b"\n")
    _resign(export)


def _forked_history(export: Path) -> None:
    """Put a checkpoint of another tree among those published."""
    path, fork = export / "checkpoints.jsonl", sign_checkpoint(TENANT, grow(Tree(), [bytes(32)] * 100)[0], KEY)
    path.write_bytes(canonical({"checkpoint": fork.decode()}) + b"\n" + path.read_bytes())
    _resign(export)


def _unlisted(export: Path) -> None:
    _resign(export, lambda statement: statement["subject"][3]["digest"].update(sha256="0" * 64))


def _loose_base64(text: str) -> bytes:
    return base64.b64decode(text)


def _any_objects(raws: list[bytes]) -> list[Any]:
    return [json.loads(raw) for raw in raws]


def _unlisted_bytes(directory: Path, name: str, _digests: object) -> bytes:
    return (directory / name).read_bytes()


class _Forgetful(verifier._Seen):
    """Takes every stretch in without looking."""

    def add(self, part: records.Checked) -> None:
        self.intents.update(verifier._ids(part.intents))
        self.outcomes.update(verifier._ids(part.outcomes))


class _Lenient(records._Facts):
    """Takes any record for an intent."""

    def _add(self, record: dict[str, Any]) -> None:
        self.intents.append(len(self.intents).to_bytes(16, "big"))


def _nothing(*_arguments: object) -> None:
    return None


SPACED = SOURCE[7].replace(b'{"', b'{ "', 1)
OUTCOME, INTENT = SOURCE[40], SOURCE[41]
assert b'"kind":"outcome"' in OUTCOME and b'"kind":"intent"' in INTENT

PACKED = {
    "fields": ["policy"],
    "bytes": 2,
    "digest": "0" * 64,
    "packed": base64.b64encode(zlib.compress(b"{}")).decode(),
}

PLANTS = {
    "unused bits of base64": Plant(_loose_bits, formats, "decode_base64", _loose_base64),
    "a file added": Plant(_added, verifier, "_compare_names", _nothing),
    "a digest that is not the file's": Plant(_unlisted, records, "read_listed", _unlisted_bytes),
    "a tile of other hashes": Plant(_other_tile("1"), verifier, "_compare_tiles", _nothing),
    "a checkpoint of another tree": Plant(_other_root, verifier, "root_at", None),
    "a fork in the history": Plant(_forked_history, verifier, "root_at", None),
    "white space in a record": Plant(_with(7, SPACED), records, "parse_objects", _any_objects),
    "an outcome twice": Plant(_with(41, OUTCOME), verifier, "_Seen", _Forgetful),
    "an intent twice": Plant(_with(40, INTENT), verifier, "_Seen", _Forgetful),
    "an outcome before its intent": Plant(_with(0, SOURCE[4], SOURCE[0]), records, "_Facts", _Lenient),
    "another tenant's record": Plant(_altered(9, tenant="bolt"), records, "_Facts", _Lenient),
    "another schema": Plant(_altered(9, schema=2), records, "_Facts", _Lenient),
    "schema true": Plant(_altered(9, schema=True), records, "_Facts", _Lenient),
    "another kind": Plant(_altered(9, kind="remark"), records, "_Facts", _Lenient),
    "a time that is none": Plant(_altered(9, time="yesterday"), records, "_Facts", _Lenient),
    "packed tables of another digest": Plant(_altered(9, detached=PACKED), records, "tables_of", lambda _: {}),
    "an id that is none": Plant(_altered(9, request_id="req_"), records, "_Facts", _Lenient),
    "an outcome without intent": Plant(_altered(0, request_id="req_" + "f" * 32), verifier, "_Seen", _Forgetful),
}


@pytest.mark.parametrize("name", PLANTS)
def test_an_attack_is_refused_and_its_check_is_what_refuses_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, key = PLANTS[name], parse_key(VERIFIER_KEY)
    export_of((300,), tmp_path)
    assert verifier.verify_export(tmp_path, key).size == 300
    plant.attack(tmp_path)
    with pytest.raises(Refused):
        verifier.verify_export(tmp_path, key)
    lying = {300: formats.open_checkpoint((tmp_path / "checkpoint").read_bytes(), key, "x").root}
    monkeypatch.setattr(plant.module, plant.name, plant.fault or (lambda size, _levels: lying.get(size, FORK)))
    assert verifier.verify_export(tmp_path, key).size >= 300


FORK = formats.open_checkpoint(
    sign_checkpoint(TENANT, grow(Tree(), [bytes(32)] * 100)[0], KEY), parse_key(VERIFIER_KEY), "x"
).root


def test_the_readable_copy_must_be_the_records(tmp_path: Path) -> None:
    export_of((300,), tmp_path)
    _change("records.jsonl", b'"status":200', b'"status":201')(tmp_path)
    with pytest.raises(Refused, match="differs from tile/entries/000"):
        verifier.verify_export(tmp_path, parse_key(VERIFIER_KEY))


@pytest.mark.parametrize(
    "change",
    [
        lambda statement: statement.update(_type="other"),
        lambda statement: statement.update(extra=1),
        lambda statement: statement.update(predicateType="other"),
        lambda statement: statement["predicate"].update(origin="terraflow.bolt/evidence"),
        lambda statement: statement["predicate"].update(extra=1),
        lambda statement: statement["subject"].pop(),
        lambda statement: statement["subject"].append(statement["subject"][0]),
        lambda statement: statement["subject"].reverse(),
        lambda statement: statement["subject"][0].update(extra=1),
        lambda statement: statement["subject"][0]["digest"].update(sha512="0"),
        lambda statement: statement["subject"][0]["digest"].update(sha256="0" * 63),
        lambda statement: statement["subject"][0].update(name="../checkpoint"),
    ],
)
def test_a_statement_that_says_less_or_more_is_refused_though_signed(
    change: Callable[[dict[str, Any]], object], tmp_path: Path
) -> None:
    export_of((300,), tmp_path)
    _resign(tmp_path)
    assert verifier.verify_export(tmp_path, parse_key(VERIFIER_KEY)).size == 300
    _resign(tmp_path, change)
    with pytest.raises(Refused):
        verifier.verify_export(tmp_path, parse_key(VERIFIER_KEY))


def test_an_earlier_checkpoint_shows_a_log_cut_short_or_rewritten(tmp_path: Path) -> None:
    key = parse_key(VERIFIER_KEY)
    export_of((300,), tmp_path / "seen")
    seen = (tmp_path / "seen" / "checkpoint").read_bytes()
    export_of((200,), tmp_path / "short")
    with pytest.raises(Refused, match="rolled back"):
        verifier.verify_export(tmp_path / "short", key, seen)
    export_of((400,), tmp_path / "long")
    assert verifier.verify_export(tmp_path / "long", key, seen).previous_size == 300
    (tmp_path / "forked").mkdir()
    _rewrite(tmp_path / "forked", [*SOURCE[:299], *itertools.islice(entries(), 400, 401)])
    with pytest.raises(Refused):
        verifier.verify_export(tmp_path / "forked", key, seen)
    with pytest.raises(Refused):
        verifier.verify_export(tmp_path / "long", key, seen.replace(b"\n300\n", b"\n299\n"))


def test_the_flips_themselves_bite(tmp_path: Path) -> None:
    """A verifier that looks at less lets flips through, and the run of flips reports them."""
    export_of((300,), tmp_path)

    def hasty(directory: Path) -> bool:
        raw = (directory / "checkpoint").read_bytes()
        try:
            formats.open_checkpoint(raw, parse_key(VERIFIER_KEY), "x")
        except Refused:
            return False
        return True

    done, unnoticed = flip(tmp_path, 60, seed=2, accepts=hasty)
    assert len(unnoticed) == done.total() - done["checkpoint"] and done["checkpoint"] > 0
