"""TLS for the one port: a context made of files, and made anew when they change.

1. A client must speak HTTP/2 by ALPN, and TLS 1.2 or later.
2. With a CA, a client may present a certificate of it, and one that is presented must be good; `required` refuses
   clients without one.
3. New files count for connections that begin afterwards. Files that cannot be read leave the former context in force,
   and are told.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import msgspec


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """PEM files: the server's chain, its key, and the CA of its clients."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    required: bool = False


def context(files: TlsFiles) -> ssl.SSLContext:
    """A server's context; OSError (ssl.SSLError is one) when the files are no good."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    made.set_alpn_protocols(["h2"])
    # An encrypted key is no good: asking for its password at a terminal would hold the loop up for good.
    made.load_cert_chain(files.certificate, files.key, password=lambda: "")
    if files.client_ca is not None:
        made.load_verify_locations(files.client_ca)
        made.verify_mode = ssl.CERT_REQUIRED if files.required else ssl.CERT_OPTIONAL
    return made


class ReloadedTls:
    """The context in force."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self.context = context(files)
        self._seen = self._state()

    def _state(self) -> tuple[tuple[int, int, int], ...]:
        paths = (self._files.certificate, self._files.key, self._files.client_ca)
        found = (path.stat() for path in paths if path is not None)
        return tuple((at.st_mtime_ns, at.st_size, at.st_ino) for at in found)

    def refresh(self) -> bool:
        """Read the files again if they have changed; whether they had. OSError leaves what was."""
        state = self._state()
        if state == self._seen:
            return False
        self.context = context(self._files)
        self._seen = state
        return True
