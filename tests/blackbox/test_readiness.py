"""What a plane says of itself to probes and to its operator: when it is not ready, why, and why it does not start."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from terraflow.core.reasons import Governed, ModelApi
from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.bundle import moment, purpose, sim
from tests.harness.caller import until
from tests.harness.checks import Checks
from tests.harness.plane import NotServing

DOCUMENT = bundle.document(purpose("plain", sim("one")))


def ready(site: Site) -> tuple[int, Any]:
    response = site.caller.get("/readyz", root=True)
    return response.status_code, response.json()


def unready(reason: str) -> tuple[int, Any]:
    return 503, {"status": "unready", "reason": reason}


def test_a_bundle_that_expires_ends_readiness(launch: Launch, checks: Checks) -> None:
    site = launch(DOCUMENT | {"expires": moment(4)})
    assert ready(site) == (200, {"status": "ok"})
    site.plane.wait_for("bundle 1 expires at")
    until(lambda: ready(site) == unready("the bundle in force has expired"), 10)
    checks.refused(site.caller, site.caller.ask(), Governed.BUNDLE_EXPIRED)
    site.plane.wait_for("bundle 1 expired at")
    assert site.caller.get("/healthz", root=True).status_code == 200
    site.folder.activate(DOCUMENT)
    until(lambda: ready(site)[0] == 200)
    assert site.plane.errors().count('"level":"error"') == 1
    site.plane.restart()
    assert site.plane.errors().count("bundle 2 expires at") == 2, "one warning when it was seen, one at the next start"


def test_a_plane_without_a_bundle_says_so(launch: Launch) -> None:
    site = launch(None)
    assert ready(site) == unready("no bundle is in force")
    assert site.plane.errors().count("no bundle is in force, so every request is refused") == 1


def test_a_bundle_that_this_version_cannot_use_leaves_a_plane_that_says_so(launch: Launch, checks: Checks) -> None:
    site = launch(DOCUMENT, prepare=lambda folder: folder.tamper_with_bundle("dialect"))
    assert ready(site) == unready("no bundle is in force")
    assert "is none of simulated" in site.plane.errors()
    checks.refused(site.caller, site.caller.ask(), Governed.BUNDLE_INVALID)
    site.folder.activate(DOCUMENT)
    until(lambda: ready(site)[0] == 200)


def test_a_damaged_log_ends_readiness(launch: Launch, checks: Checks) -> None:
    site = launch(DOCUMENT)
    checks.answered(site.caller, site.caller.ask(), capability="one")
    until(lambda: site.folder.rows("SELECT * FROM checkpoint"))
    with site.folder.database() as database:
        database.execute(
            "INSERT INTO leaf SELECT max(position) + 1, request_id, application, 'other', data, zeroblob(32) FROM leaf"
        )
    until(lambda: ready(site) == unready("a tenant's log is damaged and is not signed any more"))
    site.plane.wait_for("the log of tenant acme is damaged")


def test_probes_beside_the_plane_need_no_proxy(launch: Launch, checks: Checks) -> None:
    site = launch(DOCUMENT, trusted_proxies=["10.0.0.0/8"])
    assert ready(site) == (200, {"status": "ok"})
    assert site.caller.get("/healthz", root=True).status_code == 200
    checks.ungoverned(site.caller.get("/models"), ModelApi.INVALID_REQUEST, field="connection", named=False)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_plane_without_the_key_of_its_logs_does_not_start(replaced: bool, launch: Launch, checks: Checks) -> None:
    site = launch(DOCUMENT)
    checks.answered(site.caller, site.caller.ask(), capability="one")
    site.plane.stop()
    keys = site.folder.path / "keys"
    away = keys.rename(site.folder.path / "away")
    keys.mkdir()
    shutil.copy(away / "bundle.pub.pem", keys)
    if replaced:
        shutil.copy(away / "bundle.pem", keys / "log.pem")
    said = "log.pem is not the key that signed" if replaced else "log.pem is missing, and this data folder's logs"
    with pytest.raises(NotServing, match=said):
        site.plane.start()
    last = site.plane.errors().splitlines()[-1]
    assert last.startswith("terraflow serve: ") and "Traceback" not in site.plane.errors()
    assert (keys / "log.pem").exists() is replaced
    shutil.rmtree(keys)
    away.rename(keys)
    site.plane.start()
    checks.answered(site.caller, site.caller.ask(), capability="one")
