"""Integration: what is signed is what was appended, and damage is noticed before it is signed."""

from __future__ import annotations

import itertools

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from terraflow.evidence.checkpoint import open_checkpoint
from terraflow.evidence.log import Integrator, LeafChanged, LogDamaged, load_published
from terraflow.evidence.merkle import Tree, grow, leaf_hash, root
from terraflow.evidence.proof import prove
from terraflow.ports.ledger import LedgerConflict
from terraflow.verifier.formats import Refused, parse_key
from terraflow.verifier.proof import verify_proof
from tests.evidence.ledger import SqliteLedger
from tests.evidence.sample import KEY, TENANT, VERIFIER_KEY, entries, ledger_of


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 900), min_size=1, max_size=5, unique=True).map(sorted), st.integers(1, 300))
def test_any_pace_of_integration_gives_the_same_tree(sizes: list[int], leaves_max: int) -> None:
    ledger, source = SqliteLedger(), list(itertools.islice(entries(), sizes[-1]))
    for size in sizes:
        ledger.append(TENANT, source[ledger.size(TENANT) : size])
        integrator = Integrator(ledger, KEY, leaves_max)
        while integrator.step(TENANT) is not None:
            pass
    note = ledger.checkpoint(TENANT)
    assert note is not None
    whole, _ = grow(Tree(), [leaf_hash(entry) for entry in source])
    assert open_checkpoint(note, TENANT, KEY.public_key()).root == root(whole)
    assert load_published(ledger, TENANT, KEY) == whole


def test_each_tenant_has_a_log_of_its_own_and_damage_stays_with_it() -> None:
    ledger = SqliteLedger()
    for tenant in ("acme", "bolt", "cove"):
        ledger.append(tenant, itertools.islice(entries(tenant), 10))
    ledger.db.execute("UPDATE leaf SET data = CAST(data || ' ' AS BLOB) WHERE tenant = 'bolt' AND idx = 4")
    signed, damaged = Integrator(ledger, KEY).run_once()
    assert [done.tenant for done in signed] == ["acme", "cove"]
    assert [(trouble.tenant, type(trouble)) for trouble in damaged] == [("bolt", LeafChanged)]
    assert ledger.checkpoint("bolt") is None
    with pytest.raises(ValueError):
        open_checkpoint(signed[0].checkpoint, "cove", KEY.public_key())


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE leaf SET data = CAST(replace(data, 'acme', 'acne') AS BLOB) WHERE idx = 25",
        "UPDATE leaf SET hash = zeroblob(32) WHERE idx = 25",
        "DELETE FROM leaf WHERE idx = 25",
        "UPDATE leaf SET data = zeroblob(70000) WHERE idx = 25",
    ],
)
def test_a_leaf_that_changed_since_it_was_appended_is_not_signed(damage: str) -> None:
    ledger = ledger_of((20,))
    before = ledger.checkpoint(TENANT)
    ledger.append(TENANT, itertools.islice(entries(), 20, 40))
    ledger.db.execute(damage)
    for integrator in (Integrator(ledger, KEY), Integrator(ledger, KEY)):
        with pytest.raises(LeafChanged):
            integrator.step(TENANT)
    assert ledger.checkpoint(TENANT) == before


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE tile SET hashes = zeroblob(length(hashes))",
        "DELETE FROM tile",
        "UPDATE checkpoint SET note = CAST(replace(note, '20', '10') AS BLOB)",
        "DELETE FROM leaf WHERE idx >= 15",
    ],
)
def test_a_published_tree_that_changed_is_not_continued(damage: str) -> None:
    ledger = ledger_of((20,))
    ledger.db.execute(damage)
    with pytest.raises(LogDamaged):
        Integrator(ledger, KEY).step(TENANT)


def test_another_key_cannot_continue_a_log() -> None:
    with pytest.raises(LogDamaged):
        Integrator(ledger_of((20,)), Ed25519PrivateKey.generate()).step(TENANT)


def test_of_two_integrators_one_wins_and_the_other_catches_up() -> None:
    ledger = ledger_of((20,))
    one, two = Integrator(ledger, KEY), Integrator(ledger, KEY)
    one.step(TENANT)
    two.step(TENANT)
    ledger.append(TENANT, itertools.islice(entries(), 20, 30))
    assert one.step(TENANT) is not None
    assert two.step(TENANT) is None
    ledger.append(TENANT, itertools.islice(entries(), 30, 40))
    assert two.step(TENANT) is not None
    assert load_published(ledger, TENANT, KEY).size == 40


def test_an_integrator_overtaken_while_it_publishes_loses_nothing() -> None:
    ledger = ledger_of((20,))
    ledger.append(TENANT, itertools.islice(entries(), 20, 30))
    slow = Integrator(ledger, KEY)
    publish = ledger.publish

    def overtaken(*arguments: object) -> None:
        ledger.publish = publish  # type: ignore[method-assign]
        Integrator(ledger, KEY).step(TENANT)
        publish(*arguments)  # type: ignore[arg-type]

    ledger.publish = overtaken  # type: ignore[method-assign]
    assert slow.step(TENANT) is None
    assert load_published(ledger, TENANT, KEY).size == 30
    with pytest.raises(LedgerConflict):
        publish(TENANT, 30, [], b"")


def test_a_record_has_its_proof_as_soon_as_a_checkpoint_covers_it() -> None:
    ledger = ledger_of((300, 700))
    source = list(itertools.islice(entries(), 701))
    ledger.append(TENANT, source[700:])
    for index in (0, 1, 255, 256, 511, 512, 699):
        proof = prove(ledger, TENANT, index, KEY.public_key())
        assert proof is not None
        assert verify_proof(source[index], proof, parse_key(VERIFIER_KEY))[0] == index
        for entry, changed in [
            (source[index] + b" ", proof),
            (source[index], proof.replace(b"index %d\n" % index, b"index %d\n" % (index + 1))),
            (source[index], proof.replace(b"\n\n", b"\n", 1)),
            (source[index], proof[:-5]),
            (source[index], b"\n" + proof),
        ]:
            with pytest.raises(Refused):
                verify_proof(entry, changed, parse_key(VERIFIER_KEY))
    assert prove(ledger, TENANT, 700, KEY.public_key()) is None
    assert prove(ledger, "nobody", 0, KEY.public_key()) is None


def test_any_changed_byte_of_a_proof_is_refused() -> None:
    ledger = ledger_of((300,))
    entry = ledger.leaves(TENANT, 7, 8)[0].data
    proof = prove(ledger, TENANT, 7, KEY.public_key())
    assert proof is not None
    for at in range(len(proof)):
        for mask in (1, 4, 32, 128):
            with pytest.raises(Refused):
                verify_proof(entry, proof[:at] + bytes([proof[at] ^ mask]) + proof[at + 1 :], parse_key(VERIFIER_KEY))
