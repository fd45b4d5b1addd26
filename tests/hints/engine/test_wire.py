"""KV events as they go over the wire, in each form."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from terraflow.hints.engine.blocks import HashForm, chain, shown
from terraflow.hints.engine.wire import CPU, GPU, Cleared, Encoding, Form, Removed, Stored, encode

BLOCKS = chain(range(8), 4, "", b"x")
FIRST, SECOND = (shown(block.hash, HashForm.INT) for block in BLOCKS)


def _sent(form: Form, *events: Any) -> Any:
    return msgspec.msgpack.decode(encode(events, form, 1.5))


def test_arrays_say_everything_in_its_place() -> None:
    assert _sent(Form(), Stored(BLOCKS[1:], GPU), Removed([BLOCKS[0].hash], CPU), Cleared()) == [
        1.5,
        [
            ["BlockStored", [SECOND], FIRST, [4, 5, 6, 7], 4, None, "GPU", None],
            ["BlockRemoved", [FIRST], "CPU"],
            ["AllBlocksCleared"],
        ],
    ]


def test_maps_leave_out_what_is_none() -> None:
    form = Form(encoding=Encoding.MAPS, rank=3)
    assert _sent(form, Stored(BLOCKS[:1], GPU), Cleared()) == {
        "ts": 1.5,
        "events": [
            {
                "type": "BlockStored",
                "block_hashes": [FIRST],
                "token_ids": [0, 1, 2, 3],
                "block_size": 4,
                "medium": "GPU",
            },
            {"type": "AllBlocksCleared"},
        ],
        "data_parallel_rank": 3,
    }


@pytest.mark.parametrize(
    ("encoding", "batch", "event"),
    [(Encoding.ARRAY_OF_MAPS, list, dict), (Encoding.MAP_OF_ARRAYS, dict, list)],
)
def test_the_two_mixed_forms(encoding: Encoding, batch: type, event: type) -> None:
    sent = _sent(Form(encoding=encoding, rank=0), Removed([BLOCKS[0].hash], GPU))
    assert type(sent) is batch
    events = sent["events"] if batch is dict else sent[1]
    assert type(events[0]) is event
    assert (sent["data_parallel_rank"] if batch is dict else sent[2]) == 0


def test_adapters_are_named_by_id_and_name() -> None:
    blocks = chain(range(4), 4, "fine", b"x")
    assert blocks[0].hash != BLOCKS[0].hash
    both = _sent(Form(loras={"fine": 7}), Stored(blocks, GPU))
    alone = _sent(Form(loras={"fine": 7}, lora_names=False), Stored(blocks, GPU))
    assert (both[1][0][5], both[1][0][7]) == (7, "fine")
    assert (alone[1][0][5], alone[1][0][7]) == (7, None)


def test_hashes_in_each_form() -> None:
    whole = b"\xff" * 8 + bytes(24)
    assert shown(whole, HashForm.INT) == 2**64 - 1
    assert shown(whole, HashForm.SIGNED) == -1
    assert shown(whole, HashForm.BYTES) == whole
    assert shown(whole, HashForm.TEXT) == whole.hex()


def test_a_part_block_has_no_hash_and_a_salt_changes_all() -> None:
    assert len(chain(range(11), 4, "", b"x")) == 2
    assert not {b.hash for b in chain(range(8), 4, "", b"y")} & {b.hash for b in BLOCKS}
