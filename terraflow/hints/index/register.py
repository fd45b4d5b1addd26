"""From names to the places of the hot table, made when they are first needed and given up when they are empty."""

from __future__ import annotations

from collections import deque

from terraflow.hints.index.arrivals import HOLDINGS_MAX
from terraflow.hints.index.places import Holding, Place, ScopeAt, Source, Space, Tenant
from terraflow.hints.index.table import SPACES_MAX, Table
from terraflow.hints.words import Scope

HOT_SLOTS = 64
"""A credit is dated to this part of the service's TTL, so that hot keys can be counted as they change."""
SLOT_S_MIN = 0.01
_SLOT_MAX = (1 << 31) - 1
REPLICAS_MAX = 1024
SOURCES_MAX = 1 << 16
NAMES_MAX = 64 << 20
"""Characters of the names of sources and spaces: each may be long, all of them may not."""
SHARE = 8
"""No tenant has more than this part of the sources, spaces, holdings and names that there may be."""
TENANTS_KEPT = 1024
"""Beyond these, tenants without a rule are forgotten once they have nothing."""


class Register:
    """The names; `Index` is the rest."""

    def __init__(self, entries_max: int, ttl_s: float, keys_per_tenant_max: int | None) -> None:
        self.entries_max = entries_max
        self.ttl_default_s = ttl_s
        self.keys_max_default = -1 if keys_per_tenant_max is None else keys_per_tenant_max
        self.slot_s = max(ttl_s / HOT_SLOTS, SLOT_S_MIN)
        self.table = Table(entries_max)
        self.tenants: dict[str, Tenant] = {}
        self.governed: set[str] = set()
        self.ttl_s_most = ttl_s
        self.last_told: Place | None = None
        self.sources: deque[Source] = deque()
        self.remembered = 0
        self.named: dict[str, int] = {}
        self.named_in_all = 0

    def slot(self, now: float) -> int:
        """The slot of time that a credit falls into; 0 is never."""
        return min(max(0, int(now // self.slot_s)) + 1, _SLOT_MAX)

    def tenant(self, name: str) -> Tenant:
        """A tenant, made at need, under the defaults."""
        known = self.tenants.get(name)
        if known is None:
            known = self.tenants[name] = Tenant(name, self.ttl_default_s, self.keys_max_default)
        return known

    def source(self, tenant: str, model: str, replica: str) -> Source | None:
        """A source, made at need, or None: there are too many."""
        found = self.found(tenant, model, replica)
        if found is not None:
            return found
        known = self.tenants.get(tenant)
        place = None if known is None else known.places.get(model)
        if self.remembered >= SOURCES_MAX or (known is not None and known.sources >= SOURCES_MAX // SHARE):
            return None
        if place is not None and len(place.sources) >= REPLICAS_MAX:
            return None
        if not self._names(tenant, len(tenant) + len(model) + len(replica)):
            return None
        owner = self.tenant(tenant)
        if place is None:
            place = owner.places[model] = Place(owner, model)
        made = place.sources[replica] = Source(place, replica)
        self.remembered += 1
        owner.sources += 1
        self.sources.append(made)
        for _ in range(min(2, len(self.sources) - self.remembered)):
            self.turn()
        return made

    def _names(self, tenant: str, characters: int) -> bool:
        """Take room for a tenant's names, or give it back; False, and nothing taken: there is too little."""
        own, in_all = self.named.get(tenant, 0) + characters, self.named_in_all + characters
        if characters > 0 and (own > NAMES_MAX // SHARE or in_all > NAMES_MAX):
            return False
        self.named_in_all = in_all
        if own > 0:
            self.named[tenant] = own
        else:
            self.named.pop(tenant, None)
        return True

    def turn(self) -> Source | None:
        """The source whose turn it is, which comes to the end of the row, unless it was forgotten."""
        source = self.sources.popleft()
        if source.place.sources.get(source.replica) is not source:
            return None
        self.sources.append(source)
        return source

    def found(self, tenant: str, model: str, replica: str) -> Source | None:
        """A source that is known."""
        owner = self.tenants.get(tenant)
        place = None if owner is None else owner.places.get(model)
        return None if place is None else place.sources.get(replica)

    def heard(self, tenant: str, model: str, replica: str, now: float) -> Source | None:
        """A source that is known, which has just been heard."""
        source = self.found(tenant, model, replica)
        if source is not None:
            source.event_at = source.heard_at = now
        return source

    def told(self, place: Place, now: float) -> None:
        """A place is told of an entry: it, and its tenant, come to the end of their rows."""
        owner = place.tenant
        place.told_at = owner.told_at = now
        if self.last_told is place:
            return
        self.last_told = place
        if next(reversed(owner.places)) != place.model:
            owner.places[place.model] = owner.places.pop(place.model)
        if next(reversed(self.tenants)) != owner.name:
            self.tenants[owner.name] = self.tenants.pop(owner.name)

    def scope(self, scope: Scope) -> ScopeAt | None:
        """A scope in which there is something."""
        tenant, model, scheme = scope
        owner = self.tenants.get(tenant)
        place = None if owner is None else owner.places.get(model)
        return None if place is None else place.scopes.get(scheme)

    def space(self, scope: Scope, adapter: str) -> Space | None:
        """A scope's adapter under which there is something."""
        at = self.scope(scope)
        return None if at is None else at.spaces.get(adapter)

    def where(self, source: Source, scheme: str, adapter: str) -> tuple[Space, Holding] | None:
        """The space and the holding of what a source reports, made at need, or None: there are too many."""
        place = source.place
        scope = place.scopes.get(scheme)
        if scope is None:
            scope = ScopeAt(place, scheme)
        space = scope.spaces.get(adapter)
        if space is None:
            characters = len(scope.scheme) + len(adapter)
            if place.tenant.spaces >= SPACES_MAX // SHARE or not self._names(place.tenant.name, characters):
                return None
            space = self.table.space(scope, adapter)
            if space is None:
                self._names(place.tenant.name, -characters)
                return None
            place.tenant.spaces += 1
            place.scopes[scheme] = scope
            scope.spaces[adapter] = space
            self.table.empty.append(space)
        holding = scope.holdings.get(source.replica)
        if holding is None:
            holding = self.table.holding(scope, source) if place.tenant.holdings < HOLDINGS_MAX // SHARE else None
            if holding is None:
                return None
            place.tenant.holdings += 1
            scope.holdings[source.replica] = holding
            source.holdings.append(holding)
            self.table.empty.append(holding)
        return space, holding

    def forget(self, source: Source) -> None:
        """Give a source up; it holds nothing any more."""
        if source.place.sources.pop(source.replica, None) is not None:
            place, tenant = source.place, source.place.tenant
            self.remembered -= 1
            tenant.sources -= 1
            self._names(tenant.name, -len(tenant.name) - len(place.model) - len(source.replica))
        self._prune(source.place)

    def tidy(self) -> None:
        """Give up what has become empty."""
        empty = self.table.empty
        while empty:
            one = empty.pop()
            if isinstance(one, Holding):
                self._tidy_holding(one)
            else:
                self._tidy_space(one)

    def _tidy_holding(self, holding: Holding) -> None:
        if holding.size or self.table.holdings[holding.number] is not holding:
            return
        self.table.forget_holding(holding)
        holding.tenant.holdings -= 1
        scope, source = holding.scope, holding.source
        if scope.holdings.get(source.replica) is holding:
            del scope.holdings[source.replica]
        if holding in source.holdings:
            source.holdings.remove(holding)
        self._prune_scope(scope)

    def _tidy_space(self, space: Space) -> None:
        if space.keys or self.table.spaces[space.number] is not space:
            return
        self.table.forget_space(space)
        space.tenant.spaces -= 1
        self._names(space.tenant.name, -len(space.scope.scheme) - len(space.adapter))
        del space.scope.spaces[space.adapter]
        self._prune_scope(space.scope)

    def _prune_scope(self, scope: ScopeAt) -> None:
        scopes = scope.place.scopes
        if not scope.spaces and not scope.holdings and scopes.get(scope.scheme) is scope:
            del scopes[scope.scheme]
            self._prune(scope.place)

    def _prune(self, place: Place) -> None:
        owner = place.tenant
        if not place.scopes and not place.sources and owner.places.get(place.model) is place:
            del owner.places[place.model]
            crowded = len(self.tenants) > TENANTS_KEPT
            if crowded and not owner.places and owner.name not in self.governed:
                self.tenants.pop(owner.name, None)
