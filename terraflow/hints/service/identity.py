"""Who calls, and for which tenants and replicas: by client certificate, or by a signed token.

1. A caller is bound to tenants and, as a producer, to replica ids. What it says of others is refused; what it asks of
   others is answered as if there were nothing.
2. A token is `base64url(payload) . base64url(signature)`: the payload is JSON, the signature Ed25519 over DSSE's
   pre-authentication encoding of the token's type and the payload, so that no other signed document passes for one.
3. A certificate counts only when TLS has verified it; its names (URI and DNS subject alternative names; the subject's
   common name only where there is no alternative name, RFC 6125) are looked up among the identities of the settings.
4. Without either, a caller is anonymous: it reads what the settings let everybody read, and produces only where they
   say so explicitly. A bad token is never taken for none.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from terraflow.core.signature import pae

SIGNED_AS = "application/vnd.terraflow.hints-token+json"
TOKEN_BYTES_MAX = 8_192
ANY = "*"
KEPT_MAX = 1_024
"""Tokens whose signature need not be checked again; more than the connections that a server has."""


class TokenInvalid(ValueError):
    """The token is not one that the service issued, or its time is over; the text says which and quotes nothing."""


class Binding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a name may do. `tenants` are exact, or `*` for all; a replica that ends in `*` is a beginning of ids."""

    name: str
    tenants: tuple[str, ...]
    replicas: tuple[str, ...] = ()
    """The replicas it may report for; none for a reader."""


class _Payload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    tenants: tuple[str, ...]
    replicas: tuple[str, ...]
    expires: int


class Caller:
    """A caller, and what it is bound to."""

    __slots__ = ("_beginnings", "_bound_to_all", "_reads", "_replicas", "_tenants", "every_tenant", "known", "name")

    def __init__(self, binding: Binding, *, known: bool = True, reads: bool = True) -> None:
        self.name = binding.name
        self.known = known
        """Whether anything but its own word says who it is."""
        self._tenants = frozenset(binding.tenants)
        self._bound_to_all = ANY in self._tenants
        self._reads = reads
        self.every_tenant = reads and self._bound_to_all
        self._replicas = frozenset(binding.replicas)
        self._beginnings = tuple(replica[:-1] for replica in binding.replicas if replica.endswith(ANY))

    @property
    def tenants(self) -> frozenset[str]:
        """The tenants it is bound to; meaningless where `every_tenant`."""
        return self._tenants

    @property
    def produces(self) -> bool:
        """Whether it may report anything at all."""
        return bool(self._replicas)

    def sees(self, tenant: str) -> bool:
        """Whether it may know of the tenant's entries."""
        return self.every_tenant or (self._reads and tenant in self._tenants)

    def may_report(self, tenant: str, replica: str) -> bool:
        """Whether it may say what the replica holds for the tenant."""
        bound = self._bound_to_all or tenant in self._tenants
        return bound and (replica in self._replicas or replica.startswith(self._beginnings))


def sign_token(binding: Binding, expires: int, key: Ed25519PrivateKey) -> str:
    """A token for `binding` that is good until `expires`, in seconds since the epoch."""
    payload = msgspec.json.encode(
        _Payload(name=binding.name, tenants=binding.tenants, replicas=binding.replicas, expires=expires)
    )
    return f"{_encode(payload)}.{_encode(key.sign(pae(SIGNED_AS, payload)))}"


def verify_token(token: str, keys: Iterable[Ed25519PublicKey], now_s: float) -> tuple[Binding, int]:
    """The binding of a token and when it expires. Raises TokenInvalid."""
    if len(token) > TOKEN_BYTES_MAX:
        raise TokenInvalid("the token is too long")
    body, _, signature = token.partition(".")
    try:
        payload, signed = _decode(body), _decode(signature)
    except (binascii.Error, ValueError):
        raise TokenInvalid("not a token of this service") from None
    if not any(_holds(key, signed, pae(SIGNED_AS, payload)) for key in keys):
        raise TokenInvalid("the token is signed by no key that is trusted here")
    try:
        said = msgspec.json.decode(payload, type=_Payload)
    except msgspec.DecodeError:
        raise TokenInvalid("the token is signed, but says nothing that this service knows") from None
    if now_s >= said.expires:
        raise TokenInvalid("the token has expired")
    return Binding(name=said.name, tenants=said.tenants, replicas=said.replicas), said.expires


def _holds(key: Ed25519PublicKey, signature: bytes, signed: bytes) -> bool:
    try:
        key.verify(signature, signed)
    except InvalidSignature:
        return False
    return True


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decode(text: str) -> bytes:
    raw = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if not raw or _encode(raw) != text:
        raise ValueError("not the one encoding")
    return raw


def names_of(certificate: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of a verified certificate, as `ssl.SSLSocket.getpeercert` tells it, as rule 3 has them."""
    alternative = [value for kind, value in certificate.get("subjectAltName", ()) if kind in ("URI", "DNS")]
    common = [value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"]
    return tuple(alternative) if certificate.get("subjectAltName") else tuple(common)


class Identities:
    """Who is who: the rows of the settings, the keys that sign tokens, and what anonymous callers may do."""

    def __init__(
        self,
        *,
        bindings: Sequence[Binding] = (),
        keys: Sequence[Ed25519PublicKey] = (),
        anonymous_readers: bool = True,
        insecure_producers: bool = False,
    ) -> None:
        self._certified: Mapping[str, Caller] = {binding.name: Caller(binding) for binding in bindings}
        self._keys = tuple(keys)
        self._kept: dict[str, tuple[Caller, int]] = {}
        self.anonymous = Caller(
            Binding(
                name="",
                tenants=(ANY,),
                replicas=(ANY,) if insecure_producers else (),
            ),
            known=False,
            reads=anonymous_readers,
        )

    def caller(self, authorization: str | None, certified: Sequence[str], now_s: float) -> Caller:
        """The caller with this `authorization` header and these names in its verified certificate; `now_s` is wall
        time. Raises TokenInvalid for a header that is not a good token."""
        if authorization:
            return self._by_token(authorization, now_s)
        for name in certified:
            found = self._certified.get(name)
            if found is not None:
                return found
        return self.anonymous

    def _by_token(self, authorization: str, now_s: float) -> Caller:
        kept = self._kept.get(authorization)
        if kept is not None and now_s < kept[1]:
            return kept[0]
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            raise TokenInvalid("the authorization header is not a bearer token")
        binding, expires = verify_token(token.strip(), self._keys, now_s)
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        caller = Caller(binding)
        self._kept[authorization] = caller, expires
        return caller


NOBODY = Caller(Binding(name="", tenants=()), known=False)
"""Whoever shows a bad token to a lookup: it fails open, and sees nothing."""
