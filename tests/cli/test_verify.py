"""`terraflow evidence` and `terraflow verify` as a shell sees them, over the plane's own store."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from terraflow.app.keys import new_key
from terraflow.app.runtime import SystemClock
from terraflow.evidence.checkpoint import log_key
from terraflow.evidence.log import Integrator
from terraflow.evidence.proof import prove
from terraflow.ports.store import Entry
from terraflow.storage.sqlite.folder import DATABASE
from terraflow.storage.sqlite.store import open_store
from terraflow.storage.sqlite.tools import open_tools
from terraflow.verifier.formats import Refused, parse_key
from terraflow.verifier.proof import verify_answer
from tests.cli.test_reason import terraflow
from tests.evidence.sample import TENANT, entries

RECORDS = 300


class Workspace:
    """A data folder with a log of 300 records, signed at 100 and at 300."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.notes: list[bytes] = []
        self.data.mkdir()
        key = new_key(self.data / "keys" / "log.pem")
        self.key = log_key(TENANT, key.public_key())
        source = entries()
        written = [next(source) for _ in range(RECORDS)]

        async def fill() -> None:
            store = open_store(self.data, clock=SystemClock())
            integrator = Integrator(store.ledger, key)
            for part in (written[:100], written[100:]):
                await store.finish([_entry(data) for data in part])
                done = await asyncio.to_thread(integrator.step, TENANT)
                assert done is not None
                self.notes.append(done.checkpoint)
            self.proofs = [
                (
                    await asyncio.to_thread(store.ledger.leaves, TENANT, at, at + 1),
                    await asyncio.to_thread(prove, store.ledger, TENANT, at, key.public_key()),
                )
                for at in (0, 4)
            ]
            await store.close()

        asyncio.run(fill())


def _entry(data: bytes) -> Entry:
    record = json.loads(data)
    return Entry(TENANT, "app_support", record["request_id"], record["kind"], data)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("workspace"))


@pytest.fixture(scope="module")
def exported(workspace: Workspace) -> Path:
    out = workspace.data.parent / "out"
    done = terraflow("evidence", "export", "--tenant", TENANT, "--out", str(out), "--data", str(workspace.data))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == f"terraflow verify {out} --key {workspace.key}"
    return out


def test_an_export_of_the_plane_is_verified_with_the_key_that_the_plane_prints(
    workspace: Workspace, exported: Path, tmp_path: Path
) -> None:
    key = terraflow("evidence", "key", "--tenant", TENANT, "--data", str(workspace.data))
    assert (key.returncode, key.stdout.strip()) == (0, workspace.key)
    (tmp_path / "key").write_text(key.stdout)
    done = terraflow("verify", str(exported), "--key", str(tmp_path / "key"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("VERIFIED  terraflow.acme/evidence: 300 records, root ")
    assert "requests 152, ended 148, open 4; feedbacks 0; checkpoints 2; files 9" in done.stdout


def test_an_earlier_checkpoint_is_continued_or_not(workspace: Workspace, exported: Path, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    seen.write_bytes(workspace.notes[0])
    done = terraflow("verify", str(exported), "--key", workspace.key, "--previous", str(seen), "--json")
    verdict = json.loads(done.stdout)
    assert (done.returncode, verdict["verified"], verdict["previous_size"]) == (0, True, 100)
    seen.write_bytes(workspace.notes[0].replace(b"\n100\n", b"\n101\n"))
    done = terraflow("verify", str(exported), "--key", workspace.key, "--previous", str(seen), "--json")
    assert (done.returncode, json.loads(done.stdout)["where"]) == (1, "previous checkpoint")


def test_a_refusal_says_what_failed_and_where_and_exits_with_1(
    workspace: Workspace, exported: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(exported, tmp_path / "copy"))
    (copy / "tile/0/001.p/44").write_bytes(bytes(44 * 32))
    done = terraflow("verify", str(copy), "--key", workspace.key)
    assert done.returncode == 1
    assert done.stdout.startswith("REFUSED  tile/0/001.p/44: has been changed")
    as_json = terraflow("verify", str(copy), "--key", workspace.key, "--json")
    assert as_json.returncode == 1
    assert set(json.loads(as_json.stdout)) == {"verified", "where", "what"}
    (copy / "x\x1b[31m\xe9\nVERIFIED").write_bytes(b"")
    done = terraflow("verify", str(copy), "--key", workspace.key)
    assert done.stdout.startswith("REFUSED  x\\x1b[31m\\xe9\\nVERIFIED: is not listed")


def test_a_refusal_names_the_record_that_does_not_hold(workspace: Workspace, exported: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(exported, tmp_path / "copy"))
    records = (copy / "records.jsonl").read_bytes().split(b"\n")
    request_id = json.loads(records[260])["request_id"]
    named = {"tenant": TENANT, "index": 260, "request_id": request_id}
    for name in ("records.jsonl", "tile/entries/001.p/44"):
        whole = (copy / name).read_bytes()
        at = whole.index(records[260])
        (copy / name).write_bytes(whole[: at + 3] + bytes([whole[at + 3] ^ 1]) + whole[at + 4 :])
        done = terraflow("verify", str(copy), "--key", workspace.key)
        assert done.stdout.endswith(f" (record 260 of tenant {TENANT}, request {request_id})\n"), done.stdout
        as_json = terraflow("verify", str(copy), "--key", workspace.key, "--json")
        assert json.loads(as_json.stdout)["record"] == named
        (copy / name).write_bytes(whole)


def test_an_export_verifies_itself(workspace: Workspace, tmp_path: Path) -> None:
    out = ("evidence", "export", "--tenant", TENANT, "--data")
    done = terraflow(*out, str(workspace.data), "--out", str(tmp_path / "good"), "--json")
    said = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert (said["verified"], said["records"], said["key"], said["out"]) == (
        True,
        RECORDS,
        workspace.key,
        str(tmp_path / "good"),
    )
    damaged = Path(shutil.copytree(workspace.data, tmp_path / "damaged"))
    with open_tools(damaged) as tools:
        [leaf] = tools.ledger.leaves(TENANT, 7, 8)
    with closing(sqlite3.connect(damaged / DATABASE)) as database, database:
        changed = leaf.data.replace(b"acme", b"acne", 1)
        assert database.execute("UPDATE leaf SET data = ? WHERE data = ?", (changed, leaf.data)).rowcount == 1
    done = terraflow(*out, str(damaged), "--out", str(tmp_path / "bad"))
    assert (done.returncode, done.stdout) == (1, "")
    request_id = json.loads(leaf.data)["request_id"]
    assert done.stderr.startswith("terraflow evidence: the log is damaged: ")
    assert f"record 7 of tenant {TENANT}, request {request_id}" in done.stderr


def test_the_key_of_another_log_exports_nothing(workspace: Workspace, tmp_path: Path) -> None:
    other = Path(shutil.copytree(workspace.data, tmp_path / "other"))
    shutil.rmtree(other / "keys")
    for verb in (("export", "--out", str(tmp_path / "o")), ("key",)):
        done = terraflow("evidence", *verb, "--tenant", TENANT, "--data", str(other))
        assert (done.returncode, done.stdout) == (2, "")
        assert "cannot read the key" in done.stderr and not (other / "keys").exists()
    new_key(other / "keys" / "log.pem")
    for verb in (("export", "--out", str(tmp_path / "o")), ("key",)):
        done = terraflow("evidence", *verb, "--tenant", TENANT, "--data", str(other))
        assert (done.returncode, done.stdout) == (2, "")
        assert "log.pem is not the key that signed this data folder's logs" in done.stderr


def test_what_is_no_key_is_said_plainly(workspace: Workspace, exported: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("nothing")
    for key, said in (
        ("nonsense", "--key nonsense is neither a verifier key (<name>+<hash>+<base64>, as"),
        (str(tmp_path / "file"), f"--key: the file {tmp_path / 'file'} holds no verifier key"),
        ("a+b", "a verifier key is <name>+<hash>+<base64 of an Ed25519 key>"),
        (str(tmp_path), f"--key {tmp_path} is neither"),
    ):
        done = terraflow("verify", str(exported), "--key", key)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"terraflow verify: {said}"), done.stderr


def test_what_cannot_be_asked_exits_with_2(workspace: Workspace, exported: Path, tmp_path: Path) -> None:
    for arguments in (
        ["verify", str(tmp_path / "nothing"), "--key", workspace.key],
        ["verify", str(exported), "--key", workspace.key[:-3]],
        ["verify", str(exported), "--key", str(tmp_path / "no-key")],
        ["verify", str(exported), "--key", workspace.key, "--previous", str(tmp_path / "nothing")],
        ["evidence", "export", "--tenant", TENANT, "--out", str(exported), "--data", str(workspace.data)],
        ["evidence", "export", "--tenant", TENANT, "--out", str(tmp_path / "o"), "--data", str(tmp_path / "d")],
    ):
        done = terraflow(*arguments)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert done.stderr.startswith("terraflow ") and done.stderr.count("\n") == 1
    nobody = terraflow(
        "evidence", "export", "--tenant", "nobody", "--out", str(tmp_path / "o"), "--data", str(workspace.data)
    )
    assert (nobody.returncode, nobody.stdout) == (1, "")
    assert f"no log of tenant nobody; it has those of {TENANT}" in nobody.stderr


def test_the_answer_of_the_evidence_read_is_verified_too(workspace: Workspace, tmp_path: Path) -> None:
    parts = []
    for leaves, proof in workspace.proofs:
        assert proof is not None
        record = json.loads(leaves[0].data)
        parts.append(
            {
                "kind": record["kind"],
                "index": leaves[0].index,
                "record": record,
                "entry": base64.b64encode(leaves[0].data).decode(),
                "inclusion_proof": proof.decode(),
            }
        )
    answer = {
        "request_id": parts[0]["record"]["request_id"],
        "decision": parts[0]["record"],
        "outcome": parts[1]["record"],
        "records": parts,
    }
    file = tmp_path / "answer.json"
    file.write_text(json.dumps(answer))
    done = terraflow("verify", str(file), "--key", workspace.key)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        f"VERIFIED  {answer['request_id']}: intent at 0, outcome at 4, in terraflow.acme/evidence of 300 records\n"
    )
    for changed in (
        {**answer, "outcome": {**parts[1]["record"], "status": 403}},
        {**answer, "decision": None},
        {**answer, "request_id": "req_" + "0" * 32},
        {**answer, "records": []},
        {**answer, "records": [parts[0], {**parts[1], "inclusion_proof": None}]},
        {**answer, "records": [parts[0], {**parts[1], "inclusion_proof": parts[0]["inclusion_proof"]}]},
        {**answer, "records": [parts[0], {**parts[1], "index": 5}]},
        {**answer, "records": [parts[0], {**parts[1], "record": parts[0]["record"]}]},
        {**answer, "records": [parts[0], parts[0]]},
    ):
        with pytest.raises(Refused):
            verify_answer(json.dumps(changed).encode(), parse_key(workspace.key))
    file.write_text("[]")
    assert terraflow("verify", str(file), "--key", workspace.key).returncode == 1
