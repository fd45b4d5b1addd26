"""Somebody else's program: a client by grpcio's own generator, which has nothing of ours but the .proto.

Run with the generated modules on its path, the service's address and a tenant; prints the answers as one JSON object,
by call.
"""

from __future__ import annotations

import json
import sys
from itertools import islice

import grpc
import inferencecache_pb2 as messages
from google.protobuf.json_format import MessageToDict
from inferencecache_pb2_grpc import InferenceCacheStub

CHAIN = {"block_hashes": [b"1" * 8, b"2" * 8], "block_token_counts": [64, 64]}
CALL_S = 10.0


def answers(hints: InferenceCacheStub, tenant: str) -> dict[str, object]:
    """What each call of the contract answers, in an order in which each has something to answer."""
    of = {"tenant_id": tenant, "model_id": "m"}
    told: dict[str, object] = {}

    stats = messages.ReplicaStats(replica_id="r", pressure=0.5)
    held = messages.CacheStateUpdate(
        replica_id="r", hash_scheme="s", prefixes=[messages.PrefixEntry(**CHAIN)], stats=stats, **of
    )
    changes = hints.StreamCacheEvents(messages.StreamEventsRequest(**of), timeout=CALL_S)
    changes.initial_metadata()  # waits until the stream is open: it tells what happens from then on
    told["ReportCacheState"] = hints.ReportCacheState(iter([held, held]), timeout=CALL_S)
    told["StreamCacheEvents"] = list(islice(changes, 2))
    changes.cancel()
    lookup = messages.LookupRouteRequest(hash_scheme="s", **CHAIN, **of)
    told["LookupRoute"] = hints.LookupRoute(lookup, timeout=CALL_S)
    told["GetCacheState"] = hints.GetCacheState(messages.GetCacheStateRequest(**of), timeout=CALL_S)
    cleared = messages.CacheEvent(type=messages.CacheEvent.ALL_CLEARED, replica_id="r", **of)
    told["PublishEvent"] = hints.PublishEvent(cleared, timeout=CALL_S)
    topology = messages.LookupPDRouteRequest(pd_topology_ref=f"{tenant}/none", **of)
    told["LookupPDRoute"] = hints.LookupPDRoute(topology, timeout=CALL_S)
    template = messages.RenderTemplateRequest(template_ref=f"{tenant}/none", tenant_id=tenant)
    told["RenderTemplate"] = hints.RenderTemplate(template, timeout=CALL_S)
    names = ["inferencecache_server_up", "inferencecache_lookup_route_calls_total"]
    metrics = hints.StreamMetrics(messages.StreamMetricsRequest(names=names), timeout=CALL_S)
    told["StreamMetrics"] = list(islice(metrics, 2))
    metrics.cancel()
    return told


def plain(answer: object) -> object:
    """An answer, or each of several, as JSON has it."""
    return [plain(one) for one in answer] if isinstance(answer, list) else MessageToDict(answer)


if __name__ == "__main__":
    with grpc.insecure_channel(sys.argv[1]) as channel:
        stub = InferenceCacheStub(channel)
        told = answers(stub, sys.argv[2])
    assert set(told) == set(vars(stub)), "a call of the contract was not made"
    assert not [name for name in sys.modules if name.partition(".")[0] == "terraflow"]
    print(json.dumps({name: plain(answer) for name, answer in told.items()}))
