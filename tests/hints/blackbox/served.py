"""A hint service as its operator runs it: a process of its own, on free ports, and a real gRPC client of it."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc

from terraflow.hints.wire import inferencecache_pb2 as pb
from terraflow.hints.wire.stub import Stub

START_S = 30.0
STOP_S = 20.0
CALL_S = 10.0
ANY_PORT = {"bind_port": 0, "http_port": 0, "internal_port": 0}

RUNNING: list[Served] = []
"""Every service of this session that has not been stopped."""


class Served:
    """One service. `toml` is its settings file; `settings` become TERRAFLOW_HINTS_* variables."""

    def __init__(self, folder: Path, toml: str = "", **settings: Any) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "stderr"
        self.file = folder / "hints.toml"
        self.file.write_text(toml)
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("TERRAFLOW_")}
        for key, value in (ANY_PORT | {"data_dir": self.data} | settings).items():
            self.environment[f"TERRAFLOW_HINTS_{key.upper()}"] = (
                str(value).lower() if value in (True, False) else str(value)
            )
        self.at: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._channels: list[grpc.Channel] = []

    def __enter__(self) -> Served:
        self.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Start, and wait until it answers calls."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [Path(sys.executable).with_name("terraflow"), "hints", "serve", "--config", self.file],
                stdout=subprocess.PIPE,
                stderr=log,
                env=self.environment,
            )
        RUNNING.append(self)
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], START_S)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            self.stop()
            raise AssertionError(f"the service does not serve: {self.errors()}")
        self.at = json.loads(line)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal, and wait. Returns its exit code."""
        for channel in self._channels:
            channel.close()
        self._channels.clear()
        process, self._process = self._process, None
        if process is None:
            return 0
        RUNNING.remove(self)
        if process.poll() is None:
            process.send_signal(number)
        try:
            return process.wait(STOP_S)
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    @property
    def pid(self) -> int:
        """The running process."""
        assert self._process is not None
        return self._process.pid

    def errors(self) -> str:
        """What it wrote to standard error."""
        return self.log.read_text() if self.log.exists() else ""

    # Clients

    def channel(self, credentials: grpc.ChannelCredentials | None = None) -> grpc.Channel:
        """A channel of its own to the gRPC port."""
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 64 << 20)]
        if credentials is None:
            made = grpc.insecure_channel(self.at["grpc"], options)
        else:
            made = grpc.secure_channel(self.at["grpc"], credentials, options)
        self._channels.append(made)
        return made

    def client(self, credentials: grpc.ChannelCredentials | None = None, token: str | None = None) -> Client:
        """A client of the contract."""
        return Client(self.channel(credentials), () if token is None else (("authorization", f"Bearer {token}"),))

    def http(self, path: str, *, at: str = "http", method: str = "GET", body: Any = None) -> tuple[int, bytes]:
        """One request of a listener, with the internal one's token where it belongs."""
        headers = {}
        if at == "internal":
            headers["Authorization"] = f"Bearer {(self.data / 'internal.token').read_text().strip()}"
        connection = http.client.HTTPConnection(self.at[at], timeout=CALL_S)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def metric(self, series: str) -> float:
        """The value of one series as /metrics shows it, 0 when it is not there."""
        for line in self.http("/metrics")[1].decode().splitlines():
            name, _, value = line.rpartition(" ")
            if name == series:
                return float(value)
        return 0.0


class Client:
    """The contract's stub, with what every call of a test carries."""

    def __init__(self, channel: grpc.Channel, metadata: Sequence[tuple[str, str]]) -> None:
        self.stub = Stub(channel)
        self.channel = channel
        self._more: dict[str, Any] = {"metadata": metadata, "timeout": CALL_S}

    def lookup(self, tenant: str = "t", model: str = "m", scheme: str = "s", **fields: Any) -> pb.LookupRouteResponse:
        """One LookupRoute."""
        request = pb.LookupRouteRequest(tenant_id=tenant, model_id=model, hash_scheme=scheme, **fields)
        return self.stub.LookupRoute(request, **self._more)

    def report(self, *updates: pb.CacheStateUpdate) -> pb.Ack:
        """One ReportCacheState with these updates."""
        return self.stub.ReportCacheState(iter(updates), **self._more)

    def event(self, kind: Any, **fields: Any) -> pb.Ack:
        """One PublishEvent."""
        return self.stub.PublishEvent(pb.CacheEvent(type=kind, **fields), **self._more)

    def state(self, tenant: str = "t", model: str = "m") -> pb.GetCacheStateResponse:
        """One GetCacheState."""
        return self.stub.GetCacheState(pb.GetCacheStateRequest(tenant_id=tenant, model_id=model), **self._more)

    def events(self, timeout: float = 20.0, **fields: Any) -> Any:
        """One StreamCacheEvents; the call, which iterates."""
        request = pb.StreamEventsRequest(**fields)
        return self.stub.StreamCacheEvents(request, **(self._more | {"timeout": timeout}))

    def metrics(self, *names: str, timeout: float = 10.0) -> Any:
        """One StreamMetrics; the call, which iterates."""
        request = pb.StreamMetricsRequest(names=names)
        return self.stub.StreamMetrics(request, **(self._more | {"timeout": timeout}))

    def pd_route(self, **fields: Any) -> pb.LookupPDRouteResponse:
        """One LookupPDRoute."""
        return self.stub.LookupPDRoute(pb.LookupPDRouteRequest(**fields), **self._more)

    def render(self, template: str, tenant: str = "t", **variables: str) -> pb.RenderTemplateResponse:
        """One RenderTemplate."""
        request = pb.RenderTemplateRequest(template_ref=template, tenant_id=tenant, variables=variables)
        return self.stub.RenderTemplate(request, **self._more)


def update(replica: str, *chains: Sequence[bytes], tokens: int = 64, **fields: Any) -> pb.CacheStateUpdate:
    """A report of chains of which each block has `tokens`."""
    named = {"tenant_id": "t", "model_id": "m", "hash_scheme": "s"} | fields
    prefixes = [pb.PrefixEntry(block_hashes=chain, block_token_counts=[tokens] * len(chain)) for chain in chains]
    return pb.CacheStateUpdate(replica_id=replica, prefixes=prefixes, **named)


def chain(blocks: Sequence[bytes], tokens: int = 64) -> dict[str, Any]:
    """A lookup's chain."""
    return {"block_hashes": blocks, "block_token_counts": [tokens] * len(blocks)}


def replicas(answer: pb.LookupRouteResponse) -> list[str]:
    """The answer's replicas in order."""
    return [row.replica_id for row in answer.replica_scores]


def until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.02)
