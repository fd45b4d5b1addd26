"""Verifiers that we did not write accept an export, and refuse every change of what they look at."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

import pytest
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import UnverifiedSignatureError, VerificationError
from securesystemslib.signer import Signature, SSlibKey

from terraflow.core.signature import key_id
from terraflow.evidence.proof import prove
from tests.evidence.sample import KEY, TENANT, export_of
from trust.foreign.changes import Verifier, checkpoint_changes, leaf_changes, payload_changes

SIZES = (1, 37, 64, 90)
PYMERKLE = [sys.executable, str(Path(__file__).with_name("pymerkle_process.py"))]


class Export:
    """An export, and the proofs of some of its records beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.proofs = folder / "export", folder / "proofs"
        ledger = export_of(SIZES, self.folder)
        self.proofs.mkdir()
        for index in (0, 1, 36, 37, 63, 64, 88, 89):
            proof = prove(ledger, TENANT, index, KEY.public_key())
            assert proof is not None
            (self.proofs / f"{index}.tlog-proof").write_bytes(proof)


@pytest.fixture
def export(tmp_path: Path) -> Export:
    return Export(tmp_path)


def test_pymerkle_accepts_the_tree_and_refuses_every_changed_leaf(export: Export) -> None:
    with Verifier(PYMERKLE) as pymerkle:
        assert pymerkle.ask(export.folder, export.proofs) == "accepted"
        answers = [pymerkle.ask(export.folder, export.proofs) for _ in leaf_changes(export.folder)]
        assert len(answers) == SIZES[-1] and "accepted" not in answers
        for proof in sorted(export.proofs.iterdir()):
            raw = proof.read_bytes()
            proof.write_bytes(raw.replace(b"\n", b"\n" + base64.b64encode(bytes(32)) + b"\n", 2))
            assert pymerkle.ask(export.folder, export.proofs) != "accepted"
            proof.write_bytes(raw)
        assert pymerkle.ask(export.folder, export.proofs) == "accepted"


def _statement_accepted(folder: Path) -> bool:
    envelope = Envelope.from_dict(json.loads((folder / "statement.dsse.json").read_bytes()))
    key = SSlibKey.from_crypto(KEY.public_key(), keyid=key_id(KEY.public_key()))
    try:
        envelope.verify([key], 1)
    except VerificationError:
        return False
    return True


def _checkpoint_accepted(folder: Path) -> bool:
    text, _, line = (folder / "checkpoint").read_bytes().rpartition(b"\n\n")
    signature = base64.b64decode(line.split(b" ")[-1])[4:].hex()
    key = SSlibKey.from_crypto(KEY.public_key())
    try:
        key.verify_signature(Signature(key.keyid, signature), text + b"\n")
    except UnverifiedSignatureError:
        return False
    return True


def test_securesystemslib_accepts_the_statement_and_refuses_every_changed_payload(export: Export) -> None:
    assert _statement_accepted(export.folder)
    verdicts = [_statement_accepted(export.folder) for _ in payload_changes(export.folder)]
    assert len(verdicts) > 100 and not any(verdicts)
    assert _statement_accepted(export.folder)


def test_securesystemslib_accepts_the_checkpoint_and_refuses_every_changed_byte_of_its_text(export: Export) -> None:
    assert _checkpoint_accepted(export.folder)
    verdicts = [_checkpoint_accepted(export.folder) for _ in checkpoint_changes(export.folder)]
    assert len(verdicts) > 70 and not any(verdicts)
    assert _checkpoint_accepted(export.folder)
