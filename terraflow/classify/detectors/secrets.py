"""Credentials known by their structure or their surroundings: private keys, JWTs, passwords in URLs, cloud keys.

1. A private key counts with its armour and some of its body; the armour alone is talk about keys.
2. A JWT's header must decode to JSON that names an algorithm (RFC 7515, section 4.1.1).
3. A password in a URL or a connection string counts unless it is a placeholder (`<password>`, `${PASSWORD}`,
   `***`).
4. An AWS secret has no mark of its own: 40 characters count beside a word such as "secret".
"""

from __future__ import annotations

import binascii

from terraflow.classify.detectors.row import Detector
from terraflow.classify.passage import (
    ALNUM,
    BASE64,
    BREAK,
    DIGITS,
    HEX,
    LOWER,
    UPPER,
    URLSAFE,
    WORD,
    Span,
    run_start,
    run_stop,
    stretch,
    words_before,
)
from terraflow.core.types import SensitiveType

_SECRET_WORDS = frozenset(b"aws secret secrets secretkey secretaccesskey accesskey awssecretaccesskey".split())
_PLACEHOLDERS = frozenset(
    b"password pass passwd pwd secret changeme xxx xxxx user username token your yourpassword example".split()
)
_USER = ALNUM + b"._~%!$&'*+,;=-"
_ENDS = bytes(0x20 if c in b" \t\r\n\"'`>" + BREAK else c for c in range(256))
_HEX_ONLY = bytes(c if c in HEX else 0x20 for c in range(256))
_SERVER_KEYS = (b"server=", b"data source=", b"host=", b"user id=", b"uid=", b"initial catalog=", b"database=")


def locate_private_key(data: bytes, end: int) -> Span | None:
    """A PEM or PGP private key whose armour line ends at `end`, with at least 16 characters of its body."""
    start = data.rfind(b"-----BEGIN", max(0, end - 60), end)
    body = data[end : end + 400].split(BREAK, 1)[0]
    for piece in body.replace(b"\\n", b"\n").replace(b"\\r", b"\n").split():
        if len(piece) >= 16 and not piece.strip(BASE64 + b"="):
            return start, end
    return None


def locate_putty_key(data: bytes, end: int) -> Span | None:
    """A PuTTY key file, which always carries the private part. `end` is the end of its first word."""
    return end - len(b"PuTTY-User-Key-File-2:"), end


def locate_jwt(data: bytes, end: int) -> Span | None:
    """A JSON web token (three parts) whose first twelve characters end at `end`."""
    start = end - 12
    if data[start - 1] in WORD:
        return None
    header = run_stop(data, start, URLSAFE, 1024)
    if data[header : header + 4] != b".eyJ":
        return None
    claims = run_stop(data, header + 1, URLSAFE, 8192)
    if data[claims : claims + 1] != b".":
        return None
    stop = run_stop(data, claims + 1, URLSAFE, 1024)
    named = b'"alg"' in binascii.a2b_base64(_padded(data[start:header]))
    return (start, stop) if named and (stop - claims > 10 or stop == claims + 1) else None


def _padded(part: bytes) -> bytes:
    whole = part[: len(part) - (len(part) % 4 == 1)].replace(b"-", b"+").replace(b"_", b"/")
    return whole + b"=" * (-len(whole) % 4)


def _real(password: bytes) -> bool:
    """Whether it is a password rather than a sign for one."""
    if len(password) < 3 or password[:1] in b"<{[$(*%" or not password.strip(b"x*.X"):
        return False
    return password.lower().strip(b"_-") not in _PLACEHOLDERS


def _first_word(window: bytes) -> bytes:
    return (window.translate(_ENDS).split(b" ", 1) or [b""])[0]


def locate_url_password(data: bytes, end: int) -> Span | None:
    """`scheme://user:password@host`, the database URLs among them; `end` is one past the first byte after `://`."""
    start = end - 1
    colon = run_stop(data, start, _USER, 128)
    if data[colon : colon + 1] != b":":
        return None
    password, at, _ = _first_word(data[colon + 1 : colon + 129].split(b"/", 1)[0]).rpartition(b"@")
    return (start, colon + 1 + len(password)) if at and _real(password) else None


def locate_connection_password(data: bytes, end: int) -> Span | None:
    """`Server=…;Password=…;`: a password beside a key that names a server. `end` follows `=`."""
    pairs = stretch(data, end, end, 200).lower()
    if not any(key in pairs for key in _SERVER_KEYS):
        return None
    password = _first_word(data[end : end + 129].lstrip(b" ").split(b";", 1)[0])
    return (end, end + len(password)) if _real(password) else None


def locate_azure_key(data: bytes, end: int) -> Span | None:
    """`AccountKey=` or `SharedAccessKey=` and the base64 of 32 or 64 bytes, whose padding ends at `end`."""
    start = run_start(data, end, BASE64 + b"=", 120)
    stop = end + len(data[end : end + 1]) - len(data[end : end + 1].lstrip(b"="))
    return (start, stop) if len(set(data[start:stop])) > 12 else None


def locate_azure_client_secret(data: bytes, end: int) -> Span | None:
    """An Entra ID client secret: three characters, a digit, `Q~`, and 31 to 34 more; `end` is after the 31st."""
    start, stop = end - 37, run_stop(data, end, WORD + b"~.-", 4)
    return (start, stop) if data[start - 1] not in WORD and len(set(data[start:stop])) > 12 else None


def locate_aws_secret(data: bytes, end: int) -> Span | None:
    """Forty characters of base64 between other characters, beside a word for a secret. `end` is one past it."""
    start, stop = end - 41, end - 1
    body = data[start:stop]
    kinds = all(body.translate(None, kind) != body for kind in (LOWER, UPPER, DIGITS))
    if not kinds or not body.strip(HEX) or len(set(body)) < 16:
        return None
    return None if _SECRET_WORDS.isdisjoint(words_before(data, start, 64)) else (start, stop)


def locate_service_account(data: bytes, end: int) -> Span | None:
    """A Google service account's key file: its type, and the id or the body of a private key near it."""
    start = end - len(b"service_account")
    near = stretch(data, start, end, 3000)
    key = near.find(b"private_key")
    after = near[key : key + 160] if key >= 0 else b""
    held = b"-----BEGIN" in after or any(len(word) >= 40 for word in after.translate(_HEX_ONLY).split())
    return (start, end) if held else None


def locate_telegram(data: bytes, end: int) -> Span | None:
    """A Telegram bot's token: its id, a colon and 35 characters that begin with AA. `end` is after the 35th."""
    colon = end - 36
    start = run_start(data, colon, DIGITS, 12)
    stop = run_stop(data, end, URLSAFE, 2)
    wrong = not 8 <= colon - start <= 10 or stop != end or data[start - 1] in DIGITS
    return None if wrong or len(set(data[colon:end])) < 12 else (start, end)


_SECRET = SensitiveType.CREDENTIALS
_ARMOUR = rb"-----BEGIN (?:(?:RSA|EC|DSA|OPENSSH|ENCRYPTED|PGP|SSH2 ENCRYPTED|ED25519) )?PRIVATE KEY(?: BLOCK)?-----"
_AZURE = rb"(?:AccountKey|SharedAccessKey)=[A-Za-z0-9+/]{43}(?:[A-Za-z0-9+/]{43}=)?="
_AWS_SECRET = rb"[^A-Za-z0-9/+_\-][A-Za-z0-9/+]{40}[^A-Za-z0-9/+=_\-]"

STRUCTURED = (
    Detector("private_key", _SECRET, (_ARMOUR,), locate_private_key),
    Detector("private_key", _SECRET, (rb"PuTTY-User-Key-File-[23]:",), locate_putty_key),
    Detector("jwt", _SECRET, (rb"eyJ[A-Za-z0-9_\-]{9}",), locate_jwt),
    Detector("url_password", _SECRET, (rb"[a-zA-Z0-9+]://[^/\s@\x00]",), locate_url_password),
    Detector("connection_string", _SECRET, (rb"[;\s\"'](?:password|pwd) ?=",), locate_connection_password, True),
    Detector("azure_key", _SECRET, (_AZURE,), locate_azure_key),
    Detector(
        "azure_client_secret",
        _SECRET,
        (rb"[A-Za-z0-9_~.\-]{3}[0-9]Q~[A-Za-z0-9_~.\-]{31}",),
        locate_azure_client_secret,
    ),
    Detector("aws_secret_key", _SECRET, (_AWS_SECRET,), locate_aws_secret),
    Detector("gcp_service_account", _SECRET, (rb"service_account",), locate_service_account),
    Detector("telegram_token", _SECRET, (rb"[0-9]{8}:AA[A-Za-z0-9_\-]{33}",), locate_telegram),
)
