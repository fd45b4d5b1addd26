"""Ten thousand generated calls of the model API: no answer is a fault, none echoes, and no secret of a caller stays.

    python -m trust.api_calls [--count 10000] [--seed 0]

Every route is called with whole bodies and with such as a fuzzer makes (`tests/harness/api_calls.py`), over raw
connections. Each call plants its own secret wherever a caller may choose a text; the model behind the plane fails with
secrets of its own in what it says. No answer may be a 500, hold a secret, or be an error that the registry does not
know; afterwards no file of the data folder, no log line and no metric may hold a secret, in the clear, in hexadecimal
or in base64, nor an API key, nor the credential of a provider.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from terraflow.core.reasons import Governed, ModelApi, reason
from terraflow.gateway.http.routes import ROUTES
from tests.harness import bundle
from tests.harness.api_calls import KEY, NIGHTLY, PREFIX, ApiCall, api_call, kind_of
from tests.harness.batches import answer_key
from tests.harness.bundle import purpose, remote, sim
from tests.harness.folder import DataFolder
from tests.harness.plane import Plane
from tests.harness.upstreams import DONE, END, USED, Upstreams, chunk, flow, text
from tests.providers.vendor import Reply, says

CALLERS = 12
ANSWER_S = 20.0
IDS_KEPT = 200
WORKLOADS = {"quick": "fast", "unwell": "vendor", "whole": "checked", NIGHTLY: "slow"}
NEVER_SERVED = frozenset((("GET", "/v1/reviews/*"), ("DELETE", "/v1/requests/*")))
"""There is no review, and no request is under way for long enough to be cancelled."""
VENDOR_SECRET = f"{PREFIX}-of-a-vendor"
CREDENTIAL = f"{PREFIX}-credential"
METRICS_TOKEN = f"{PREFIX}-of-a-scraper"
_CODES = {str(code): code for codes in (Governed, ModelApi) for code in codes}


class Answer(NamedTuple):
    """A whole response."""

    status: int
    headers: dict[str, str]
    raw: bytes
    body: bytes


def problem(call: ApiCall, answer: Answer) -> str | None:
    """What is wrong with an answer."""
    if answer.status >= 500 and answer.status not in (503, 504):
        return f"was answered {answer.status}"
    own = answer.status == 200 and call.route.startswith(("/v1/batches", "/v1/files"))
    if (call.secret.encode() in answer.raw and not own) or VENDOR_SECRET.encode() in answer.raw:
        return "was answered with a secret"
    if answer.status >= 400 and PREFIX.encode() in answer.raw:
        return "was refused with a secret of another"
    if answer.status < 400 or call.method == "HEAD":
        return None
    try:
        code = _CODES[json.loads(answer.body)["error"]["code"]]
    except (ValueError, KeyError, TypeError):
        return f"was answered {answer.status} without a code that is known"
    row = reason(code)
    allowed = {row.status, row.second.status if row.second else row.status}
    replayed = answer.headers.get("x-terraflow-idempotent-replay") == "true"
    return None if answer.status in allowed or replayed else f"was answered {answer.status} with {code}"


class Talker:
    """A connection that is opened anew when the other side closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, call: ApiCall, api_key: bytes) -> Answer:
        """Send a call, and read its answer. Raises OSError, EOFError, TimeoutError, ValueError."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        try:
            async with asyncio.timeout(ANSWER_S):
                writer.write(call.raw.replace(KEY, api_key))
                answer = await _read(reader, head=call.method == "HEAD")
        except BaseException:
            self.close()
            raise
        if answer.headers.get("connection") == "close":
            self.close()
        return answer

    def close(self) -> None:
        """Close it."""
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].transport.abort()


async def scraped(port: int) -> Answer:
    """The metrics. Raises what `Talker.ask` raises."""
    raw = b"GET /metrics HTTP/1.1\r\nHost: plane\r\nAuthorization: Bearer %b\r\n\r\n" % METRICS_TOKEN.encode()
    talker = Talker(port)
    answer = await talker.ask(ApiCall(0, "GET", "/metrics", raw, "", whole=True), b"")
    talker.close()
    assert answer.status == 200 and b"terraflow_" in answer.body
    return answer


async def _read(reader: asyncio.StreamReader, *, head: bool) -> Answer:
    start = await reader.readuntil(b"\r\n\r\n")
    first, *lines = start[:-4].decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    status = int(first.split(" ")[1])
    if head:
        body = b""
    elif "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    else:
        body = b"".join([piece async for piece in _chunks(reader)])
    return Answer(status, headers, start + body, body)


async def _chunks(reader: asyncio.StreamReader):  # type: ignore[no-untyped-def]
    while size := int((await reader.readuntil(b"\r\n"))[:-2], 16):
        yield (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)


class Asked:
    """What came of the calls."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.served: Counter[tuple[str, str]] = Counter()
        self.ids: dict[str, list[str]] = {"model": ["fast"]}
        self.problems: list[str] = []

    def heard(self, call: ApiCall, answer: Answer) -> None:
        """Judge an answer, and keep the id of its request."""
        self.statuses[answer.status] += 1
        self.served[call.method, call.route] += answer.status == 200
        found = problem(call, answer)
        if found is not None:
            self.problems.append(f"call {call.number} ({call.method} {call.route}) {found}")
        if "x-terraflow-reason" in answer.headers:
            self._known("req", answer.headers["x-terraflow-request-id"])
        elif answer.status == 200 and (call.method, call.route) in (("POST", "/v1/files"), ("POST", "/v1/batches")):
            self._known(kind_of(call.route), json.loads(answer.body)["id"])

    def _known(self, kind: str, made: str) -> None:
        ids = self.ids.setdefault(kind, [])
        ids.append(made)
        del ids[:-IDS_KEPT]


async def ask_all(port: int, keys: Sequence[bytes], numbers: Iterator[int], asked: Asked) -> None:
    """One caller's part of the calls, one after the other."""
    talker = Talker(port)
    for number in numbers:
        call = api_call(number, asked.ids, WORKLOADS)
        try:
            answer = await talker.ask(call, keys[number % len(keys)])
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            asked.problems.append(f"call {number} ({call.method} {call.route}) had no answer: {type(error).__name__}")
        else:
            asked.heard(call, answer)
    talker.close()


def readings(secret: str) -> list[bytes]:
    """A secret as it might lie somewhere: in the clear, in hexadecimal, and in base64 behind 0, 1 and 2 bytes."""
    raw = secret.encode()
    encoded = [base64.b64encode(b"\0" * before + raw)[4 if before else 0 : -4] for before in range(3)]
    return [raw, raw.hex().encode(), *encoded]


def left_in(paths: Sequence[Path], secrets: Mapping[str, str]) -> list[str]:
    """Which files hold a secret; `secrets` by what they are."""
    found = []
    for path in paths:
        content = path.read_bytes()
        for name, secret in secrets.items():
            if any(reading in content for reading in readings(secret)):
                found.append(f"{path.name} holds {name}")
    return found


def unwell(seed: int) -> list[Reply]:
    """Replies of a vendor that has good and bad days, with a secret in whatever it says that is not an answer."""
    chance = random.Random(seed)
    whole = flow(text("Certainly."), END, USED, DONE)
    error = {"error": {"message": VENDOR_SECRET, "type": VENDOR_SECRET, "code": VENDOR_SECRET, "param": VENDOR_SECRET}}
    kinds: list[Reply] = [
        *(says(status, error, f"X-Secret: {VENDOR_SECRET}") for status in (400, 401, 404, 429, 500, 503)),
        says(200, VENDOR_SECRET.encode()),
        says(200, {"choices": VENDOR_SECRET}),
        flow(text("Cert"), b"data: " + json.dumps(error).encode() + b"\n\n"),
        flow(text("Cert"), f"data: {VENDOR_SECRET}\n\n".encode()),
        flow(text("Cert"), chunk({}, VENDOR_SECRET), DONE),
        flow(text("Cert"), end=False),
    ]
    return [whole if chance.random() < 0.3 else chance.choice(kinds) for _ in range(997)]


async def prove(folder: Path, count: int, seed: int) -> tuple[Asked, list[str]]:
    """What came of so many calls of a new plane, and every problem."""
    data = DataFolder(folder)
    with Upstreams() as upstreams:
        vendor = upstreams.open(*unwell(seed))
        data.activate(_document(vendor.port))
        keys = [data.issue_key().encode() for _ in range(2)]
        token = folder.with_name("metrics.token")
        token.write_text(METRICS_TOKEN)
        settings = {
            "health_faults_max": 1_000_000,
            "heartbeat_s": 1,
            "running_max": 64,
            "metrics_token_file": token,
            "answer_key_file": answer_key(folder.with_name("answers.key")),
        }
        with Plane(data, secrets={"VENDOR_KEY": CREDENTIAL}, **settings) as plane:
            port = urlsplit(plane.base_url).port
            assert port is not None
            asked, numbers = Asked(), iter(range(seed, seed + count))
            await asyncio.gather(*(ask_all(port, keys, numbers, asked) for _ in range(CALLERS)))
            metrics = folder.with_name("metrics")
            metrics.write_bytes((await scraped(port)).body)
            log = plane.log
    problems = asked.problems + [
        f"{' '.join(route)} was never served" for route in ROUTES.keys() - NEVER_SERVED if not asked.served[route]
    ]
    secrets = {"a caller's secret": PREFIX, "a caller's key": keys[0].decode(), "another's key": keys[1].decode()}
    return asked, problems + left_in([*written(folder), log, metrics], secrets) + data.loose_ends()


def written(folder: Path) -> list[Path]:
    """The files of a data folder, its keys aside."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".pem"]


def _document(port: int) -> bundle.Json:
    vendor = remote("vendor", port, secret="env:VENDOR_KEY")
    return bundle.document(
        purpose("quick", sim("fast"), tools=["look_up"]),
        purpose("unwell", vendor, tools=["look_up"]),
        purpose(NIGHTLY, sim("slow"), tools=["look_up"], priority=3),
        purpose("whole", sim("checked"), tools=["look_up"], output={"stream": "buffered"}),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        asked, problems = asyncio.run(prove(Path(name) / "data", options.count, options.seed))
    took = time.monotonic() - begun
    by_status = ", ".join(f"{number} of {status}" for status, number in sorted(asked.statuses.items()))
    print(f"{asked.statuses.total()} answers in {took:.0f} s: {by_status}")
    print("served: " + ", ".join(f"{' '.join(route)} {asked.served[route]}" for route in sorted(ROUTES)))
    print("\n".join(problems[:20]))
    print(f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
