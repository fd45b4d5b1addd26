"""What is beyond what a number, the memory or a caller has room for."""

from __future__ import annotations

import pytest

from terraflow.app.hints_opening import open_grounds
from terraflow.app.hints_settings import HintsSettings
from terraflow.app.opening import CannotStart
from terraflow.hints.deciding.look import Grounds
from terraflow.hints.feed.remote import COUNT_MAX, _prefixes
from terraflow.hints.index.index import Index
from terraflow.hints.live import LiveHints
from terraflow.hints.service.identity import Binding, Caller
from terraflow.hints.service.metrics import Sample
from terraflow.hints.service.streams import may_see
from terraflow.hints.words import Entry, Report
from tests.storage.makers import SetClock


def test_token_counts_beyond_the_contracts_are_told_as_its_greatest() -> None:
    entry = Entry("", [b"a", b"b", b"c"], [16, 2**31 + 5, 2**31 + 21], 1)
    told = [prefix for prefixes, _ in _prefixes([entry]) for prefix in prefixes]
    assert [prefix.token_count for prefix in told] == [16, COUNT_MAX, COUNT_MAX]


@pytest.mark.parametrize("entries_max", [10**10, 2**31, 10**30])
def test_an_index_for_which_there_is_no_memory_is_refused_in_one_line(entries_max: int) -> None:
    with pytest.raises(CannotStart, match=f"^entries_max: .*{entries_max}.*$"):
        open_grounds(HintsSettings(entries_max=entries_max))


def test_a_models_numbers_are_for_who_sees_every_tenant_that_has_it() -> None:
    live = LiveHints(Grounds(index=Index()), SetClock())
    for tenant, model in (("acme", "own"), ("acme", "shared"), ("other", "shared"), ("other", "theirs")):
        entry = Entry("", [tenant.encode()], [16], 1)
        live.ingest(Report(replica="r", model=model, tenant=tenant, scheme="s", entries=(entry,)))
    bound, both = Caller(Binding(name="a", tenants=("acme",))), Caller(Binding(name="b", tenants=("acme", "other")))
    keys = live.index.keys_by_model()

    def seen(caller: Caller) -> list[str]:
        found = []
        for model in ("own", "shared", "theirs", "none"):
            sample = Sample("x", "gauge", {"model": model}, 1.0)
            found += [model] if may_see(caller, sample, live, keys) else []
        return found

    assert seen(bound) == ["own"]
    assert seen(both) == ["own", "shared", "theirs"]
