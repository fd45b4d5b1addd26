"""What is wrong with a manifest says what to write instead, and shows nothing that stands in it but names and signs."""

from __future__ import annotations

import pytest

from terraflow.hints.policy.manifests import parse_manifests
from terraflow.hints.policy.posted import parse_posted
from terraflow.hints.policy.problems import PoliciesRefused

HEAD = "apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\nmetadata: {name: p, namespace: acme}\n"


def rules(text: str) -> str:
    with pytest.raises(PoliciesRefused) as refused:
        parse_manifests({"a.yaml": text.encode()})
    return str(refused.value)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("spec: {eviction: FIFO}", "spec.eviction is 'FIFO', not one of LFU, LRU"),
        ("spec: {affinityRouting: On}", "spec.affinityRouting is 'On', not one of Disabled, Enabled"),
        ("spec: {evictionTtl: 5s}", "spec.evictionTtl is no field of this manifest: did you mean evictionTTL?"),
        ("spec: {zzz: 5s}", "spec.zzz is no field of this manifest"),
    ],
)
def test_a_field(spec: str, said: str) -> None:
    assert rules(HEAD + spec).endswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("spec: {a: secret, b: [secret}", "expected ',' or ']', but got '}'"),
        ("spec: {a: secret", "expected ',' or '}', but got '<stream end>'"),
        ("a: b: secret", "mapping values are not allowed here"),
        ("spec: 'secret", "found unexpected end of stream"),
    ],
)
def test_yaml_that_is_none_names_the_signs_that_it_wants(text: str, said: str) -> None:
    found = rules(HEAD + text)
    assert said in found and "…" not in found and "secret" not in found


def test_a_posted_body() -> None:
    with pytest.raises(PoliciesRefused, match=r"policies\[0\].eviction is 'fifo', not one of lfu, lru"):
        parse_posted(b'{"version": 7, "policies": [{"namespace": "a", "eviction": "fifo"}]}')
