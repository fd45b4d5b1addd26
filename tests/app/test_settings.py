"""Settings: a file, the environment over it, flags over both; what is not known refuses to start."""

from pathlib import Path

import pytest

from terraflow.app.settings import BadSettings, Settings, load_settings


def toml(path: Path, text: str) -> Path:
    file = path / "terraflow.toml"
    file.write_text(text)
    return file


def test_the_environment_overrides_the_file_and_flags_override_both(tmp_path: Path) -> None:
    file = toml(tmp_path, 'bind_port = 1\nrunning_max = 7\nbind_host = "127.0.0.2"\n')
    settings = load_settings(file, {"TERRAFLOW_BIND_PORT": "2", "TERRAFLOW_RUNNING_MAX": "8"}, bind_port=3)
    assert (settings.bind_host, settings.bind_port, settings.running_max) == ("127.0.0.2", 3, 8)


def test_lists_and_switches_are_read_from_text() -> None:
    settings = load_settings(
        None, {"TERRAFLOW_TRUSTED_PROXIES": "10.0.0.0/8, 192.0.2.1/32", "TERRAFLOW_ACCESS_LOG": "false"}
    )
    assert settings.trusted_proxies == ("10.0.0.0/8", "192.0.2.1/32")
    assert settings.access_log is False


@pytest.mark.parametrize(
    "name", ["TERRAFLOW_PORT", "TERRAFLOW_PORT_8080_TCP_ADDR", "TERRAFLOW_SERVICE_HOST", "OTHER_X"]
)
def test_what_kubernetes_injects_is_not_ours(name: str) -> None:
    assert load_settings(None, {name: "tcp://10.0.0.1:80"}) == Settings()


@pytest.mark.parametrize(
    ("text", "environment", "said"),
    [
        ("no_such_key = 1", {}, "unknown setting no_such_key"),
        ("", {"TERRAFLOW_NO_SUCH_KEY": "1"}, "unknown setting no_such_key"),
        ("runing_max = 1", {}, "unknown setting runing_max: did you mean running_max?"),
        ("", {"TERRAFLOW_DATADIR": "x"}, r"unknown setting datadir \(from TERRAFLOW_DATADIR\): did you mean data_dir?"),
        ("a = 1\nb = 2", {}, "unknown setting a: see .*; unknown setting b: see"),
        ("", {"TERRAFLOW_RUNNING_MAX": "many"}, r"^running_max \(from TERRAFLOW_RUNNING_MAX\): expected int, got str$"),
        ("", {"TERRAFLOW_TRUSTED_PROXIES": "here"}, r"trusted_proxies \(from TERRAFLOW_TRUSTED_PROXIES\) holds 'here'"),
        ("trusted_proxies = '10.0.0.0/8'", {}, "^trusted_proxies: expected array, got str$"),
        ("bundle_keys = [1, 2]", {}, "^bundle_keys: expected str, got int$"),
        ("data_dir = ''", {}, "data_dir is empty: give a value, or leave it out"),
        ("", {"TERRAFLOW_DATA_DIR": ""}, r"data_dir \(from TERRAFLOW_DATA_DIR\) is empty"),
        ("tls_cert_file = ''\ntls_key_file = ''", {}, "tls_cert_file is empty"),
        ("bundle_keys = ['a', '']", {}, "bundle_keys is empty"),
        ("running_max = 0", {}, "^running_max: expected int >= 1$"),
        ("running_max = 'many'", {}, "running_max"),
        ("bind_port = 70000", {}, "bind_port"),
        ("log_level = 'loud'", {}, "log_level"),
        ("[section]\nkey = 1", {}, "unknown setting section"),
        ("not toml", {}, "is not TOML"),
        ("tls_cert_file = 'a.pem'", {}, "go together"),
        ("bind_host = '0.0.0.0'", {}, "reachable from outside"),
        ("bind_host = 'example.org'", {}, "reachable from outside"),
        ("trusted_proxies = ['somewhere']", {}, "is not a network"),
        ("private_networks = ['10.0.0.1/8']", {}, "is not a network"),
    ],
)
def test_what_cannot_be_used_says_which_key_and_why(
    tmp_path: Path, text: str, environment: dict[str, str], said: str
) -> None:
    with pytest.raises(BadSettings, match=said):
        load_settings(toml(tmp_path, text), environment)


def test_a_flag_that_is_empty_is_refused() -> None:
    with pytest.raises(BadSettings, match=r"^data_dir is empty"):
        load_settings(None, {"TERRAFLOW_DATA_DIR": "x"}, data_dir="")


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="cannot read the settings file"):
        load_settings(tmp_path / "none.toml", {})


@pytest.mark.parametrize(
    "settings",
    [
        {"bind_host": "0.0.0.0", "trusted_proxies": ["10.0.0.0/8"]},
        {"bind_host": "0.0.0.0", "tls_cert_file": "a", "tls_key_file": "b"},
        {"bind_host": "::1"},
        {"bind_host": "localhost"},
        {"bind_host": "127.0.0.53"},
    ],
)
def test_an_address_that_is_guarded_or_local_is_served(settings: dict[str, object]) -> None:
    assert load_settings(None, {}, **settings).bind_host == settings["bind_host"]
