"""`terraflow bundle`, from a new key to a bundle in force: output, errors and exit codes."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from terraflow.cli.main import application
from terraflow.contracts.document import BundleDocument
from terraflow.storage.sqlite.tools import open_tools
from tests.contracts.samples import capability, contract, document
from tests.contracts.test_source import yaml


def terraflow(*arguments: object, code: int = 0) -> Result:
    asked = ["bundle", *map(str, arguments)]
    done = CliRunner().invoke(application(asked), asked)
    assert done.exit_code == code, (done.stdout, done.stderr)
    return done


def as_json(*arguments: object, code: int = 0) -> dict[str, Any]:
    done = terraflow(*arguments, "--json", code=code)
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder whose plane trusts the key beside it."""
    data = tmp_path_factory.mktemp("data")
    open_tools(data, make=True).close()
    terraflow("key", "--out", data / "keys" / "bundle.pem")
    return data


def source(at: Path, **changes: Any) -> Path:
    at.write_bytes(yaml(document(expires="2099-01-01T00:00:00Z", **changes)))
    return at


def test_a_key_pair_is_made_once_and_the_private_half_is_the_owners(tmp_path: Path) -> None:
    path = tmp_path / "signing.pem"
    said = as_json("key", "--out", path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert said["public_key"] == str(tmp_path / "signing.pub.pem")
    assert len(said["key_id"]) == 64
    again = terraflow("key", "--out", path, "--json", code=2)
    assert "never overwritten" in again.stderr and again.stdout == ""


def test_from_a_source_to_a_bundle_in_force(folder: Path, tmp_path: Path) -> None:
    private, public = folder / "keys" / "bundle.pem", folder / "keys" / "bundle.pub.pem"
    first = source(tmp_path / "first.yaml", sequence=1)
    assert as_json("verify", first, "--source")["valid"] is True
    signed = as_json("sign", first, "--key", private)
    assert signed["file"] == str(tmp_path / "first.dsse.json")
    verified = as_json("verify", signed["file"], "--key", public)
    activated = as_json("activate", signed["file"], "--data", folder)
    assert activated["digest"] == verified["digest"]
    with open_tools(folder) as tools:
        assert tools.active_bundle() == Path(signed["file"]).read_bytes()
    again = as_json("activate", signed["file"], "--data", folder, code=1)
    assert again["problems"][0]["field"] == "sequence"
    assert "raise it" in again["problems"][0]["rule"]
    second = as_json("sign", source(tmp_path / "second.yaml", sequence=2), "--key", private, "--out", tmp_path / "b")
    assert as_json("activate", second["file"], "--data", folder)["sequence"] == 2


def test_a_refused_bundle_lists_every_problem_and_leaves_the_active_one(folder: Path, tmp_path: Path) -> None:
    with open_tools(folder) as tools:
        before = tools.active_bundle()
    broken = source(tmp_path / "x.yaml", contracts=[contract(safe_path="ghost", default_tier="gold")])
    found = terraflow("sign", broken, "--key", folder / "keys" / "bundle.pem", code=1)
    assert "contracts[starter].safe_path" in found.stderr
    assert "contracts[starter].default_tier" in found.stderr
    terraflow("key", "--out", tmp_path / "other.pem")
    signed = as_json("sign", source(tmp_path / "y.yaml", sequence=99), "--key", tmp_path / "other.pem")
    refused = as_json("activate", signed["file"], "--data", folder, code=1)
    assert refused["problems"][0]["field"] == "signature"
    assert as_json("verify", signed["file"], "--key", folder / "keys" / "bundle.pub.pem", code=1)["valid"] is False
    with open_tools(folder) as tools:
        assert tools.active_bundle() == before


def test_an_address_outside_the_private_networks_is_not_activated(folder: Path, tmp_path: Path) -> None:
    outside = capability("gamma", provider="openai", endpoint="http://198.51.100.7:8000/v1")
    value = {"capabilities": [capability("alpha"), capability("beta"), outside], "sequence": 50}
    signed = as_json("sign", source(tmp_path / "z.yaml", **value), "--key", folder / "keys" / "bundle.pem")
    refused = as_json("activate", signed["file"], "--data", folder, code=1)
    assert refused["problems"][0]["field"] == "capabilities[gamma].endpoint"
    assert "private networks" in refused["problems"][0]["rule"]


def test_show_prints_a_source_and_a_signed_bundle_alike(folder: Path, tmp_path: Path) -> None:
    written = source(tmp_path / "s.yaml")
    signed = as_json("sign", written, "--key", folder / "keys" / "bundle.pem")
    assert as_json("show", written) == as_json("show", signed["file"])
    assert set(as_json("show", written)) == set(BundleDocument.__struct_fields__)
    text = terraflow("show", signed["file"]).stdout
    for part in ("tenants", "applications", "workloads", "contracts", "capabilities"):
        assert f"\n{part}\n" in text
    assert "  assistant, tenant acme\n    business_unit: " in text
    assert "  gamma\n    provider: openai\n    model: gamma-model\n" in text


def test_show_leaves_nothing_out_that_was_written(tmp_path: Path) -> None:
    lines = terraflow("show", "terraflow/app/starter.yaml").stdout.splitlines()
    for line in (
        "  starter-app, tenant starter",
        "    workloads: starter-assistant, starter-extract, starter-restricted, starter-nightly",
        "    data_classes: public, internal, confidential",
        "    aliases: assistant-fast sim-small, assistant-best sim-large",
        "    output: json_schema type object, requested_schema yes",
        "    prices: input 200000, output 600000, cached_input 20000",
        "    terms: trains no, retention_days 0",
        "    secret: env:OPENAI_API_KEY",
        "  tenant starter, workload, starter-assistant, hour",
        "    limit_usd: 10",
    ):
        assert line in lines, line
    written = source(tmp_path / "s.yaml", capabilities=[capability("alpha"), capability("beta"), capability("gamma")])
    assert "budgets: none" in terraflow("show", written).stdout


def test_what_cannot_be_done_says_what_to_do(folder: Path, tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    written = source(tmp_path / "w.yaml")
    assert "cannot read" in terraflow("verify", absent, "--source", code=2).stderr
    assert "--source" in terraflow("verify", written, code=2).stderr
    assert "bundle key" in terraflow("sign", written, "--key", absent, code=2).stderr
    signed = as_json("sign", written, "--key", folder / "keys" / "bundle.pem")
    assert "bundle_keys" in terraflow("activate", signed["file"], "--data", absent, code=1).stderr
    (absent / "keys").mkdir(parents=True)
    (absent / "keys" / "bundle.pub.pem").write_bytes((folder / "keys" / "bundle.pub.pem").read_bytes())
    assert "--data" in terraflow("activate", signed["file"], "--data", absent, code=2).stderr
    assert "Usage" in terraflow("--help").stdout


def test_a_key_of_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nothing")
    assert str(wrong) in terraflow("sign", source(tmp_path / "w.yaml"), "--key", wrong, code=2).stderr
