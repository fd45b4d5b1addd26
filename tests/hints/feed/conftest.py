"""An engine's sockets, and a feed that hears them."""

from collections.abc import AsyncIterator

import pytest

from tests.hints.feed.publisher import Publisher
from tests.hints.feed.running import Running, settings


@pytest.fixture
async def publisher() -> AsyncIterator[Publisher]:
    served = Publisher()
    yield served
    await served.close()


@pytest.fixture
async def running(publisher: Publisher) -> AsyncIterator[Running]:
    served = Running(settings(publisher))
    await served.connected()
    await publisher.subscribed()
    yield served
    await served.close()
