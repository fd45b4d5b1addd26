"""Where engines put which field: the wire's positions and names, one table a shape.

1. A shape is sent as an array, by position, or as a map, by name. vLLM and SGLang have both moved between these, batch
   and event independently, so all four combinations are read.
2. Fields were only ever added at the end. What lies beyond a table is skipped and counted, and so is a tag that no
   table has.
3. The first `REQUIRED` fields must be there. Up to the LoRA id a value of another type makes the batch unreadable;
   beyond, engines disagree about what a position means, and a value of another type is skipped and counted.

Sources, read in public: `vllm/distributed/kv_events.py` of vllm-project/vllm, `sglang/srt/disaggregation/kv_events.py`
of sgl-project/sglang, and what ai-dynamo/dynamo and llm-d/llm-d-kv-cache accept from both.
"""

from __future__ import annotations

RANK_NAMES = ("data_parallel_rank", "attn_dp_rank", "dp_rank")
"""A batch is (`ts`, `events`, rank), some versions with a tag before it; the rank goes by these names, the second is
SGLang's."""

# fmt: off
STORED = (
    "block_hashes",        # 1  of int, bytes or str
    "parent_block_hash",   # 2  nil: the first block of a prompt
    "token_ids",           # 3  of int; of pairs where a draft model reads ahead: the first of each counts
    "block_size",          # 4  tokens a block
    "lora_id",             # 5  int or nil
    "medium",              # 6  str or nil
    "lora_name",           # 7  str or nil; SGLang puts a map with `cache_salt` here
    "extra_keys",          # 8  a list of lists, one a block: what else went into its hash
    "group_idx",           # 9  the group of layers of a hybrid model
    "kv_cache_spec_kind",  # 10 what the group attends to
    "kv_cache_spec_sliding_window",  # 11
    "locality",            # 12 LOCAL or REMOTE
)
REMOVED = (
    "block_hashes",        # 1
    "medium",              # 2
    "group_idx",           # 3
    "locality",            # 4
)
CLEARED = (
    "medium",              # 1
)
# fmt: on

REQUIRED = {"BlockStored": 4, "BlockRemoved": 1, "AllBlocksCleared": 0}

EVENTS: dict[str, tuple[str, ...]] = {"BlockStored": STORED, "BlockRemoved": REMOVED, "AllBlocksCleared": CLEARED}

MAIN_KINDS = frozenset({"full_attention", "mla_attention", "sink_full_attention"})
"""The groups whose blocks decide whether a prefix can be reused as a whole. Sliding windows, states and the like keep
less than the prefix; what they store and drop says nothing of it."""
