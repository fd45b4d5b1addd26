"""Whether a capability's recent calls say that it works.

1. Only the provider's own faults count (the recovery table says which); a caller's bad request never does.
2. `faults_max` faults in a row make it unhealthy for `rest_s` seconds. After the rest one call is let through, and one
   more for each `rest_s` that it takes: a success makes it healthy, a fault starts a new rest.
3. A provider that says when it may be asked again (`Retry-After`) is not asked before, whatever else succeeds, for at
   most `retry_after_max_s`.
4. Every end of a call names the instant in which the call began. One from before the end of a rest says nothing of how
   it is after it: its success does not end the rest, its fault and its silence do not end the probe.
5. What is remembered of a capability is forgotten with `CAPABILITIES_MAX` others.
6. A rest that begins is a line of the log, and the first success after it is another; of one capability at most one
   rest in `TELL_EVERY_S` is told. Counted are all.
"""

from __future__ import annotations

import logging

import msgspec

from terraflow.gateway.capacity import CAPABILITIES_MAX

log = logging.getLogger("terraflow.health")

TELL_EVERY_S = 10.0
"""A provider may ask for rests of milliseconds."""


class HealthRule(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of rules 2 and 3."""

    faults_max: int = 5
    rest_s: float = 10.0
    retry_after_max_s: float = 60.0


class _State(msgspec.Struct):
    faults: int = 0
    rests_until: float = 0.0
    asked_until: float = 0.0
    probing_since: float | None = None

    def rests(self, now: float) -> bool:
        return now < self.rests_until or now < self.asked_until


class _Rests(msgspec.Struct):
    """The rests of a capability: how many, when the last of them was told, and whether its end is yet to be."""

    count: int = 0
    told_at: float | None = None
    untold_end: bool = False


class Health:
    """The health of one process's capabilities; instants are monotonic seconds."""

    def __init__(self, rule: HealthRule) -> None:
        self._rule = rule
        self._states: dict[str, _State] = {}
        self._rests: dict[str, _Rests] = {}

    def rests(self, capability: str) -> int:
        """How often it has begun to rest."""
        rests = self._rests.get(capability)
        return 0 if rests is None else rests.count

    def healthy(self, capability: str, now: float) -> bool:
        """Whether a call may be planned on it now."""
        state = self._states.get(capability)
        if state is None:
            return True
        if now < state.asked_until:
            return False
        if state.faults < self._rule.faults_max:
            return True
        probing = state.probing_since is not None and now < state.probing_since + self._rule.rest_s
        return now >= state.rests_until and not probing

    def recent_faults(self, capability: str) -> int:
        """Faults in a row so far."""
        state = self._states.get(capability)
        return 0 if state is None else state.faults

    def recovers_in_s(self, capability: str, now: float) -> float:
        """Seconds until a probe is let through; 0 when healthy."""
        state = self._states.get(capability)
        return 0.0 if state is None else max(0.0, state.rests_until - now, state.asked_until - now)

    def began(self, capability: str, now: float) -> None:
        """A call starts: on a resting capability it is the probe, and no other is let through beside it."""
        state = self._states.get(capability)
        if state is not None and state.faults >= self._rule.faults_max and now >= state.rests_until:
            state.probing_since = now

    def succeeded(self, capability: str, began: float, now: float) -> None:
        """A call that began then was answered, or refused for a reason that is the caller's."""
        state = self._states.get(capability)
        if state is None or began < state.rests_until:
            return
        del self._states[capability]
        if now < state.asked_until:
            self._states[capability] = _State(asked_until=state.asked_until)
        else:
            self._tell_end(capability)

    def failed(self, capability: str, began: float, now: float, retry_after_s: float | None) -> None:
        """A call that began then failed by the provider's own fault; its `Retry-After` in seconds if it gave one."""
        state = self._states.get(capability)
        if state is None:
            if len(self._states) >= CAPABILITIES_MAX:
                del self._states[next(iter(self._states))]
            state = self._states[capability] = _State()
        rested = state.rests(now)
        if retry_after_s is not None:
            state.asked_until = max(state.asked_until, now + min(retry_after_s, self._rule.retry_after_max_s))
        if began >= state.rests_until:
            state.faults += 1
            state.probing_since = None
            if state.faults >= self._rule.faults_max:
                state.rests_until = now + self._rule.rest_s
        if state.rests(now) and not rested:
            self._count_rest(capability, state, now)

    def _count_rest(self, capability: str, state: _State, now: float) -> None:
        rests = self._rests.get(capability)
        if rests is None:
            if len(self._rests) >= CAPABILITIES_MAX:
                del self._rests[next(iter(self._rests))]
            rests = self._rests[capability] = _Rests()
        rests.count += 1
        if rests.told_at is not None and now < rests.told_at + TELL_EVERY_S:
            return
        rests.told_at, rests.untold_end = now, True
        log.warning(
            "capability %s rests for %.1f s: faults in a row: %d%s",
            capability,
            self.recovers_in_s(capability, now),
            state.faults,
            ", and its provider asked for it" if now < state.asked_until else "",
        )

    def _tell_end(self, capability: str) -> None:
        rests = self._rests.get(capability)
        if rests is not None and rests.untold_end:
            rests.untold_end = False
            log.info("capability %s answers again", capability)

    def abandoned(self, capability: str, began: float) -> None:
        """A call that began then ended without telling anything: its caller left, or its deadline was short."""
        state = self._states.get(capability)
        if state is not None and state.probing_since is not None and began >= state.probing_since:
            state.probing_since = None
