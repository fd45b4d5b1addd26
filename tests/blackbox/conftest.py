"""What the black-box tests share: bounded time, planes that end with their tests, and their errors in reports."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.harness.bounded import bounded as bounded
from tests.harness.bundle import Json
from tests.harness.caller import CANARY, Caller
from tests.harness.checks import Checks
from tests.harness.claude import claude_says
from tests.harness.edge import Connection
from tests.harness.folder import DataFolder
from tests.harness.mouths import INVOCATIONS, MOUTHS, VENDORS, Mouth
from tests.harness.plane import RUNNING, Plane
from tests.harness.upstreams import Upstreams, answer
from tests.providers.vendor import Vendor
from tests.raised import Raised


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """A failed test shows what the running planes wrote."""
    report = yield
    if report.failed:
        report.sections += [(f"standard error of {plane.folder.path.name}", plane.errors()) for plane in RUNNING]
    return report


@pytest.fixture
def checks(raised: Raised) -> Checks:
    """The checks of this test."""
    return Checks(raised)


@pytest.fixture(params=MOUTHS, ids=lambda mouth: mouth.name)
def mouth(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Mouth:
    """Every caller speaks in this shape during the test."""
    spoken: Mouth = request.param
    monkeypatch.setattr(Caller, "mouth", spoken)
    return spoken


@pytest.fixture(params=VENDORS, ids=lambda mouth: mouth.name)
def vendor_mouth(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Mouth:
    """The same, of the shapes that stream, and whose `model` may be any name."""
    spoken: Mouth = request.param
    monkeypatch.setattr(Caller, "mouth", spoken)
    return spoken


every_mouth = pytest.mark.usefixtures("mouth")
"""The test is run once in each API shape; with a parameter `stream` or `how` that says so, in those that
stream."""
every_vendor_mouth = pytest.mark.usefixtures("vendor_mouth")
"""The test is run once in each API shape that streams, and whose `model` may be any name."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """An invocation is never streamed: there is no such test."""
    items[:] = [item for item in items if not _streams_an_invocation(item)]


def _streams_an_invocation(item: pytest.Item) -> bool:
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    streams = params.get("stream") is True or params.get("how") == "streamed"
    return streams and params.get("mouth") is INVOCATIONS


class Site:
    """A plane that runs, and an application of its first tenant that calls it."""

    def __init__(self, plane: Plane, api_key: str, stack: ExitStack) -> None:
        self.plane = plane
        self.folder = plane.folder
        self._stack = stack
        self.caller = self.caller_with(api_key)

    def caller_with(self, api_key: str) -> Caller:
        """Another application, or another key."""
        caller = Caller(self.plane, api_key)
        self._stack.callback(caller.close)
        return caller

    def connect(self) -> Connection:
        """A connection of its own, byte by byte."""
        place = urlsplit(self.plane.base_url)
        return Connection(socket.create_connection((place.hostname, place.port), timeout=10))


Launch = Callable[..., Site]
Prepare = Callable[[DataFolder], None]


def launcher(path: Path) -> Iterator[Launch]:
    """Starts planes over fresh data folders in `path`, stops them at the end, and looks at what they left.

    No file of a data folder and no line of standard error may hold what a caller wrote, or a key; no money may be
    left reserved, and what is posted is what the outcomes say.
    """
    with ExitStack() as stack:
        sites: list[Site] = []

        def launch(document: Json | None, *, prepare: Prepare | None = None, **options: Any) -> Site:
            folder = DataFolder(path / f"plane-{len(sites)}")
            if document is not None:
                folder.activate(document)
            api_key = folder.issue_key()
            if prepare is not None:
                prepare(folder)
            site = Site(stack.enter_context(Plane(folder, **options)), api_key, stack)
            sites.append(site)
            return site

        yield launch
    for site in sites:
        assert site.folder.loose_ends() == []
        texts = (CANARY, site.caller.api_key)
        assert site.folder.files_with(*texts) == []
        assert not any(text in site.plane.log.read_text() for text in texts)


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Planes of one test."""
    yield from launcher(tmp_path)


@pytest.fixture(scope="module")
def launch_shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launch]:
    """Planes that the tests of one file share."""
    yield from launcher(tmp_path_factory.mktemp("shared"))


@pytest.fixture
def connection(site: Site) -> Iterator[Connection]:
    """A connection of its own to the plane of the test's file."""
    with site.connect() as opened:
        yield opened


@pytest.fixture(scope="module")
def upstreams() -> Iterator[Upstreams]:
    """The vendors of one file."""
    with Upstreams() as running:
        yield running


@pytest.fixture(scope="module")
def claude(upstreams: Upstreams) -> Vendor:
    """One vendor of the file, of Anthropic's shape."""
    return upstreams.open(claude_says({"type": "text", "text": "Certainly."}))


@pytest.fixture(scope="module")
def engine(upstreams: Upstreams) -> Vendor:
    """Another, of OpenAI's shape."""
    return upstreams.open(answer())
