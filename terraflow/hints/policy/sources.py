"""The policies in force, of the two sources there are: a folder and what was posted.

1. A post replaces all cache policies and all quotas, those of the folder too, from then on and until the service
   starts again: a controller that posts is the one authority for them.
2. Templates, topologies and replicas' labels always come from the folder: a post has none.
3. Either source replaces its part as a whole.
4. What is read is read beside the loop: a large body takes tens of milliseconds.
5. What is in force says from where it came and since when; a folder that has changed after a post is no reason to say
   that its cache policies are.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from enum import StrEnum

import msgspec

from terraflow.hints.policy.policies import Policies
from terraflow.hints.policy.posted import Posted, parse_posted

log = logging.getLogger("terraflow.hints.policy")


class Origin(StrEnum):
    """Where the cache policies and quotas in force come from."""

    NONE = "none"
    FOLDER = "folder"
    POSTED = "posted"


def combined(folder: Policies, posted: Posted | None) -> Policies:
    """What is in force."""
    if posted is None:
        return folder
    return msgspec.structs.replace(folder, cache=posted.cache, quotas=posted.quotas)


class PolicySources:
    """Both sources; `adopt` gets the whole whenever either changes."""

    def __init__(
        self,
        adopt: Callable[[Policies], None],
        folder: Policies | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`now` is wall time in seconds."""
        self._adopt = adopt
        self._now = now
        self.origin = Origin.NONE if folder is None else Origin.FOLDER
        self.since = now()
        """When those in force came, in seconds of wall time."""
        self._folder = folder if folder is not None else Policies()
        self._posted: Posted | None = None
        self._one_at_a_time = asyncio.Lock()

    @property
    def in_force(self) -> Policies:
        """The whole, as it was last handed on."""
        return combined(self._folder, self._posted)

    def from_folder(self, policies: Policies) -> None:
        """The folder has these now."""
        self._folder = policies
        self._adopt(self.in_force)
        counted = (
            f"templates {len(policies.templates)}, topologies {len(policies.topologies)}, labelled replicas"
            f" {len(policies.labels)}"
        )
        if self._posted is not None:
            log.warning(
                "in force from the folder: %s; its cache policies and quotas are not, since others were posted", counted
            )
            return
        self.origin, self.since = Origin.FOLDER, self._now()
        log.info(
            "in force from the folder: cache policies %d, quotas %d, %s",
            len(policies.cache),
            len(policies.quotas),
            counted,
        )

    async def post(self, raw: bytes) -> None:
        """A body of `POST /policy`. Raises PoliciesRefused, and then nothing changes. Bodies take effect in order."""
        async with self._one_at_a_time:
            posted = self._posted = await asyncio.to_thread(parse_posted, raw)
            self._adopt(self.in_force)
            self.origin, self.since = Origin.POSTED, self._now()
            log.info(
                "posted, in force instead of the folder's until the service starts again: cache policies %d, quotas %d",
                len(posted.cache),
                len(posted.quotas),
            )
