"""A folder of manifests, read in one piece and watched.

1. What is put in force is what stood in the folder at one moment: where Kubernetes mounts a ConfigMap (`..data` is a
   link that is swapped), the link is followed once; elsewhere a read during which a file changed is done again.
2. A folder that is refused leaves in force what was.
3. Changes are told by the operating system; a look every few seconds finds those that it does not tell (a link in
   the path that was swapped, a network's file system).
4. Files are `*.yaml` and `*.yml` that do not begin with a dot; folders inside are not read.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

from watchfiles import awatch

from terraflow.hints.policy.manifests import parse_manifests
from terraflow.hints.policy.policies import Policies
from terraflow.hints.policy.problems import PoliciesRefused, Problem

log = logging.getLogger("terraflow.hints.policy")

LOOK_EVERY_S = 5.0
FILES_MAX = 1_000
FOLDER_BYTES_MAX = 16 << 20
_TRIES = 10

State = tuple[str, tuple[tuple[str, int, int, int], ...]]
"""Where the folder really is; then each file's name, inode, size and time of change in nanoseconds."""


class FolderUnreadable(Exception):
    """The folder is not there, or changes without end."""


def read_folder(folder: Path) -> Policies:
    """The policies of a folder as it stands. Raises PoliciesRefused or FolderUnreadable."""
    return parse_manifests(read_files(folder)[1])


def read_files(folder: Path) -> tuple[State, dict[str, bytes]]:
    """The folder's state and its files by name, all of one moment. Raises PoliciesRefused or FolderUnreadable."""
    for _ in range(_TRIES):
        try:
            state = folder_state(folder)
            files = {name: (Path(state[0]) / name).read_bytes() for name, *_ in state[1]}
            if folder_state(folder) == state:
                return state, files
        except FileNotFoundError:
            if not folder.is_dir():
                raise FolderUnreadable(f"{folder} is no folder") from None
        except OSError as error:
            raise FolderUnreadable(f"{folder} cannot be read: {error.strerror}") from None
    raise FolderUnreadable(f"{folder} changes faster than it can be read")


def folder_state(folder: Path) -> State:
    """What changes whenever the folder's files do. Raises OSError."""
    linked = folder / "..data"
    real = Path(os.path.realpath(linked if linked.is_dir() else folder, strict=True))
    names = sorted(entry for entry in os.listdir(real) if _is_manifest(entry) and (real / entry).is_file())  # noqa: PTH208
    found = [(name, (real / name).stat()) for name in names]
    if len(found) > FILES_MAX or sum(stat.st_size for _, stat in found) > FOLDER_BYTES_MAX:
        rule = f"has more than {FILES_MAX} files or {FOLDER_BYTES_MAX} bytes"
        raise PoliciesRefused([Problem(str(folder), 0, "", rule)])
    return str(real), tuple((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in found)


def _is_manifest(name: str) -> bool:
    return not name.startswith(".") and name.endswith((".yaml", ".yml"))


class PolicyFolder:
    """A folder whose policies are handed on whenever they change.

    `adopt` is called on the loop. `problems` is what is wrong with the folder now, empty when its
    policies are in force.
    """

    def __init__(self, folder: Path, adopt: Callable[[Policies], None], look_every_s: float = LOOK_EVERY_S) -> None:
        self._folder = folder
        self._adopt = adopt
        self._look_every_s = look_every_s
        self._state: State | None = None
        self.problems: tuple[str, ...] = ()

    def load(self) -> Policies:
        """Read it for the first time. Raises PoliciesRefused or FolderUnreadable: a start with it is refused."""
        self._state, files = read_files(self._folder)
        return parse_manifests(files)

    async def watch(self) -> None:
        """Hand on every change until cancelled; never raises for what is in the folder."""
        while True:
            try:
                await self.look()
                real = self._state[0] if self._state is not None else None
                async for _ in awatch(
                    self._folder,
                    watch_filter=None,
                    rust_timeout=int(self._look_every_s * 1000),
                    yield_on_timeout=True,
                    recursive=False,
                    debounce=200,
                    step=50,
                ):
                    await self.look()
                    if self._state is not None and self._state[0] != real and not self._is_configmap():
                        break
            except OSError:
                await asyncio.sleep(self._look_every_s)
            except Exception as fault:
                # A fault of ours is told, and what it kept from being put in force is tried again.
                self._state = None
                log.error("looking at the policies of %s failed", self._folder, exc_info=fault)
                await asyncio.sleep(self._look_every_s)

    def _is_configmap(self) -> bool:
        return (self._folder / "..data").is_symlink()

    async def look(self) -> None:
        """Hand the policies on if the folder has changed since the last look."""
        try:
            now = await asyncio.to_thread(folder_state, self._folder)
            if now == self._state:
                return
            self._state, files = await asyncio.to_thread(read_files, self._folder)
        except (PoliciesRefused, FolderUnreadable, OSError) as refused:
            # Should it come back just as it was, that is a change, too.
            self._state = None
            self._tell(refused)
            return
        try:
            policies = await asyncio.to_thread(parse_manifests, files)
        except PoliciesRefused as refused:
            self._tell(refused)
            return
        self.problems = ()
        self._adopt(policies)
        log.info("the manifests of %s have changed and are sound", self._folder)

    def _tell(self, refused: Exception) -> None:
        said = tuple(str(refused).splitlines())
        if said == self.problems:
            return
        self.problems = said
        log.error("the policies of %s are refused, and those before stay in force: %s", self._folder, "; ".join(said))
