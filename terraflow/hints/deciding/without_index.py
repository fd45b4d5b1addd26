"""Steps 1 to 6 of a lookup: what can be said without the index."""

from __future__ import annotations

from terraflow.core.reasons import Lookup
from terraflow.hints.deciding.look import Decision, Look, no_hint
from terraflow.hints.deciding.question import read_input, well_formed
from terraflow.hints.words import PROBE_TENANT


def reserved(look: Look) -> Decision | None:
    """1. The probe's tenant, and tenants that are not the caller's, are not looked up."""
    if look.query.tenant == PROBE_TENANT:
        return no_hint("tenant", "the tenant is reserved for probes")
    return no_hint("tenant", "the tenant is not one of the caller's") if look.query.foreign else None


def chain_required(look: Look) -> Decision | None:
    """3. A policy may want a chain from the wire, well-formed."""
    if not look.policy.require_chain or (look.query.block_hashes and well_formed(look.query)):
        return None
    return Decision(
        reason=Lookup.POLICY_REQUIRES_CHAIN, step="require_chain", why="no well-formed chain came with the lookup"
    )


def input_known(look: Look) -> Decision | None:
    """4. Explicit hashes, else token ids, else the prompt's text."""
    grounds = look.grounds
    look.input = read_input(look.query, look.policy.chain_matching, grounds.tokenizers, grounds.block_tokens)
    return no_hint("input", look.input.fault) if look.input.fault else None


def long_enough(look: Look) -> Decision | None:
    """5. A short prompt is no match; without affinity that is known at once."""
    least = look.policy.minimum_prefix_tokens
    look.short = least > 0 and look.input.tokens < least
    if look.short and not look.policy.affinity:
        return no_hint("minimum_prefix_tokens", f"{look.input.tokens} tokens are less than {least}")
    return None


def keys_named(look: Look) -> Decision | None:
    """6. Tenant, model and scheme name where to look."""
    look.consulted = True
    query = look.query
    if query.tenant and query.model and query.scheme:
        return None
    return no_hint("keys", "tenant_id, model_id or hash_scheme is empty")
