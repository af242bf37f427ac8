"""The certificates of one rig: an authority, a serving pair, a client pair per user, the token key.

Elliptic-curve keys, since making seven RSA pairs would cost the rig a second of its start. Only the authority
has an RSA key: the API server checks its signature on every request with a client certificate, and an RSA
signature is several times cheaper to check (a tenth of the API server's time under load). Private files
are readable by their owner only; everything is thrown away with the rig's directory.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = dt.timedelta(days=7)
CLOCK_SKEW = dt.timedelta(minutes=5)
SERVING_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
SERVING_ADDRESSES = ("127.0.0.1", "10.0.0.1")


@dataclass(frozen=True)
class Pair:
    """The files of one certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """A certificate authority that lives in a directory."""

    def __init__(self, directory: Path, name: str = "rig-ca") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        subject = _name(name)
        builder = _builder(subject, subject, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_AUTHORITY_USAGE, critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        builder = builder.add_extension(identifier, critical=False)
        self._certificate = builder.sign(self._key, hashes.SHA256())
        self.cert = directory / "ca.crt"
        self.cert.write_bytes(_pem(self._certificate))

    def serving(
        self,
        name: str = "serving",
        *,
        names: Sequence[str] = SERVING_NAMES,
        addresses: Sequence[str] = SERVING_ADDRESSES,
    ) -> Pair:
        """A pair for a server with these DNS names and IP addresses."""
        alternatives: list[x509.GeneralName] = [x509.DNSName(each) for each in names]
        alternatives += [x509.IPAddress(ipaddress.ip_address(each)) for each in addresses]
        return self._issue(
            name, _name(name), ExtendedKeyUsageOID.SERVER_AUTH, x509.SubjectAlternativeName(alternatives)
        )

    def client(self, user: str, *, groups: Sequence[str] = ()) -> Pair:
        """A pair that the API server knows as *user* in *groups*."""
        subject = _name(user, groups)
        return self._issue(user.replace(":", "-"), subject, ExtendedKeyUsageOID.CLIENT_AUTH)

    def signing_key(self, name: str) -> Pair:
        """A bare key pair, for service-account tokens; `cert` is the public half."""
        key = ec.generate_private_key(ec.SECP256R1())
        pair = self._files(name)
        pair.cert.write_bytes(
            key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
        _write_key(pair.key, key)
        return pair

    def _issue(
        self,
        name: str,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        *extensions: x509.ExtensionType,
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, self._certificate.subject, key.public_key())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        for extension in (x509.ExtendedKeyUsage([usage]), issuer, *extensions):
            builder = builder.add_extension(extension, critical=False)
        pair = self._files(name)
        pair.cert.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        _write_key(pair.key, key)
        return pair

    def _files(self, name: str) -> Pair:
        return Pair(cert=self.directory / f"{name}.crt", key=self.directory / f"{name}.key")


_AUTHORITY_USAGE = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


def _name(common: str, groups: Sequence[str] = ()) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
