"""Manifests: every field, and every refusal with its file, line and field."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from terraflow.hints.policy.body import Part
from terraflow.hints.policy.document import read_documents
from terraflow.hints.policy.duration import parse_duration
from terraflow.hints.policy.manifests import parse_manifests
from terraflow.hints.policy.policies import CachePolicy, Eviction, Policies, Pool, Slot, Topology
from terraflow.hints.policy.problems import PROBLEMS_MAX, PoliciesRefused

HEAD = "apiVersion: inferencecache.io/v1alpha1\nkind: {}\nmetadata: {{name: {}, namespace: acme}}\n"


def manifest(kind: str, spec: str = "spec: {}\n", name: str = "one") -> str:
    return HEAD.format(kind, name) + spec


def parsed(*documents: str) -> Policies:
    return parse_manifests({"a.yaml": "---\n".join(documents).encode()})


def refusals(text: str | bytes, file: str = "a.yaml") -> list[tuple[str, int, str, str]]:
    with pytest.raises(PoliciesRefused) as refused:
        parse_manifests({file: text if isinstance(text, bytes) else text.encode()})
    return [tuple(problem) for problem in refused.value.problems]


def refusal(text: str | bytes, file: str = "a.yaml") -> tuple[int, str, str]:
    (problem,) = refusals(text, file)
    assert problem[0] == file
    return problem[1:]


def test_a_policy_with_every_field() -> None:
    spec = """spec:
  eviction: LFU
  evictionTTL: 1h30m
  minimumPrefixTokens: 16
  minimumMatchedTokens: 0
  minimumMatchedShare: "0.05"
  routingFloorScore: "5"
  lookupTimeoutMs: 20
  strategy: {enableChainMatching: true, requireChain: true, enableTenantHot: false}
  affinityRouting: Disabled
"""
    assert parsed(manifest("CachePolicy", spec)).cache == {
        "acme": CachePolicy(
            eviction=Eviction.LFU,
            ttl_s=5400.0,
            minimum_prefix_tokens=16,
            minimum_matched_tokens=0,
            minimum_matched_share=0.05,
            routing_floor_score=5.0,
            lookup_timeout_ms=20,
            chain_matching=True,
            require_chain=True,
            tenant_hot=False,
            affinity=False,
        )
    }


@pytest.mark.parametrize("spec", ["spec: {}\n", "spec:\n  eviction: null\n  strategy:\n  evictionTTL: ~\n"])
def test_an_absent_or_null_field_is_the_default(spec: str) -> None:
    assert parsed(manifest("CachePolicy", spec)).cache == {"acme": CachePolicy()}


def test_no_namespace_is_the_default_namespace() -> None:
    text = (
        "apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\nmetadata: {name: one, labels: {x: y}}\nspec: {}\n"
    )
    assert set(parsed(text).cache) == {"default"}


def test_what_a_cluster_adds_to_a_manifest_is_passed_over() -> None:
    text = manifest("CachePolicy").replace(
        "namespace: acme", "namespace: acme, uid: u, generation: 3, managedFields: []"
    )
    assert set(parsed(text + "status: {observedGeneration: 3, conditions: []}\n").cache) == {"acme"}


def test_quotas() -> None:
    documents = [
        manifest("CacheTenant", f"spec:\n  tenantID: {tenant}\n  isolationMode: Fairness\n{quota}", tenant)
        for tenant, quota in (
            ("a", "  quota: {maxIndexEntries: 0}\n"),
            ("b", "  crypto: {}\n"),
            ("c", "  quota: {maxIndexEntries: 9}\n"),
        )
    ]
    assert parsed(*documents).quotas == {"a": 0, "c": 9}


def test_a_template_and_its_revision() -> None:
    spec = """spec:
  body: "You are {{role}}. {{question}}"
  slots:
  - {name: role, type: Stable, required: true, description: Who speaks.}
  - {name: question, type: Mutable}
"""
    template = parsed(manifest("PromptTemplate", spec)).templates["acme/one"]
    assert template.slots == (
        Slot(name="role", stable=True, required=True),
        Slot(name="question", stable=False, required=False),
    )
    reordered = """# a comment
metadata: {labels: {x: "1"}, namespace: acme, name: one}
spec:
  slots:
  - {type: Stable, name: role, description: Who speaks., required: true}
  - {type: Mutable, name: question, required: false}
  body: "You are {{role}}. {{question}}"
kind: PromptTemplate
apiVersion: inferencecache.io/v1alpha1
"""
    assert parsed(reordered).templates["acme/one"].revision == template.revision
    assert template.revision.startswith("sha256:") and len(template.revision) == 71
    others = [
        parsed(manifest("PromptTemplate", spec.replace("You", "You,"))),
        parsed(manifest("PromptTemplate", spec.replace("required: true, ", ""))),
    ]
    assert template.revision not in [other.templates["acme/one"].revision for other in others]
    renamed = parsed(manifest("PromptTemplate", spec, "two")).templates["acme/two"]
    assert renamed.revision != template.revision


def test_a_json_files_escapes() -> None:
    spec = {"body": "\U0001f600 {{a}}", "slots": [{"name": "a", "type": "Stable"}]}
    head = {"apiVersion": "inferencecache.io/v1alpha1", "kind": "PromptTemplate", "metadata": {"name": "one"}}
    found = parse_manifests({"a.yaml": json.dumps({**head, "spec": spec}).encode()})
    assert found.templates["default/one"].parts == (Part("\U0001f600 ", ""), Part("", "a"))


def test_a_topology() -> None:
    text = """apiVersion: inferencecache.io/v1alpha1
kind: PDTopology
metadata:
  name: pd
  namespace: acme
  annotations:
    inferencecache.io/hash-scheme: vllm
    inferencecache.io/adapter: lora-1
    inferencecache.io/transport: NIXL
spec:
  acceleratorTypes:
  - {name: a100, vendor: nvidia, model: A100, matchLabels: {accelerator: a100}}
  prefillPools:
  - {name: p, matchLabels: {pool: p}, replicas: 2, acceleratorType: a100}
  decodePools:
  - {name: d, matchLabels: {pool: d}}
"""
    assert parsed(text).topologies["acme/pd"] == Topology(
        ref="acme/pd",
        prefill_pools=(Pool(name="p", match_labels={"pool": "p"}, replicas=2),),
        decode_pools=(Pool(name="d", match_labels={"pool": "d"}),),
        hash_scheme="vllm",
        adapter="lora-1",
        transport="NIXL",
    )
    bare = parsed(manifest("PDTopology", "")).topologies["acme/one"]
    assert (bare.hash_scheme, bare.adapter, bare.transport) == ("", "", "Direct")


def test_labels_of_replicas() -> None:
    raw = b"replicas:\n  vllm-0: {pool: p}\n  vllm-1/dp0: {pool: d, zone: b}\n"
    assert parse_manifests({"replicas.yaml": raw}).labels == {
        "vllm-0": {"pool": "p"},
        "vllm-1/dp0": {"pool": "d", "zone": "b"},
    }


# fmt: off
BAD_FIELDS = [
    ("CachePolicy", "spec:\n  eviction: FIFO\n", 5, "spec.eviction", "FIFO"),
    ("CachePolicy", "spec:\n\n  evictionTTL: 0s\n", 6, "spec.evictionTTL", "more than zero"),
    ("CachePolicy", "spec:\n  evictionTTL: 30\n", 5, "spec.evictionTTL", "expected `str | null`"),
    ("CachePolicy", "spec:\n  evictionTTL: -5m\n", 5, "spec.evictionTTL", "no duration"),
    ("CachePolicy", "spec:\n  minimumMatchedTokens: -1\n", 5, "spec.minimumMatchedTokens", ">= 0"),
    ("CachePolicy", "spec:\n  minimumPrefixTokens: 2147483648\n", 5, "spec.minimumPrefixTokens", "<= 2147483647"),
    ("CachePolicy", 'spec:\n  routingFloorScore: "-1"\n', 5, "spec.routingFloorScore", "no plain decimal"),
    ("CachePolicy", "spec:\n  routingFloorScore: 1\n", 5, "spec.routingFloorScore", "expected `str`"),
    ("CachePolicy", "spec:\n  routingFloorScore: 0.1\n", 5, "spec.routingFloorScore", "in quotes"),
    ("CachePolicy", 'spec:\n  minimumMatchedShare: "1.5"\n', 5, "spec.minimumMatchedShare", "from 0 to 1"),
    ("CachePolicy", "spec:\n  affinityRouting: true\n", 5, "spec.affinityRouting", "expected"),
    ("CachePolicy", "spec:\n  strategy:\n    requireChain: true\n    enableChainMatching: false\n", 6,
     "spec.strategy.requireChain", "needs enableChainMatching"),
    ("CachePolicy", "spec:\n  strategy:\n    enableTenantWarm: true\n", 6,
     "spec.strategy.enableTenantWarm", "no field"),
    ("CachePolicy", "spec:\n  evictionTtl: 30m\n", 5, "spec.evictionTtl", "no field"),
    ("CachePolicy", "", 0, "spec", "is required"),
    ("CacheTenant", "spec:\n  quota: {}\n", 4, "spec.tenantID", "is required"),
    ("CacheTenant", 'spec:\n  tenantID: ""\n', 5, "spec.tenantID", "length >= 1"),
    ("CacheTenant", "spec:\n  tenantID: inferencecache.io/probe\n", 5, "spec.tenantID", "reserved"),
    ("CacheTenant", "spec:\n  tenantID: a\n  quota:\n    maxIndexEntries: -1\n", 7,
     "spec.quota.maxIndexEntries", ">= 0"),
    ("CacheTenant", "spec:\n  tenantID: a\n  quota:\n    maxMemoryBytes: 1\n", 7,
     "spec.quota.maxMemoryBytes", "no field"),
    ("CacheTenant", "spec:\n  tenantID: a\n  isolationMode: Hard\n", 6, "spec.isolationMode", "Hard"),
    ("CacheTenant", "spec:\n  tenantID: a\n  crypto: {key: x}\n", 6, "spec.crypto.key", "no field"),
    ("PromptTemplate", 'spec:\n  body: ""\n', 5, "spec.body", "length >= 1"),
    ("PromptTemplate", "spec:\n  body: a {{ b\n", 5, "spec.body", "in its line 1"),
    ("PromptTemplate", "spec:\n  body: a {{b}}\n", 5, "spec.body", "does not declare"),
    ("PromptTemplate", "spec:\n  body: a\n  slots:\n  - {name: b, type: Fixed}\n", 7, "spec.slots[0].type", "Fixed"),
    ("PromptTemplate", "spec:\n  body: a\n  slots:\n  - {name: b c, type: Stable}\n", 7,
     "spec.slots[0].name", "letters"),
    ("PromptTemplate", "spec:\n  body: a\n  slots:\n  - {name: b, type: Stable}\n  - {name: b, type: Stable}\n", 8,
     "spec.slots[1].name", "second b"),
    ("PDTopology", "spec:\n  decodePools:\n  - name: a\n    matchLabels: {x: ok, y: 1}\n", 7,
     "spec.decodePools[0].matchLabels.y", "expected `str`"),
    ("PDTopology", "spec:\n  decodePools:\n  - name: a\n    acceleratorType: h100\n", 7,
     "spec.decodePools[0].acceleratorType", "not among"),
    ("PDTopology", "spec:\n  decodePools:\n  - name: a\n  - name: a\n", 7, "spec.decodePools[1].name", "second a"),
    ("CacheBackend", "spec: {}\n", 2, "kind", "no kind"),
]
# fmt: on


@pytest.mark.parametrize(("kind", "spec", "line", "field", "said"), BAD_FIELDS)
def test_a_bad_field_is_told_with_its_line(kind: str, spec: str, line: int, field: str, said: str) -> None:
    found = refusal(manifest(kind, spec))
    # A required field that is missing stands on no line: that of what should hold it is told.
    assert (found[0] or 1, found[1]) == (line or 1, field)
    assert said in found[2]


# fmt: off
NO_MANIFESTS = [
    ("- a\n", 1, "", "no mapping"),
    ("a: 1\n", 1, "kind", "is required"),
    ("kind: CachePolicy\napiVersion: v1\nmetadata: {name: a}\nspec: {}\n", 2, "apiVersion", "is not inferencecache.io"),
    (manifest("CachePolicy").replace("acme", "a/b"), 3, "metadata.namespace", "letters"),
    ("a: [1\n", 2, "", "not YAML"),
    ("a: 1\nb: 2\na: 3\n", 3, "", "twice"),
    ("a: &x 1\n", 1, "", "anchor"),
    ("a: !!python/object:os.system 1\n", 1, "", "tag"),
    ("1: a\n", 1, "", "not text"),
    ('a: "\\ud800"\n', 1, "a", "surrogate"),
    ("a: 0x10\n", 1, "a", "decimal integer"),
    ("[" * 40 + "]" * 40, 1, "", "nested"),
    (b"\xff\xfe\xff", 0, "", "UTF-8"),
    (b"#" * (1 << 20) + b"##", 0, "", "larger"),
    ("[" + "1," * 60_000 + "]", 1, "", "parts"),
]
# fmt: on


@pytest.mark.parametrize(("text", "line", "field", "said"), NO_MANIFESTS)
def test_what_is_no_manifest_is_refused(text: str | bytes, line: int, field: str, said: str) -> None:
    found = refusal(text)
    assert found[:2] == (line, field)
    assert said in found[2]


def test_a_replicas_file_that_is_wrong() -> None:
    assert refusal("replicas:\n  a: {x: y}\n  b: {x: 1}\n", "replicas.yaml")[:2] == (3, "replicas.b.x")
    assert refusal("replica: {}\n", "replicas.yaml")[:2] == (1, "replica")


@pytest.mark.parametrize("kind", ["CachePolicy", "CacheTenant", "PromptTemplate", "PDTopology"])
def test_the_same_manifest_twice(kind: str) -> None:
    specs = {"CacheTenant": "spec: {tenantID: t}\n", "PromptTemplate": "spec: {body: a}\n"}
    text = manifest(kind, specs.get(kind, "spec: {}\n"))
    said = [problem[3] for problem in refusals(f"{text}---\n{text}")]
    assert f"is the second {kind} acme/one: the first is at a.yaml:3" in said


def test_one_policy_a_namespace_and_one_quota_a_tenant() -> None:
    both = manifest("CachePolicy") + "---\n" + manifest("CachePolicy", name="two")
    said = "is the second CachePolicy of namespace acme: the first is at a.yaml:3"
    assert refusal(both)[1:] == ("metadata.namespace", said)
    spec = "spec: {tenantID: t}\n"
    both = manifest("CacheTenant", spec) + "---\n" + manifest("CacheTenant", spec, "two")
    assert refusal(both)[1] == "spec.tenantID"


def test_everything_that_is_wrong_is_told_at_once() -> None:
    bad = manifest("CachePolicy", "spec: {eviction: X}\n").encode()
    files = {"a.yaml": b"a: [1", "b.yaml": bad, "c.yaml": b"kind: X\n"}
    with pytest.raises(PoliciesRefused) as refused:
        parse_manifests(files)
    assert [problem.file for problem in refused.value.problems] == ["a.yaml", "b.yaml", "c.yaml"]
    assert "b.yaml:4: spec.eviction" in str(refused.value)
    many = "---\n".join("a: 1\n" for _ in range(PROBLEMS_MAX + 5))
    with pytest.raises(PoliciesRefused) as refused:
        parse_manifests({"a.yaml": many.encode()})
    assert len(refused.value.problems) == PROBLEMS_MAX
    assert str(refused.value).endswith("and 5 more")


# fmt: off
DURATIONS = [
    ("0", 0), ("0s", 0), ("30m", 1_800 * 10**9), ("1h30m", 5_400 * 10**9), ("1.5h", 5_400 * 10**9),
    ("250ms", 250 * 10**6),
    ("1us", 1000), ("1µs", 1000), ("1μs", 1000), ("3ns", 3), (".5s", 5 * 10**8), ("1.s", 10**9),
    ("1h1h", 7_200 * 10**9),
    ("2562047h47m16.854775807s", 2**63 - 1),
]
# fmt: on


@pytest.mark.parametrize(("text", "nanoseconds"), DURATIONS)
def test_durations_as_go_writes_them(text: str, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds


NO_DURATIONS = ["", "30", "m", "-1s", "+1s", "1 s", "1d", "1h ", "1e3s", "s1", "1..s", "9999999999999h", "1h" * 40]


@pytest.mark.parametrize("text", NO_DURATIONS)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration"):
        parse_duration(text)


@settings(deadline=None)
@given(st.binary(max_size=300) | st.text(alphabet="a:-[]{}&*!|> \n\"'#1,", max_size=120).map(str.encode))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        read_documents(raw, "a.yaml")
        parse_manifests({"a.yaml": raw})
    except PoliciesRefused as refused:
        assert refused.problems


UNITS = {"h": 3600 * 10**9, "m": 60 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


plain = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff\ufffe\uffff\u2028\u2029"), max_size=12
)
data = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | plain,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(plain, inner, max_size=4),
    max_leaves=12,
)


def reads_back(yaml: YAML, written: bytes, value: object) -> bool:
    """Whether the library itself reads what it wrote: in flow mappings it leaves out quotes that some keys need."""
    try:
        return bool(yaml.load(written) == value)
    except YAMLError:
        return False


@settings(deadline=None)
@given(st.dictionaries(plain, data, min_size=1, max_size=4), st.sampled_from([None, False]))
def test_what_yaml_writes_is_read_back(value: dict[str, object], flow: bool | None) -> None:
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = flow
    yaml.representer.ignore_aliases = lambda _: True
    written = io.BytesIO()
    yaml.dump(value, written)
    assume(reads_back(yaml, written.getvalue(), value))
    (document,) = read_documents(written.getvalue(), "a.yaml")
    assert document.value == value
    for path, line in document.lines.items():
        assert 1 <= line <= written.getvalue().count(b"\n") + 1
        assert document.line((*path, "more")) == line


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 99), st.sampled_from(list(UNITS))), min_size=1, max_size=5))
def test_a_duration_is_the_sum_of_its_terms(terms: list[tuple[int, str]]) -> None:
    text = "".join(f"{number}{name}" for number, name in terms)
    assert parse_duration(text) == sum(number * UNITS[name] for number, name in terms)


FIELDS = """metadata spec status name namespace annotations eviction evictionTTL strategy requireChain tenantID quota
body slots type required prefillPools matchLabels acceleratorTypes routingFloorScore minimumMatchedShare replicas
0 {{a}}"""
names = st.sampled_from(FIELDS.split())
values = st.recursive(
    st.none() | st.booleans() | st.integers() | names | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names | st.text(max_size=5), inner, max_size=5),
    max_leaves=12,
)
kinds = st.sampled_from(["CachePolicy", "CacheTenant", "PromptTemplate", "PDTopology", "CacheBackend", 7, None])


@settings(deadline=None)
@given(kinds, st.dictionaries(names, values, max_size=4), values, st.sampled_from(["a.yaml", "replicas.yaml"]))
@example("CachePolicy", {}, {"\U00010000": False}, "a.yaml")
def test_any_manifest_is_read_or_refused_with_its_place(kind: object, more: object, spec: object, file: str) -> None:
    assert isinstance(more, dict)
    manifest = {
        "apiVersion": "inferencecache.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": "n"},
        "spec": spec,
        **more,
    }
    try:
        parse_manifests({file: json.dumps(manifest, ensure_ascii=True).encode()})
    except PoliciesRefused as refused:
        assert all(problem.file == file and problem.rule for problem in refused.problems)
