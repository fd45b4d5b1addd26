"""The .proto's names and numbers against the contract's table, written down here independently of the .proto."""

from __future__ import annotations

import subprocess
import sys

import pytest

from terraflow.hints.wire import inferencecache_pb2 as pb

CONTRACT = """
LookupRouteRequest: 1 model_id string, 2 tenant_id string, 3 prefix_hash bytes, 4 prefix_token_count int32, 5 hash_scheme string, 6 slo SLO, 7 block_hashes bytes*, 8 block_token_counts int32*, 9 token_ids uint32*, 10 prompt_text string, 11 adapter_id string
SLO: 1 ttft_ms int32, 2 tbt_ms int32
LookupRouteResponse: 1 replica_scores ReplicaScore*, 2 reason_code string, 3 lookup_latency_us int64, 4 token_ids uint32*, 5 adapter_id string
ReplicaScore: 1 replica_id string, 2 score float, 3 matched_tokens int32, 4 estimated_cache_hit_prob float, 5 tier CacheTier
LookupPDRouteRequest: 1 model_id string, 2 tenant_id string, 3 prefix_hash bytes, 4 prefix_token_count int32, 5 pd_topology_ref string
LookupPDRouteResponse: 1 prefill_replica_id string, 2 decode_replica_id string, 3 transport_hint string, 4 reason_code string
RenderTemplateRequest: 1 template_ref string, 2 variables VariablesEntry*, 3 tenant_id string
RenderTemplateResponse: 1 rendered_prompt bytes, 2 stable_prefix_hash bytes, 3 tenant_namespace bytes, 4 reason_code string, 5 template_revision string
CacheStateUpdate: 1 replica_id string, 2 model_id string, 3 tenant_id string, 4 hash_scheme string, 5 timestamp_us int64, 6 prefixes PrefixEntry*, 7 stats ReplicaStats, 8 adapter_id string
PrefixEntry: 1 prefix_hash bytes, 2 token_count int32, 3 block_hashes bytes*, 4 block_token_counts int32*, 5 tier CacheTier, 6 adapter_id string
ReplicaStats: 1 replica_id string, 2 cache_memory_bytes int64, 3 hit_rate float, 4 pressure float, 5 client_version string, 6 t2_hit_tokens int64, 7 t2_query_tokens int64
GetCacheStateRequest: 1 model_id string, 2 tenant_id string
GetCacheStateResponse: 1 replicas ReplicaStats*, 2 summary CacheSummary
CacheSummary: 1 total_prefixes int64, 2 hot_prefixes int64
CacheEvent: 1 type Type, 2 replica_id string, 3 model_id string, 4 tenant_id string, 5 prefix_hash bytes, 6 timestamp_us int64, 7 adapter_id string
StreamEventsRequest: 1 model_id string, 2 tenant_id string, 3 types Type*
StreamMetricsRequest: 1 names string*
Metric: 1 name string, 2 type string, 3 labels LabelsEntry*, 4 value double, 5 timestamp_us int64
Ack: 1 accepted bool, 2 reason_code string
"""  # noqa: E501
SHAPES = {
    "LookupRoute": ("LookupRouteRequest", False, "LookupRouteResponse", False),
    "LookupPDRoute": ("LookupPDRouteRequest", False, "LookupPDRouteResponse", False),
    "RenderTemplate": ("RenderTemplateRequest", False, "RenderTemplateResponse", False),
    "GetCacheState": ("GetCacheStateRequest", False, "GetCacheStateResponse", False),
    "PublishEvent": ("CacheEvent", False, "Ack", False),
    "ReportCacheState": ("CacheStateUpdate", True, "Ack", False),
    "StreamCacheEvents": ("StreamEventsRequest", False, "CacheEvent", True),
    "StreamMetrics": ("StreamMetricsRequest", False, "Metric", True),
}
SCALARS = {1: "double", 2: "float", 3: "int64", 5: "int32", 8: "bool", 9: "string", 12: "bytes", 13: "uint32"}


def told(field) -> str:
    named = field.message_type or field.enum_type
    return (
        f"{field.number} {field.name} {named.name if named else SCALARS[field.type]}{'*' if field.is_repeated else ''}"
    )


@pytest.mark.parametrize("row", CONTRACT.strip().splitlines(), ids=lambda row: row.partition(":")[0])
def test_message_has_the_contracts_fields(row):
    name, _, fields = row.partition(": ")
    assert ", ".join(told(field) for field in pb.DESCRIPTOR.message_types_by_name[name].fields) == fields


def test_nothing_but_the_contract_is_there():
    assert set(pb.DESCRIPTOR.message_types_by_name) == {row.partition(":")[0] for row in CONTRACT.strip().splitlines()}
    assert pb.DESCRIPTOR.package == "inferencecache.v1alpha1"
    assert list(pb.DESCRIPTOR.services_by_name) == ["InferenceCache"]


def test_calls_have_the_contracts_shapes():
    methods = pb.DESCRIPTOR.services_by_name["InferenceCache"].methods
    assert {
        method.name: (
            method.input_type.name,
            method.client_streaming,
            method.output_type.name,
            method.server_streaming,
        )
        for method in methods
    } == SHAPES


def test_enums_have_the_contracts_numbers():
    tiers = [f"CACHE_TIER_{name}" for name in ("UNSPECIFIED", "T1", "T2", "T3")]
    types = ["TYPE_UNSPECIFIED", "PREFIX_ADDED", "PREFIX_EVICTED", "REPLICA_UPDATED", "ALL_CLEARED"]
    assert pb.CacheTier.items() == list(zip(tiers, range(4), strict=True))
    assert pb.CacheEvent.Type.items() == list(zip(types, range(5), strict=True))


def test_messages_are_imported_without_grpc():
    code = "import sys, terraflow.hints.wire.inferencecache_pb2; sys.exit('grpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
