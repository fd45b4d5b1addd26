"""A certificate authority for tests, and the certificates that it gives."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class Pem(NamedTuple):
    certificate: bytes
    key: bytes


class Authority:
    def __init__(self, name: str = "tests") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self._given = self._signed(self._name, self._key.public_key(), [], True)
        self.pem = self._given.public_bytes(serialization.Encoding.PEM)

    def _signed(self, name, key, alternatives, authority):
        now = datetime.datetime.now(datetime.UTC)
        made = x509.CertificateBuilder(self._name, name, key, x509.random_serial_number())
        made = made.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=2))
        made = made.add_extension(x509.BasicConstraints(authority, None), True)
        if alternatives:
            made = made.add_extension(x509.SubjectAlternativeName(alternatives), False)
        return made.sign(self._key, hashes.SHA256())

    def give(self, name: str, uri: str | None = None) -> Pem:
        """A certificate for 127.0.0.1 and `name`, with a URI if one is told."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        alternatives += [x509.UniformResourceIdentifier(uri)] if uri else []
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        given = self._signed(subject, key.public_key(), alternatives, False)
        form = serialization.PrivateFormat.PKCS8
        secret = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        return Pem(given.public_bytes(serialization.Encoding.PEM), secret)


def written(folder: Path, name: str, pem: Pem) -> tuple[Path, Path]:
    """The files of a certificate and its key."""
    paths = folder / f"{name}.pem", folder / f"{name}.key"
    for path, text in zip(paths, pem, strict=True):
        path.write_bytes(text)
    return paths
