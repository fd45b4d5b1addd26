"""Faults of the lookup, planted one at a time: each a piece of its source replaced by a wrong one.

The modules named in `MODULES` are read anew with the fault in them, beside the sound ones, which nobody loses.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

MODULES = (
    "blocks",
    "deciding.question",
    "deciding.rank",
    "deciding.look",
    "deciding.without_index",
    "deciding.with_index",
    "deciding.lookup",
)
"""Of terraflow.hints, each before those that import it."""


class Fault(NamedTuple):
    """A row: what is wrong, which text of the module stands there and which is put in its place."""

    name: str
    sound: str
    wrong: str


# fmt: off
FAULTS = {
    "blocks": (
        Fault("another seed", "SEED = 1337", "SEED = 1338"),
        Fault("hashes on the wire are little-endian", 'struct.Struct(">Q")', 'struct.Struct("<Q")'),
        Fault("blocks are not chained", "if parent is not None:", "if False:"),
    ),
    "deciding.question": (
        Fault("a hole in a chain", " and all(hashes)", ""),
        Fault("a malformed chain gives way to other inputs",
              "if chained and chain_matching:",
              "if chained and chain_matching and well_formed(query):"),
        Fault("token ids before an exact hash",
              "if query.prefix_hash:",
              "if query.prefix_hash and not query.token_ids:"),
        Fault("text before token ids", "if query.token_ids:", "if query.token_ids and not query.prompt_text:"),
        Fault("an exact hash before a chain",
              "if chained and chain_matching:",
              "if chained and chain_matching and not query.prefix_hash:"),
        Fault("a part block counts", "tokens = len(keys) * block_tokens", "tokens = len(token_ids)"),
        Fault("token ids are known by their first block",
              "Input(exact=keys[-1], tokens=tokens)",
              "Input(exact=keys[0], tokens=tokens)"),
        Fault("a chain alone is no input", "if chained:\n", "if False:\n"),
        Fault("nothing is echoed", "._replace(echo=token_ids)", ""),
        Fault("the chain's sum is what the caller says", "sum(counts), True)", "query.prefix_token_count, True)"),
    ),
    "deciding.rank": (
        Fault("ties go by small letters", "rows.sort(key=_REPLICA)", "rows.sort(key=lambda row: row.replica.lower())"),
        Fault("ties go to the greater id", "rows.sort(key=_REPLICA)", "rows.sort(key=_REPLICA, reverse=True)"),
        Fault("the future is fresher than now",
              "return 1.0 if age_s <= 0 else 1.0 - age_s / ttl_s",
              "return 1.0 - age_s / ttl_s"),
        Fault("old stats press on", "known is not None and now - known[1] < ttl_s", "known is not None"),
        Fault("pressure makes scores negative",
              "max(0.0, 1.0 - float32(config.pressure_weight) * pressure)",
              "1.0 - float32(config.pressure_weight) * pressure"),
        Fault("negative pressure helps",
              "min(1.0, max(0.0, 1.0 - float32(config.pressure_weight) * pressure))",
              "max(0.0, 1.0 - float32(config.pressure_weight) * pressure)"),
        Fault("the threshold is tight",
              "0 < ttft_ms < config.slo_tight_ttft_ms",
              "0 < ttft_ms <= config.slo_tight_ttft_ms"),
        Fault("no SLO is tight", "0 < ttft_ms < config.slo_tight_ttft_ms", "ttft_ms < config.slo_tight_ttft_ms"),
        Fault("a replica does not count itself", "count - bisect_left(", "count - 1 - bisect_left("),
        Fault("all matches count for all", "ascending[0] == ascending[-1]:", "True:"),
        Fault("a replica alone tells nothing apart", "if total <= 1:", "if total <= 0:"),
        Fault("factors in another order", "(freshes, pressures, slos,", "(pressures, slos, freshes,"),
        Fault("products in float64", 'scores = array("f", [score', 'scores = array("d", [score'),
        Fault("no pressure", "(freshes, pressures, slos,", "(freshes, slos,"),
        Fault("a sum of zero matches", "if row.tokens > 0 and", "if row.tokens >= 0 and"),
        Fault("the least hit rate is too low", "known[0].hit_rate < least", "known[0].hit_rate <= least"),
        Fault("hot by freshness", "ones, ones, ones, scores, rates)", "ones, ones, ones, scores, recencies)"),
        Fault("hot at any age", "now - known[1] >= max_age_s or", ""),
        Fault("degraded counts in full", "config.degraded_weight if lost else 1.0", "1.0"),
        Fault("degraded counts against the sound", "if True in degraded:", "if False:"),
        Fault("nobody counts against a degraded one", "power if lost else next", "1.0 if lost else next"),
        Fault("tiers weigh the same", "config.tier_weights.get(tier, 1.0) for", "1.0 for"),
    ),
    "deciding.without_index": (
        Fault("the probe's tenant is looked up", "if look.query.tenant == PROBE_TENANT:", "if False:"),
        Fault("a foreign tenant is looked up", "if look.query.foreign else None", "if False else None"),
        Fault("any chain satisfies requireChain", "and well_formed(look.query))", ")"),
        Fault("no chain satisfies requireChain", "(look.query.block_hashes and ", "("),
        Fault("minimumPrefixTokens is off by one", "and look.input.tokens < least", "and look.input.tokens <= least"),
        Fault("a short prompt is never looked up", "if look.short and not look.policy.affinity", "if look.short"),
        Fault("an empty scheme is looked up", " and query.model and query.scheme:", " and query.model:"),
    ),
    "deciding.with_index": (
        Fault("a short prompt may match", "if look.short or not ranked:", "if not ranked:"),
        Fault("a short prompt may be hot", "look.floored or look.short or not", "look.floored or not"),
        Fault("the share is off by one", "if row.tokens >= least]", "if row.tokens > least]"),
        Fault("minimumMatchedTokens is off by one",
              "if row.matched_tokens >= enough]",
              "if row.matched_tokens > enough]"),
        Fault("the floor is above itself", "ranked[0].score < float32(floor)", "ranked[0].score <= float32(floor)"),
        Fault("the floor looks at the last", "ranked[0].score < float32(floor)", "ranked[-1].score < float32(floor)"),
        Fault("the floor drops one by one",
              "[] if ranked and floor > 0 and ranked[0].score < float32(floor) else ranked",
              "[row for row in ranked if floor <= 0 or row.score >= float32(floor)]"),
        Fault("a floored hit may be hot", "look.floored = True", "look.floored = False"),
        Fault("a chain's miss may be hot", "if look.input.chain or look.floored", "if look.floored"),
        Fault("hot although it is switched off", " or not look.policy.tenant_hot:", ":"),
        Fault("a model is taken for a tenant", "(Lookup.UNKNOWN_MODEL,", "(Lookup.UNKNOWN_TENANT,"),
        Fault("a scheme is not told apart", "(Lookup.UNKNOWN_HASH_SCHEME,", "(Lookup.NO_HINT,"),
        Fault("an empty index is an unknown tenant",
              "Known.NOTHING: (Lookup.NO_HINT,",
              "Known.NOTHING: (Lookup.UNKNOWN_TENANT,"),
        Fault("affinity although it is switched off", "if not look.policy.affinity:\n", "if False:\n"),
        Fault("affinity for a malformed chain", "and not well_formed(query):", "and False:"),
        Fault("a seed without lengths", "return _EIGHT + _EIGHT.join(hashes)", 'return b"".join(hashes)'),
        Fault("a seed of the last block", "return _EIGHT + _EIGHT.join(hashes)", "return hashes[-1]"),
        Fault("other bytes of the digest", "digest()[:8]", "digest()[-8:]"),
        Fault("a little-endian digest", 'digest()[:8], "big"', 'digest()[:8], "little"'),
        Fault("a chain of any adapter", "look.index.chain(look.scope, adapter,", 'look.index.chain(look.scope, "",'),
        Fault("an exact hash of any adapter",
              "look.index.exact(look.scope, adapter,",
              'look.index.exact(look.scope, "",'),
    ),
    "deciding.lookup": (
        Fault("affinity before UNKNOWN", "    known,\n    affine,\n", "    affine,\n    known,\n"),
        Fault("affinity before hot",
              "    tenant_hot,\n    known,\n    affine,\n",
              "    known,\n    affine,\n    tenant_hot,\n"),
        Fault("the adapter leaks into the scope",
              "scope=Scope(query.tenant, query.model, query.scheme)",
              "scope=Scope(query.tenant, query.model, query.scheme + query.adapter)"),
        Fault("the adapter is echoed unread", "query.adapter if look.consulted and", "query.adapter if"),
        Fault("only the best replica is credited",
              "for row in ranked if look.policy.eviction is Eviction.LFU else ranked[:1]:",
              "for row in ranked[:1]:"),
        Fault("the whole chain is credited", "given.hashes[: min(blocks, left)]", "given.hashes"),
        Fault("what came too late is delivered",
              "return _LATE if step is not reserved and expired() else decision",
              "return decision"),
        Fault("a late lookup of the probe times out",
              "if step is not reserved and expired():\n            return",
              "if expired():\n            return"),
    ),
}
# fmt: on
"""By the module of `MODULES` that has them."""


@contextmanager
def planted(module: str, fault: Fault) -> Iterator[Callable[..., Any]]:
    """`decide_lookup` with the fault in it."""
    names = [f"terraflow.hints.{module}" for module in MODULES]
    sound = {name: importlib.import_module(name) for name in names}
    try:
        for name in names:
            source = Path(str(sound[name].__file__)).read_text("utf-8")
            if name == f"terraflow.hints.{module}":
                assert fault.sound in source, f"there is no such text in {name}: {fault.sound}"
                source = source.replace(fault.sound, fault.wrong)
            faulty = ModuleType(name)
            sys.modules[name] = faulty
            exec(compile(source, f"{name}, planted", "exec"), faulty.__dict__)
        decide: Callable[..., Any] = sys.modules["terraflow.hints.deciding.lookup"].decide_lookup
        yield decide
    finally:
        sys.modules.update(sound)
