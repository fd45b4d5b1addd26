"""What a model's structured answer becomes: JSON where it is some, and text where it is not."""

from __future__ import annotations

import msgspec
import pytest

from terraflow.gateway.mouths.invocations import _output


@pytest.mark.parametrize("said", ["{", "", "[" * 100_000, '{"a":' * 50_000])
def test_what_is_no_json_stays_text(said: str) -> None:
    assert _output(said, structured=True) == said


def test_json_is_passed_on_as_it_stands() -> None:
    assert msgspec.json.encode(_output('{"a": 1.0}', structured=True)) == b'{"a": 1.0}'
    assert _output('{"a": 1.0}', structured=False) == '{"a": 1.0}'
