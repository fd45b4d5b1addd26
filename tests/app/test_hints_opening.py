"""What the hint service's settings name and cannot be used is one line with the setting and the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from terraflow.app.hints_opening import open_internal_token, open_tls, read_namespace_key
from terraflow.app.hints_settings import HintsSettings
from terraflow.app.keys import KeyUnusable
from terraflow.app.opening import CannotStart


def test_the_internal_token_is_made_once_and_for_its_owner(tmp_path: Path) -> None:
    settings = HintsSettings(data_dir=str(tmp_path))
    token = open_internal_token(settings)
    assert len(token) >= 32
    assert open_internal_token(settings) == token == settings.token_path().read_bytes().strip()
    assert settings.token_path().stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "held", [b"", b"short\n", b"fifteen-letters", b"sixteen letters with spaces", b"\xffixteen-letters"]
)
def test_a_token_that_is_none_is_refused(tmp_path: Path, held: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(held)
    with pytest.raises(KeyUnusable, match=f"internal_token_file: {file} must hold 16 to 512"):
        open_internal_token(HintsSettings(internal_token_file=str(file)))
    file.write_bytes(b" sixteen-letters! \n")
    assert open_internal_token(HintsSettings(internal_token_file=str(file))) == b"sixteen-letters!"


def test_a_token_that_is_named_is_not_made(tmp_path: Path) -> None:
    file = tmp_path / "nowhere"
    with pytest.raises(CannotStart, match=f"internal_token_file: cannot use {file}: No such file"):
        open_internal_token(HintsSettings(internal_token_file=str(file)))
    assert not file.exists()


def test_a_namespace_key_has_its_length(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"k" * 31)
    with pytest.raises(KeyUnusable, match=f"namespace_key_file: {file} must hold 32 bytes or more"):
        read_namespace_key(HintsSettings(namespace_key_file=str(file)))
    file.write_bytes(b"k" * 32)
    assert read_namespace_key(HintsSettings(namespace_key_file=str(file))) == b"k" * 32
    assert read_namespace_key(HintsSettings()) is None


def test_without_tls_files_there_is_no_tls() -> None:
    assert open_tls(HintsSettings()) is None
