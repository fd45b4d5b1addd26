"""Which two replicas a prompt names: the one rule of fleets, with route hints and without.

1. Rendezvous hashing: when a replica goes or comes, only its own prompts move.
2. It names two, always the same two in one order. Whoever asks takes the less loaded of them, by what it knows of load,
   and the first of equals.
3. What a prompt is known by is the asker's to say. Who knows nothing of caches takes its beginning, so that the turns
   of a conversation stay where they began. Who does know comes to this for prompts that nobody holds, and takes all of
   them, so that those with a common system prompt spread.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from xxhash import xxh3_64_intdigest


def two_named(replicas: Sequence[str], known_by: bytes) -> tuple[int, int]:
    """The places of the two replicas that a prompt names; of one replica twice its own. There is one at least."""
    if len(replicas) == 1:
        return 0, 0
    seed = xxh3_64_intdigest(known_by)
    scores = [xxh3_64_intdigest(replica.encode(), seed) for replica in replicas]
    first = scores.index(max(scores))
    scores[first] = -1
    return first, scores.index(max(scores))


def member_of(replica: str, members: Container[str]) -> str:
    """The member of a fleet that a hint means: the one of that id, else the engine whose data-parallel rank it is
    (`ID/dpN`), since an engine's ranks stand behind one endpoint unless each is a member of its own."""
    if replica in members:
        return replica
    engine, slash, rank = replica.rpartition("/dp")
    return engine if engine and slash and rank.isdecimal() else replica
