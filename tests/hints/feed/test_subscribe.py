"""`hints subscribe` as an operator meets it: what goes wrong is said at once, in whose words it was said."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from terraflow.app.hints import open_hints
from terraflow.app.hints_settings import HintsSettings
from terraflow.app.runtime import SystemClock
from terraflow.cli.hints import app
from terraflow.hints.feed.feeds import Feeds
from terraflow.hints.feed.remote import Greeting, RemoteSink, Target
from terraflow.hints.words import Entry, Report
from tests.hints.blackbox.certificates import Authority
from tests.hints.feed.publisher import Publisher, batch, stored
from tests.hints.feed.running import settings
from tests.hints.feed.server import Told
from tests.hints.feed.test_remote import until

AT_ONCE_S = 10.0
GIVEN = ("--replica", "r", "--model", "m", "--tenant", "t", "--scheme", "s")


class Subscribed:
    """The command's process and what it says."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.lines: list[str] = []

    async def says(self, what: str, within_s: float = AT_ONCE_S) -> str:
        assert self._process.stderr is not None
        async with asyncio.timeout(within_s):
            while True:
                line = (await self._process.stderr.readline()).decode()
                assert line, self.lines
                self.lines.append(line.rstrip())
                if what in line:
                    return line.rstrip()


@asynccontextmanager
async def subscribed(server: str, *more: str, endpoint: str = "tcp://127.0.0.1:1") -> AsyncIterator[Subscribed]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from terraflow.cli.main import main; main()",
        "hints", "subscribe", "--server", server, "--endpoint", endpoint, *GIVEN, *more,
        stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield Subscribed(process)
    finally:
        process.send_signal(signal.SIGTERM)
        await process.communicate()
        assert process.returncode == 0


async def test_a_dead_server_is_said_at_once_and_that_it_answers_later_too():
    told = await Told().start()
    await told.stop()
    async with subscribed(f"127.0.0.1:{told.port}") as command:
        assert await command.says("hears tcp://127.0.0.1:1 as t/m/r")
        refused = await command.says("does not answer")
        assert refused.endswith("does not answer: Failed to connect to remote host: Connection refused")
        again = await Told().start(told.port)
        await command.says("answers", 20.0)
        assert not any(line.startswith(("I0", "E0", "W0")) for line in command.lines)
    await again.stop()


async def test_a_refusal_is_told_in_the_servers_words(tmp_path: Path):
    ports = {"bind_port": 0, "http_port": 0, "internal_port": 0}
    running = await open_hints(HintsSettings(data_dir=str(tmp_path), snapshot=False, **ports), SystemClock())
    async with subscribed(f"127.0.0.1:{running.ports['grpc']}", "--interval-s", "0.2") as command:
        words = "refuses: UNAUTHENTICATED: producers need a client certificate or a token"
        assert "does not answer" not in await command.says(words)
        assert (await command.says("0 batches")).endswith(f"; the server {words}")
        assert ", not connected yet: " in command.lines[-1]
    await running.stop()


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ([], "it hangs up: if it speaks TLS, give --tls or --ca-file"),
        (["--ca-file", "{other}"], "its certificate does not verify: give who signed it with --ca-file"),
    ],
)
async def test_what_is_wrong_with_tls_is_said(tmp_path: Path, shown, said):
    certificate, key = Authority(tmp_path).issue("server")
    other = Authority(tmp_path, "other").file
    running = await open_hints(
        HintsSettings(
            data_dir=str(tmp_path / "data"), snapshot=False, bind_port=0, http_port=0, internal_port=0,
            tls_cert_file=str(certificate), tls_key_file=str(key),
        ),
        SystemClock(),
    )  # fmt: skip
    options = [option.format(other=other) for option in shown]
    async with subscribed(f"127.0.0.1:{running.ports['grpc']}", *options) as command:
        await command.says(said)
    await running.stop()


async def test_tls_to_a_plaintext_server_is_said(tmp_path: Path):
    told = await Told().start()
    async with subscribed(f"127.0.0.1:{told.port}", "--ca-file", str(Authority(tmp_path).file)) as command:
        await command.says("does not speak TLS: leave out --tls and --ca-file")
    await told.stop()


async def test_a_refusal_is_counted_as_one_and_waited_for_longer_each_time(tmp_path: Path):
    running = await open_hints(
        HintsSettings(data_dir=str(tmp_path), snapshot=False, bind_port=0, http_port=0, internal_port=0),
        SystemClock(),
    )
    sink = RemoteSink(
        Target(address=f"127.0.0.1:{running.ports['grpc']}"), greeting=Greeting("t", "m", "r"), again_s=0.05
    )
    task = asyncio.get_running_loop().create_task(sink.run())
    sink.ingest(Report(replica="r", model="m", tenant="t", scheme="s", entries=(Entry("", [b"a"], [2], 1),)))
    await asyncio.sleep(1.5)
    # 0, 0.05, 0.15, 0.35, 0.75 s; not every 0.05 s.
    assert 3 <= sink.counters.refused <= 5
    assert sink.counters.calls_failed == 0 == sink.counters.resyncs
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await running.stop()


async def test_a_server_that_refuses_reports_alone_is_not_asked_at_full_speed():
    """The greeting passes, what is reported does not: the wait grows all the same."""
    import grpc

    class Picky(Told):
        async def ReportCacheState(self, updates, context):
            self.order.append("report")
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "this identity may not report for that tenant")

    publisher, server = Publisher(), await Picky().start()
    sink = RemoteSink(Target(address=f"127.0.0.1:{server.port}"), greeting=Greeting("t", "m", "r"), again_s=0.05)
    feeds = Feeds([settings(publisher)], sink)
    sink.tell_anew = feeds.tell_anew
    tasks = [asyncio.get_running_loop().create_task(part) for part in (feeds.run(), sink.run())]
    await publisher.publish(batch(stored(1)))
    await until(lambda: sink.counters.refused > 0)
    assert sink.last_error == "refuses: PERMISSION_DENIED: this identity may not report for that tenant"
    await asyncio.sleep(1.5)
    assert server.order.count("report") <= 6 and sink.counters.calls_failed == 0
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await publisher.close()
    await server.stop()


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (["--ca-file", "{rubbish}"], "holds no certificate: give the PEM file"),
        (["--cert-file", "{rubbish}", "--key-file", "{rubbish}"], "are no certificate and its key"),
        (["--token-file", "{empty}"], "holds no token; `terraflow hints token` makes one"),
        (["--server", "hints"], "--server hints is no HOST:PORT"),
    ],
)
def test_files_and_addresses_that_are_none(tmp_path: Path, bad, said):
    files = {name: tmp_path / name for name in ("rubbish", "empty")}
    files["rubbish"].write_text("no certificate")
    files["empty"].write_text("\n")
    given = [option.format(**files) for option in bad]
    result = CliRunner().invoke(app, ["subscribe", "--endpoint", "tcp://127.0.0.1:1", *GIVEN, *given])
    assert result.exit_code == 2
    assert said in result.stderr
