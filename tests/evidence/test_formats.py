"""Paths, bundles, notes and checkpoints are those of the specifications, and the verifier reads them strictly."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from terraflow.evidence.checkpoint import log_key, open_checkpoint, origin, sign_checkpoint
from terraflow.evidence.merkle import Tree, grow, leaf_hash
from terraflow.evidence.note import NoteInvalid, open_note, sign_note, verifier_key
from terraflow.evidence.tiles import bundle_path, encode_bundle, tile_path, tiles_of
from terraflow.verifier import formats, layout, records
from tests.evidence.sample import KEY, TENANT, VERIFIER_KEY

TREE = grow(Tree(), [leaf_hash(b"x")])[0]
NOTE = sign_checkpoint(TENANT, TREE, KEY)
LOG_KEY = formats.parse_key(VERIFIER_KEY)


def test_paths_are_those_of_the_specification() -> None:
    assert tile_path(0, 1_234_067) == "tile/0/x001/x234/067"
    assert tile_path(1, 0, 17) == "tile/1/000.p/17"
    assert bundle_path(273, 112) == "tile/entries/273.p/112"


@given(st.integers(1, 300_000_000_000), st.data())
def test_writer_and_verifier_name_the_same_files(size: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, (size - 1) // 256))
    assert layout.bundle_name(index, size) == bundle_path(index, min(256, size - index * 256))


@pytest.mark.parametrize("size", [1, 255, 256, 257, 65_535, 65_536, 70_000])
def test_writer_and_verifier_expect_the_same_tiles(size: int) -> None:
    tiles = {tile_path(level, index, width) for level, index, width in tiles_of(size)}
    assert tiles == {name for name in layout.names_of(size) if name[:5] == "tile/" and "entries" not in name}


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_a_bundle_comes_apart_as_it_was_put_together(entries: list[bytes]) -> None:
    assert records.split_bundle(encode_bundle(entries), "x") == entries


def test_a_bundle_holds_entries_up_to_the_length_that_two_bytes_can_say() -> None:
    assert records.split_bundle(encode_bundle([b"x" * 65_535]), "x") == [b"x" * 65_535]
    with pytest.raises(OverflowError):
        encode_bundle([b"x" * 65_536])


@pytest.mark.parametrize("raw", [b"\0", b"\0\2a", b"\0\1ab"])
def test_a_bundle_cut_short_is_refused(raw: bytes) -> None:
    with pytest.raises(formats.Refused):
        records.split_bundle(raw, "x")


def test_a_note_is_the_one_in_the_documentation_of_gos_note_package() -> None:
    seed = base64.b64decode("AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz")[1:]
    key = Ed25519PrivateKey.from_private_bytes(seed)
    text = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
    note = sign_note(text, "PeterNeumann", key)
    expected = "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM="
    assert note.decode() == f"{text}\n— PeterNeumann {expected}\n"
    published = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
    assert verifier_key("PeterNeumann", key.public_key()) == published
    assert open_note(note, "PeterNeumann", key.public_key()) == text
    assert formats.parse_key(published).public == key.public_key().public_bytes_raw()


def test_a_checkpoint_is_three_lines_under_a_signature() -> None:
    lines = NOTE.decode().split("\n")
    assert lines[:2] == ["terraflow.acme/evidence", "1"] and base64.b64decode(lines[2]) == leaf_hash(b"x")
    opened = open_checkpoint(NOTE, TENANT, KEY.public_key())
    assert (opened.origin, opened.size, opened.root) == (origin(TENANT), 1, leaf_hash(b"x"))
    assert formats.open_checkpoint(NOTE, LOG_KEY, "x") == (1, leaf_hash(b"x"))


def test_any_other_byte_in_a_checkpoint_is_refused_by_writer_and_verifier() -> None:
    for at in range(len(NOTE)):
        for mask in (1, 2, 4, 8, 16, 32, 64, 128):
            changed = NOTE[:at] + bytes([NOTE[at] ^ mask]) + NOTE[at + 1 :]
            with pytest.raises(NoteInvalid):
                open_checkpoint(changed, TENANT, KEY.public_key())
            with pytest.raises(formats.Refused):
                formats.open_checkpoint(changed, LOG_KEY, "x")
    for changed in (NOTE[:-1], NOTE + b"\n", b"\n" + NOTE, NOTE + NOTE.split(b"\n")[-2] + b"\n", b""):
        with pytest.raises(NoteInvalid):
            open_checkpoint(changed, TENANT, KEY.public_key())
        with pytest.raises(formats.Refused):
            formats.open_checkpoint(changed, LOG_KEY, "x")


def test_signed_text_that_is_no_checkpoint_of_this_log_is_refused() -> None:
    name = origin(TENANT)
    root = base64.b64encode(leaf_hash(b"x")).decode()
    for text in [
        f"{origin('other')}\n1\n{root}\n",
        f"{name}\n01\n{root}\n",
        f"{name}\n-1\n{root}\n",
        f"{name}\n1\n{root}\nmore\n",
        f"{name}\n1\n{root[:-2]}B=\n",
        f"{name}\n1\n\n",
    ]:
        note = sign_note(text, name, KEY)
        with pytest.raises(NoteInvalid):
            open_checkpoint(note, TENANT, KEY.public_key())
        with pytest.raises(formats.Refused):
            formats.open_checkpoint(note, LOG_KEY, "x")


def test_a_witness_may_have_signed_the_previous_checkpoint_too() -> None:
    witness = sign_note(NOTE.decode().rpartition("\n\n")[0] + "\n", "witness.example", KEY)
    both = NOTE + witness.rpartition(b"\n\n")[2]
    assert formats.open_checkpoint(both, LOG_KEY, "x", others=True).size == 1
    with pytest.raises(formats.Refused):
        formats.open_checkpoint(both, LOG_KEY, "x")
    with pytest.raises(formats.Refused):
        formats.open_checkpoint(witness, LOG_KEY, "x", others=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name",
        VERIFIER_KEY[:-1],
        VERIFIER_KEY[:-2] + "H4",
        VERIFIER_KEY.replace("acme", "acne"),
        VERIFIER_KEY + "\n",
        log_key(TENANT, KEY.public_key()).replace("+AQ", "+Ag"),
    ],
)
def test_a_key_that_was_mistyped_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        formats.parse_key(text)


@pytest.mark.parametrize(
    "raw",
    [
        *(b'{"b":1,"a":2}', b'{"a":1,"a":1}', b'{"a": 1}', b'"\\u0041"', b"1.0", b"1e2", b"-0", b"NaN", b'"\xff"'),
        *(b'"\\ud800"', b"9007199254740992", b"[-9007199254740992]", b"[" * 200_000, b"1" * 5_000, b""),
    ],
)
def test_the_verifier_refuses_json_in_any_other_encoding(raw: bytes) -> None:
    with pytest.raises(formats.Refused):
        formats.parse_json(raw, "x")


def test_the_verifier_reads_numbers_of_53_bits_and_text_of_any_script() -> None:
    raw = '[9007199254740991,-9007199254740991,"1234567890123456789 \U0001f600\\n\x7f"]'.encode()
    assert formats.parse_json(raw, "x")[0] == 2**53 - 1
