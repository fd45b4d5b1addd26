"""What a plane's settings and its bundle make of fleets: who advises them, what is read of engines, and when they are
full."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from terraflow.app.fleet_feeds import UNTOLD_SCHEME, feeds_of
from terraflow.app.fleets import Fleets, open_fleets
from terraflow.app.opening import CannotStart
from terraflow.app.runtime import SystemClock
from terraflow.app.settings import BadSettings, Settings, load_settings
from terraflow.contracts.bundle import Bundle
from terraflow.hints.live import LiveHints
from terraflow.hints.plane.content import SCHEME, ContentPrefixes
from terraflow.hints.plane.guarded import GuardedHints
from terraflow.hints.plane.inside import InsideHints
from terraflow.hints.plane.tokenized import TokenPrefixes
from terraflow.hints.words import Report, Scope, Stats
from tests.harness.bundle import document, purpose, sim
from tests.harness.inside import Inside, plane_inside
from tests.hints.feed.publisher import Publisher, batch, stored

BODY = {"model": "w", "messages": [{"role": "user", "content": "hello"}]}


def replica(name: str, **changes: Any) -> dict[str, Any]:
    return {"id": name, "endpoint": "http://127.0.0.1:9/v1"} | changes


def fleet(name: str, *replicas: dict[str, Any], **changes: Any) -> dict[str, Any]:
    members = list(replicas) or [replica("r0"), replica("r1")]
    return sim(name, provider="fleet", dialect="self_hosted", fleet={"replicas": members} | changes)


def live_of(inside: Inside) -> LiveHints:
    guarded = inside.parts.fleets._hints
    assert isinstance(guarded, GuardedHints) and isinstance(guarded._hints, InsideHints)
    return guarded._hints._live


def bundle_of(inside: Inside) -> Bundle:
    found = inside.parts.plane.bundles.active()
    assert isinstance(found, Bundle)
    return found


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"hints": "somewhere"}, "hints"),
        ({"hints": "host:port"}, "hints"),
        ({"hints": "off", "hints_tls": True}, "hints_tls says how to reach"),
        ({"hints": "inside", "hints_token_file": "t"}, "hints_token_file says how to reach"),
        ({"hints": "off", "hints_file": "f"}, "hints_file is read with"),
        ({"hints": "h:1", "hints_ca_file": "f"}, "hints_ca_file is for"),
        ({"hints": "h:1", "hints_token_file": "t"}, "in the clear"),
        ({"hint_deadline_ms": 0}, "hint_deadline_ms"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(BadSettings, match=says):
        load_settings(None, {}, **given)


@pytest.mark.parametrize("hints", ["off", "inside", "hints.example:50051", "127.0.0.1:1", "[::1]:50051"])
def test_settings_of_each_kind_are_taken(hints: str) -> None:
    assert load_settings(None, {}, hints=hints).hints == hints
    assert load_settings(None, {}, hints="127.0.0.1:1", hints_token_file="t").hints_token_file == "t"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"hints": "127.0.0.1:1", "hints_token_file": "absent"}, "hints_token_file"),
        ({"hints": "h:1", "hints_tls": True, "hints_ca_file": "absent"}, "hints_ca_file"),
        ({"hints": "inside", "hints_file": "absent"}, "settings file absent"),
    ],
)
async def test_a_file_that_is_not_there_keeps_the_plane_from_starting(
    given: dict[str, Any], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CannotStart, match=says):
        await open_fleets(Settings(data_dir=str(tmp_path), **given), SystemClock())


async def test_a_token_of_no_form_keeps_the_plane_from_starting_and_is_not_told(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("se\ncret")
    with pytest.raises(CannotStart) as refused:
        await open_fleets(Settings(hints="127.0.0.1:1", hints_token_file=str(file)), SystemClock())
    assert "se" not in str(refused.value).replace(str(file), "").replace("hints_token_file", "").replace("holds", "")


async def test_a_fleet_without_its_tokenizer_is_served_by_blocks_of_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    members = (
        fleet("none"),
        fleet("known", tokenizer="bytes", scheme="sim"),
        fleet("absent", tokenizer="absent", scheme="sim"),
    )
    async with plane_inside(tmp_path / "data", document(purpose("w", *members))) as inside:
        kinds = {
            name: type(inside.parts.fleets.advise(capability).prefixes)
            for name, capability in bundle_of(inside).capabilities.items()
        }
    assert kinds == {"none": ContentPrefixes, "known": TokenPrefixes, "absent": ContentPrefixes}
    assert any("absent" in r.getMessage() for r in caplog.records if r.levelno == logging.ERROR)
    with_folder = Fleets(Settings(tokenizers_dir=str(tmp_path)), None)
    assert with_folder._tokens("c", "absent") is None


async def test_a_tokenizer_is_loaded_once_as_long_as_its_files_are_the_same_and_somebody_uses_it(
    tmp_path: Path,
) -> None:
    file = tmp_path / "small" / "tokenizer.json"
    file.parent.mkdir()
    file.write_text((resources.files("terraflow.hints.tokens") / "bytes.json").read_text())
    fleets = Fleets(Settings(tokenizers_dir=str(tmp_path)), None)
    first = fleets._tokens("a", "small")
    assert first is not None and fleets._tokens("b", "small") is first
    (file.parent / "chat_template.jinja").write_text("another")
    second = fleets._tokens("a", "small")
    assert second is not None and second is not first
    assert second.messages("small", BODY["messages"]) == list(b"another")  # type: ignore[arg-type]
    del first, second
    gc.collect()
    assert not fleets._loaded


async def test_what_the_active_bundles_replicas_publish_is_read(tmp_path: Path) -> None:
    told = {"events": "tcp://127.0.0.1:9", "replay": "tcp://127.0.0.1:8", "metrics": "http://127.0.0.1:9/metrics"}
    first = fleet("a", replica("r0", **told, labels={"pool": "p"}), replica("r1"), replica("r2", **told, enabled=False))
    async with plane_inside(tmp_path / "data", document(purpose("w", first)), hints="inside") as inside:
        [feed] = feeds_of(bundle_of(inside))
        assert (feed.replica, feed.model, feed.tenant, feed.scheme) == ("r0", "a-model", "fleet", UNTOLD_SCHEME)
        assert (feed.endpoint, feed.replay_endpoint, feed.metrics_url) == tuple(told.values())
        assert live_of(inside).labels("fleet", "a-model") == {"r0": {"pool": "p"}}
        other = fleet("a", replica("r1", **told), tokenizer="bytes", scheme="sim", hint_tenant="t", hint_model="m")
        inside.folder.activate(document(purpose("w", other)))
        await inside.parts.bundles.refresh()
        [feed] = feeds_of(bundle_of(inside))
        assert (feed.replica, feed.model, feed.tenant, feed.scheme) == ("r1", "m", "t", "sim")
        assert live_of(inside).labels("fleet", "a-model") == {}


async def test_fleets_of_one_name_are_one_to_the_hints_and_what_leaves_a_bundle_is_taken_back(tmp_path: Path) -> None:
    def members(inside: Inside, model: str, scheme: str = SCHEME) -> tuple[str, ...]:
        assigned = live_of(inside).grounds.assigned
        assert assigned is not None
        return assigned.members(Scope("fleet", model, scheme))

    named = {"hint_model": "m"}
    one = fleet("a", replica("r0"), replica("r1", enabled=False), **named)
    two = fleet("b", replica("r2"), tokenizer="bytes", scheme="sim", **named)
    async with plane_inside(tmp_path / "data", document(purpose("w", one, two)), hints="inside") as inside:
        assert (members(inside, "m"), members(inside, "m", "sim")) == (("r0", "r2"), ("r2",))
        inside.folder.activate(document(purpose("w", one)))
        await inside.parts.bundles.refresh()
        assert (members(inside, "m"), members(inside, "m", "sim")) == (("r0",), ())
        inside.folder.activate(document(purpose("w", fleet("a", replica("r3")), sim("s"))))
        await inside.parts.bundles.refresh()
        assert (members(inside, "m"), members(inside, "a-model")) == ((), ("r3",))


async def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_what_is_known_of_an_engine_outlives_the_plane(tmp_path: Path) -> None:
    engine = Publisher()
    told = {"events": engine.endpoint, "replay": engine.replay_endpoint}
    made = fleet("a", replica("r0", **told), tokenizer="bytes", scheme="sim")
    async with plane_inside(tmp_path / "data", document(purpose("w", made)), hints="inside") as inside:
        index = live_of(inside).index
        await until(lambda: bool(engine.asked))
        await engine.publish(batch(stored(1)))
        await engine.publish(batch(stored(2, parent=1)))
        await until(lambda: index.keys() == 2)
        await inside.parts.fleets.close()
        engine.kept = 1
        await engine.publish(batch(stored(3, parent=2)))
        again = await open_fleets(Settings(data_dir=str(tmp_path / "data"), hints="inside"), SystemClock())
        try:
            await again.follow(bundle_of(inside))
            guarded: Any = again._hints
            await until(lambda: bool(guarded._hints._live.index.keys() == 3))
        finally:
            await again.close()
            await engine.close()


def press(inside: Inside, *pressures: float) -> None:
    for at, pressure in enumerate(pressures):
        live_of(inside).ingest(
            Report(replica=f"r{at}", model="f-model", tenant="fleet", scheme="", stats=Stats(pressure=pressure))
        )
    inside.parts.fleets._hints._hints._pressure.clear()  # type: ignore[union-attr]


async def test_under_burst_a_request_may_leave_when_every_replica_is_above_the_bound(tmp_path: Path) -> None:
    full = fleet("f", pressure_max_percent=80)
    outer = sim("outside", boundary="external", prefix_cache="none", prices=None)
    made = purpose("w", full, outer, egress="burst", requests_per_minute=1_000)
    async with plane_inside(tmp_path / "data", document(made), hints="inside") as inside:
        press(inside, 0.9, 0.5)
        kept = await inside.chat(BODY)
        assert kept.status != 200
        press(inside, 0.9, 0.81)
        left = await inside.chat(BODY)
        assert left.status == 200, left
        assert left.headers["x-terraflow-capability"] == "outside"
        rows = inside.folder.rows("SELECT data FROM leaf WHERE kind = 'intent' ORDER BY rowid")
        policies = [json.loads(data)["policy"] for (data,) in rows]
    pressed = [[row.get("under_pressure", False) for row in policy if row["capability"] == "f"] for policy in policies]
    assert pressed == [[False], [True]]


async def test_a_fleet_under_pressure_comes_last_in_the_plan(tmp_path: Path) -> None:
    made = purpose(
        "w",
        fleet("f", pressure_max_percent=80),
        sim("m"),
        requests_per_minute=1_000,
    )
    async with plane_inside(tmp_path / "data", document(made), hints="inside") as inside:
        press(inside, 0.9, 0.81)
        heard = await inside.chat(BODY)
        [(data,)] = inside.folder.rows("SELECT data FROM leaf WHERE kind = 'intent'")
    assert heard.status == 200
    assert json.loads(data)["plan"] == ["m", "f"]
