"""A request is called on the definition that was planned for it, whatever the bundle says meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from terraflow.contracts.bundle import Bundle
from tests.harness.bundle import document, purpose, sim
from tests.harness.inside import Inside, plane_inside


async def activate(inside: Inside, *acts: dict[str, str], **changes: object) -> Bundle:
    inside.folder.activate(document(purpose("w", sim("m", *acts, **changes))))
    await inside.parts.bundles.refresh()
    bundle = inside.parts.plane.bundles.active()
    assert isinstance(bundle, Bundle)
    return bundle


async def test_a_changed_capability_has_a_new_provider_and_the_planned_one_stays(tmp_path: Path) -> None:
    async with plane_inside(tmp_path / "data", document(purpose("w", sim("m")))) as inside:
        providers = inside.parts.providers
        before = inside.parts.plane.bundles.active()
        assert isinstance(before, Bundle)
        planned = before.capabilities["m"]
        first = providers.provider(planned)
        same = await activate(inside)
        assert providers.provider(same.capabilities["m"]) is first
        assert providers._open["m"].capability is same.capabilities["m"], "no request compares definitions"
        changed = await activate(inside, {"text": "other"}, boundary="external")
        assert providers.provider(changed.capabilities["m"]) is not first
        assert providers.provider(planned) is first


async def test_a_dropped_capability_stays_callable_for_who_planned_it(tmp_path: Path) -> None:
    async with plane_inside(tmp_path / "data", document(purpose("w", sim("gone")))) as inside:
        before = inside.parts.plane.bundles.active()
        assert isinstance(before, Bundle)
        await activate(inside)
        gone = before.capabilities["gone"]
        assert inside.parts.providers.provider(gone)
        assert inside.parts.providers.ready(gone)
        assert inside.parts.providers.inside_boundary(gone)
        with pytest.raises(KeyError):
            inside.parts.providers.ready(msgspec.structs.replace(gone, model="never-in-force"))


async def test_what_no_request_can_need_any_more_is_closed_without_another_bundle(tmp_path: Path) -> None:
    at = {"provider": "openai", "endpoint": "http://127.0.0.1:9/v1"}
    made = document(purpose("w", sim("m"), sim("gone", **at)))
    async with plane_inside(tmp_path / "data", made, deadline_ms_max=200) as inside:
        providers = inside.parts.providers
        before = inside.parts.plane.bundles.active()
        assert isinstance(before, Bundle)
        gone = before.capabilities["gone"]
        await activate(inside)
        assert providers.ready(gone) and len(providers._outbound._endpoints) == 1
        await asyncio.sleep(0.4)
        with pytest.raises(KeyError):
            providers.provider(gone)
        assert providers._outbound._endpoints == {}


async def test_a_provider_that_is_retired_is_closed_with_the_plane(tmp_path: Path) -> None:
    at = {"provider": "openai", "endpoint": "http://127.0.0.1:9/v1"}
    async with plane_inside(tmp_path / "data", document(purpose("w", sim("m"), sim("gone", **at)))) as inside:
        await activate(inside)
        providers = inside.parts.providers
        assert len(providers._retired) == 1
    assert (providers._retired, providers._outbound._endpoints) == ({}, {})


async def test_a_credential_that_no_header_can_carry_switches_its_capability_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAD_SECRET", "line\nbreak")
    remote = sim("r", provider="openai", endpoint="http://127.0.0.1:9/v1", secret="env:BAD_SECRET")
    async with plane_inside(tmp_path / "data", document(purpose("w", sim("m"), remote))) as inside:
        bundle = inside.parts.plane.bundles.active()
        assert isinstance(bundle, Bundle)
        assert not inside.parts.providers.ready(bundle.capabilities["r"])
        assert inside.parts.providers.ready(bundle.capabilities["m"])
