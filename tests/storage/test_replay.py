"""What a simulated power cut makes of a record of writes and syncs."""

from __future__ import annotations

import random
from pathlib import Path

from trust.replay import Step, disk_after, parse

TRACE = r"""
11 openat(AT_FDCWD</>, "\x2f\x64\x2f\x61", O_RDWR|O_CREAT|O_CLOEXEC, 0600) = 3</d/a>
11 write(1</told>, "\x75\x70\x0a", 3) = 3
11 pwrite64(3</d/a>, "\x61\x62\x63", 3, 1) = 3
12 pwrite64(3</d/a>, "\x64", 1, 0 <unfinished ...>
11 fdatasync(3</d/a>) = 0
12 <... pwrite64 resumed>) = 1
11 pwrite64(3</d/a>, "\x65", 1, 5) = -1 EIO (Input/output error)
11 pwrite64(4</elsewhere>, "\x65", 1, 0) = 1
11 write(1</told>, "\x62\x65\x67\x75\x6e\x20\x72\x20\x37\x0a", 10) = 10
"""


def test_a_record_is_read_call_by_call_as_they_return() -> None:
    assert list(parse(TRACE, "/d")) == [
        Step("openat", "/d/a"),
        Step("told", "", b"up\n"),
        Step("pwrite64", "/d/a", b"abc", 1),
        Step("fdatasync", "/d/a"),
        Step("pwrite64", "/d/a", b"d", 0),
        Step("told", "", b"begun r 7\n"),
    ]


def test_what_was_synced_is_there_and_the_rest_may_be(tmp_path: Path) -> None:
    steps = list(parse(TRACE, "/d"))
    seen = set()
    for seed in range(50):
        acknowledged = disk_after(steps, tmp_path, random.Random(seed))
        assert acknowledged.begun == {"r": 7}
        seen.add((tmp_path / "a").read_bytes())
    assert seen == {b"\0abc", b"dabc"}
    assert disk_after(steps[:3], tmp_path, random.Random(1)).begun == {}


def test_sectors_of_one_write_arrive_each_by_itself(tmp_path: Path) -> None:
    steps = [Step("openat", "/d/a"), Step("pwrite64", "/d/a", b"x" * 1_536, 0)]
    seen = set()
    for seed in range(200):
        disk_after(steps, tmp_path, random.Random(seed))
        content = (tmp_path / "a").read_bytes().ljust(1_536, b"\0")
        seen.add(tuple(content[at : at + 512] == b"x" * 512 for at in (0, 512, 1_024)))
    assert len(seen) == 8
