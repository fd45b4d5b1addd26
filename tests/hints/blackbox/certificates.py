"""A small certificate authority for tests: what it signs is good for an hour."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """One authority; its certificate is in `ca.pem` of the folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        ca = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(True, None), True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(ca.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
        )

    def issue(self, name: str, uri: str | None = None, *, named: bool = True) -> tuple[Path, Path]:
        """The files of a certificate for localhost with this common name, and of its key; `named` false: without any
        alternative name."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternative: list[x509.GeneralName] = [
            x509.DNSName("localhost"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]
        if uri is not None:
            alternative.append(x509.UniformResourceIdentifier(uri))
        builder = self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key)
        if named:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternative), False)
        made = self._folder / f"{name}.cert.pem", self._folder / f"{name}.key.pem"
        made[0].write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        made[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        made[1].chmod(0o600)
        return made

    def credentials(self, client: tuple[Path, Path] | None = None) -> grpc.ChannelCredentials:
        """What a client trusts, and what it shows."""
        if client is None:
            return grpc.ssl_channel_credentials(self.file.read_bytes())
        cert, key = client
        return grpc.ssl_channel_credentials(self.file.read_bytes(), key.read_bytes(), cert.read_bytes())
