"""SIGTERM: everything that was recorded is written and signed before the process ends, and it ends well."""

from __future__ import annotations

import signal

import pytest

from terraflow.core.reasons import Governed
from tests.blackbox.conftest import Launch
from tests.harness import bundle
from tests.harness.bundle import purpose, sim

NEVER_MS = 3_600_000


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_plane_has_written_its_notes_and_signed_its_log(how: signal.Signals, launch: Launch) -> None:
    document = bundle.document(purpose("slow", sim("one"), requests_per_minute=1))
    site = launch(document, checkpoint_interval_ms=NEVER_MS)
    said = [site.caller.ask("slow").headers["x-terraflow-reason"] for _ in range(3)]
    assert said == [Governed.PERMITTED, Governed.RATE_LIMITED, Governed.RATE_LIMITED]
    assert site.plane._end(how) == 0
    [(leaves, signed)] = site.folder.rows("SELECT (SELECT count(*) FROM leaf), (SELECT max(size) FROM checkpoint)")
    assert (leaves, signed) == (6, 6)
