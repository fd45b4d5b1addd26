"""An engine's event sockets, as engines serve them: PUB, which here says who subscribes, and ROUTER, one after the
other, with a bounded memory."""

import asyncio

import msgspec
import zmq
import zmq.asyncio

from tests.harness.ports import kept_port

pack = msgspec.msgpack.encode
END = (-1).to_bytes(8, "big", signed=True)


def batch(*events: object, rank: int | None = None) -> bytes:
    return pack([1.0, list(events), rank])


def stored(number: int, parent: int | None = None, blocks: int = 1, size: int = 2, **more: object) -> dict[str, object]:
    """`blocks` blocks with hashes from `number` on, and tokens that follow from them."""
    hashes = list(range(number, number + blocks))
    tokens = [token for at in hashes for token in range(at * size, at * size + size)]
    return {
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": parent,
        "token_ids": tokens,
        "block_size": size,
        **more,
    }


def removed(*hashes: int, **more: object) -> dict[str, object]:
    return {"type": "BlockRemoved", "block_hashes": list(hashes), **more}


CLEARED = {"type": "AllBlocksCleared"}


class Publisher:
    """One life of an engine's sockets, on ports of an earlier one or of its own."""

    def __init__(
        self, port: int | None = None, replay_port: int | None = None, kept: int = 10_000, topic_in_replay: bool = False
    ) -> None:
        self.context = zmq.asyncio.Context()
        self.pub = self.context.socket(zmq.XPUB)
        self.router = self.context.socket(zmq.ROUTER)
        self.port = self._bind(self.pub, port or kept_port())
        self.replay_port = self._bind(self.router, replay_port or kept_port())
        self.kept = kept
        self.topic = b"kv@test"
        self.topic_in_replay = topic_in_replay
        self.sequence = 0
        self.buffer: list[tuple[int, bytes]] = []
        self.asked: list[int] = []
        self.answers = True
        self.task = asyncio.get_running_loop().create_task(self._serve())

    def _bind(self, socket: zmq.asyncio.Socket, port: int) -> int:
        socket.setsockopt(zmq.LINGER, 0)
        socket.bind(f"tcp://127.0.0.1:{port}")
        return port

    @property
    def endpoint(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    @property
    def replay_endpoint(self) -> str:
        return f"tcp://127.0.0.1:{self.replay_port}"

    async def publish(self, payload: bytes, *, lost: bool = False, sequence: int | None = None) -> None:
        """Publish the next batch; `lost`: only the replay has it; `sequence`: send it as that, and keep nothing."""
        number = self.sequence if sequence is None else sequence
        if sequence is None:
            self.sequence += 1
            self.buffer = [*self.buffer, (number, payload)][-self.kept :]
        if not lost:
            await self.pub.send_multipart([self.topic, number.to_bytes(8, "big"), payload])

    async def _serve(self) -> None:
        while True:
            peer, _, start = await self.router.recv_multipart()
            self.asked.append(int.from_bytes(start, "big"))
            if not self.answers:
                continue
            middle = [self.topic] if self.topic_in_replay else []
            for sequence, payload in self.buffer:
                if sequence >= self.asked[-1]:
                    await self.router.send_multipart([peer, b"", *middle, sequence.to_bytes(8, "big"), payload])
            await self.router.send_multipart([peer, b"", *middle, END, b""])

    async def subscribed(self) -> None:
        """Until a subscription is known here: what is published before is nobody's, also when the other side already
        says that it is connected."""
        while not (await self.pub.recv()).startswith(b"\x01"):
            pass

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.context.destroy(linger=0)
