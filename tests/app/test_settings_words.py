"""A setting that cannot be used says what to write instead, and in which of several tables it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from terraflow.app.hints_opening import open_feeds
from terraflow.app.hints_settings import load_hints_settings
from terraflow.app.loading import BadSettings
from terraflow.app.opening import CannotStart
from terraflow.app.settings import load_settings
from terraflow.hints.index.index import Index
from tests.hints.feed.hostile import IndexSink

FEED = """
[[feeds]]
replica = "{name}"
tenant = "t"
model = "m"
scheme = "s"
endpoint = "{at}"
"""
GOOD = FEED.format(name="e1", at="tcp://127.0.0.1:1")


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('log_level = "loud"', "log_level: give one of debug, info, warning, error"),
        (
            GOOD + FEED.format(name="e2", at="127.0.0.1:5557"),
            "[[feeds]] number 2 (replica e2): endpoint: give tcp://HOST:PORT or ipc://PATH",
        ),
        (GOOD + 'metrics_url = "ftp://x"', "[[feeds]] number 1 (replica e1): metrics_url: give an http:// or https://"),
        (
            GOOD + GOOD.replace("e1", "e2") + 'replay_endpoit = "tcp://x:1"',
            "[[feeds]] number 2 (replica e2): replay_endpoit: is no key of it: did you mean replay_endpoint?",
        ),
        (GOOD.replace('scheme = "s"\n', ""), "[[feeds]] number 1 (replica e1): scheme: is missing"),
        (
            '[[identities]]\nname = "a"\ntenants = ["t"]\n[[identities]]\nname = "b"',
            "[[identities]] number 2 (name b): tenants: is missing",
        ),
        ('[[identities]]\ntenants = ["t"]', "[[identities]] number 1: name: is missing"),
        ("[tier_weights]\nT1 = -1", "tier_weights: expected float >= 0.0"),
        (GOOD + 'loras = {"7" = ""}', "[[feeds]] number 1 (replica e1): loras: expected str of length >= 1"),
        ("token_keys = [1]", "token_keys: expected str, got int"),
        ("bind_port = 99999", "bind_port: expected int <= 65535"),
    ],
)
def test_a_setting_of_the_service(tmp_path: Path, toml: str, said: str) -> None:
    file = tmp_path / "hints.toml"
    file.write_text(toml)
    with pytest.raises(BadSettings) as refused:
        load_hints_settings(file, {})
    assert str(refused.value).startswith(said)
    assert "regex" not in str(refused.value)


def test_two_tables_of_one_feed(tmp_path: Path) -> None:
    file = tmp_path / "hints.toml"
    file.write_text(GOOD + GOOD.replace("e1", "e2") + GOOD)
    with pytest.raises(CannotStart) as refused:
        open_feeds(load_hints_settings(file, {}), IndexSink(Index()))
    said = "number 3 is of the same tenant, model and replica as number 1: t/m/e1"
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("HINTS", "hints.internal", "hints (from TERRAFLOW_HINTS): give off, inside or HOST:PORT"),
        ("LOG_LEVEL", "loud", "log_level (from TERRAFLOW_LOG_LEVEL): give one of debug, info, warning, error"),
    ],
)
def test_a_setting_of_the_plane(name: str, value: str, said: str) -> None:
    with pytest.raises(BadSettings) as refused:
        load_settings(None, {f"TERRAFLOW_{name}": value})
    assert str(refused.value) == said
