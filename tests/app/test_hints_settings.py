"""The hint service's settings: where they come from, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from terraflow.app.hints_settings import HintsSettings, load_hints_settings
from terraflow.app.loading import BadSettings
from terraflow.app.settings import Settings, load_settings
from terraflow.hints.deciding.rank import RankerConfig
from terraflow.hints.service.identity import Binding


def toml(folder: Path, text: str) -> Path:
    path = folder / "hints.toml"
    path.write_text(text)
    return path


def test_the_environment_overrides_the_file_and_flags_override_both(tmp_path: Path) -> None:
    file = toml(tmp_path, 'bind_host = "127.0.0.2"\nbind_port = 1\nttl_s = 60')
    settings = load_hints_settings(
        file, {"TERRAFLOW_HINTS_BIND_PORT": "2", "TERRAFLOW_HINTS_TTL_S": "90.5"}, bind_port=3
    )
    assert (settings.bind_host, settings.bind_port, settings.ttl_s) == ("127.0.0.2", 3, 90.5)


def test_tables_stand_in_the_file(tmp_path: Path) -> None:
    text = """
        tls_cert_file = "c"
        tls_key_file = "k"
        client_ca_file = "a"
        [[identities]]
        name = "engines"
        tenants = ["acme"]
        replicas = ["engine-*"]
        [tokenizers]
        "llama" = "/models/llama"
        [tier_weights]
        T2 = 0.5
    """
    settings = load_hints_settings(toml(tmp_path, text), {})
    assert settings.identities == (Binding(name="engines", tenants=("acme",), replicas=("engine-*",)),)
    assert settings.tokenizers == {"llama": "/models/llama"}
    assert settings.ranker() == RankerConfig(tier_weights={2: 0.5})


def test_alone_answers_are_the_references() -> None:
    settings = HintsSettings()
    assert settings.ranker() == RankerConfig()
    assert (settings.minimum_matched_share, settings.assignment_memory) == (None, False)


@pytest.mark.parametrize(
    ("text", "environment", "said"),
    [
        ("bind_prot = 1", {}, "bind_prot: did you mean bind_port"),
        ("", {"TERRAFLOW_HINTS_TTL": "1"}, "unknown setting ttl"),
        ("ttl_s = 0", {}, "ttl_s"),
        ("entries_max = 'many'", {}, "entries_max"),
        ("", {"TERRAFLOW_HINTS_ENTRIES_MAX": "0"}, "TERRAFLOW_HINTS_ENTRIES_MAX"),
        ("bind_host = '0.0.0.0'", {}, "insecure_plaintext"),
        ("internal_host = '0.0.0.0'", {}, "internal_host"),
        ("tls_cert_file = 'c'", {}, "go together"),
        ("client_ca_file = 'c'", {}, "client_ca_file is for TLS"),
        ("tls_cert_file = 'c'\ntls_key_file = 'k'\nclient_cert_required = true", {}, "needs client_ca_file"),
        ("[[identities]]\nname = 'x'\ntenants = ['t']", {}, "identities are for client certificates"),
        ("[[identities]]\nname = 'x'\ntenant = 't'", {}, "identities"),
        ("[tier_weights]\nT4 = 1", {}, "T4"),
        ("policy_dir = ''", {}, "policy_dir is empty"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(
    tmp_path: Path, text: str, environment: dict[str, str], said: str
) -> None:
    with pytest.raises(BadSettings, match=said):
        load_hints_settings(toml(tmp_path, text), environment)


@pytest.mark.parametrize("setting", ["bind_host", "internal_host"])
@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "::", "example.org"])
def test_plaintext_stays_at_home(setting: str, host: str) -> None:
    said = {"bind_host": "reachable from outside", "internal_host": "its token would pass in the clear"}[setting]
    with pytest.raises(BadSettings, match=f"{setting} {host} .*{said}"):
        load_hints_settings(None, {}, **{setting: host})
    load_hints_settings(None, {}, **{setting: host, "insecure_plaintext": True})


@pytest.mark.parametrize("setting", ["bind_host", "internal_host"])
@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_no_word(setting: str, host: str) -> None:
    load_hints_settings(None, {}, **{setting: host})


def test_a_planes_variables_and_those_of_kubernetes_are_not_ours() -> None:
    environment = {
        "TERRAFLOW_HINTS": "inside",
        **{f"TERRAFLOW_{key.upper()}": "x" for key in Settings.__struct_fields__ if key.startswith("hints")},
        "TERRAFLOW_HINTS_PORT_50051_TCP": "tcp://10.0.0.1:50051",
        "TERRAFLOW_HINTS_SERVICE_HOST": "10.0.0.1",
        "TERRAFLOW_BIND_PORT": "1",
    }
    assert load_hints_settings(None, environment) == HintsSettings()


def test_the_services_variables_do_not_keep_a_plane_from_starting() -> None:
    settings = load_settings(None, {"TERRAFLOW_HINTS_TTL_S": "60", "TERRAFLOW_HINTS": "inside"})
    assert settings.hints == "inside"
