"""The generated references hold every setting and every command."""

from __future__ import annotations

from terraflow.app.settings import Settings
from terraflow.classify.detectors import DETECTORS
from terraflow.cli.main import COMMANDS
from tools.pages import commands, detectors, settings


def test_every_setting_has_a_row_with_its_default_and_its_bounds() -> None:
    text = settings.page()
    for name in Settings.__struct_fields__:
        assert f"\n| `{name}` | " in text
    assert "| `bind_port` | `8080` | integer, 0 to 65535 | The port; 0 picks a free one. |" in text
    assert "| `trusted_proxies` | empty | list of text | " in text
    assert "| `log_level` | `info` | text, `debug`, `info`, `warning`, `error` | " in text


def test_every_setting_says_something() -> None:
    said = settings.docstrings()
    assert set(said) == set(Settings.__struct_fields__)
    assert all(len(text.split()) >= 5 for text in said.values())


def test_every_command_has_a_section_with_its_options() -> None:
    text = commands.page()
    for row in COMMANDS:
        assert f"\n## terraflow {row.name}\n" in text
    assert "--port <int>     Port, 0 for a free one; overrides bind_port." in text


def test_every_detector_has_a_row_that_says_what_it_takes() -> None:
    text = detectors.page()
    assert all(f"| `{row.name}` | " in text for row in DETECTORS)
    assert {row.locate for row in detectors.structured()} == set(detectors.SAYS)
    assert "`ghp_` 36" in text and "| `us_ssn` | `pii` | digits grouped 3-2-4" in text
