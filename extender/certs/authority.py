"""A certificate authority of our own and the serving certificates it signs. Pure, but for randomness.

ECDSA P-256: cheap to sign with in each handshake. Key identifiers and critical extensions are all there, since strict
clients refuse an authority without them. Source: webhooks specification, section 8.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_LIFE: Final = timedelta(days=3650)
LEAF_LIFE: Final = timedelta(days=365)
_CLOCK_SKEW: Final = timedelta(hours=1)


class Pair(msgspec.Struct, frozen=True):
    """A certificate and its key, both PEM. Not printed, so that no key reaches a log."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "Pair(…)"


def make_authority(now: datetime, *, name: str = "cohort-extender", life: timedelta = CA_LIFE) -> Pair:
    """A new authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} CA {now:%Y-%m-%d}")])
    builder = (
        _builder(key, subject, subject, now, life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue(
    authority: Pair, names: Sequence[str], now: datetime, *, life: timedelta = LEAF_LIFE, client: bool = False
) -> Pair:
    """A serving certificate for *names* (host names and IP addresses), never outliving its authority.

    *client*: one that a caller shows instead, such as kube-scheduler.
    """
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signer = load_pem_private_key(authority.key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey), "we make no other authorities"
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    purpose = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
    life = min(life, issuer.not_valid_after_utc - now)
    builder = (
        _builder(key, subject, issuer.subject, now, life)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    return _pair(builder.sign(signer, hashes.SHA256()), key)


def service_names(service: str, namespace: str) -> list[str]:
    """The names under which a Service is called."""
    short = f"{service}.{namespace}"
    return [f"{short}.svc", short, service, f"{short}.svc.cluster.local"]


def not_after(certificate: bytes) -> datetime:
    """When the first certificate of a PEM ends."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def is_pair(certificate: bytes, key: bytes) -> bool:
    """Whether both can be read and belong together."""
    try:
        found = x509.load_pem_x509_certificate(certificate)
        return load_pem_private_key(key, None).public_key() == found.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False


def is_due(certificate: bytes, now: datetime) -> bool:
    """Whether two thirds of its life are over: time for the next one."""
    found = x509.load_pem_x509_certificate(certificate)
    life = found.not_valid_after_utc - found.not_valid_before_utc
    return now >= found.not_valid_before_utc + life * 2 / 3


def covers(certificate: bytes, names: Iterable[str]) -> bool:
    """Whether the certificate is valid for all *names*."""
    found = x509.load_pem_x509_certificate(certificate)
    try:
        extension = found.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return False
    listed = {str(name.value) for name in extension.value}
    return set(names) <= listed


def is_signed_by(certificate: bytes, bundle: bytes) -> bool:
    """Whether an authority in *bundle* signed the certificate."""
    found = x509.load_pem_x509_certificate(certificate)
    for authority in x509.load_pem_x509_certificates(bundle):
        try:
            found.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return True
    return False


def join(newest: bytes, bundle: bytes, now: datetime) -> bytes:
    """*newest* in front of those of *bundle* that are still valid, each once."""
    kept = [x509.load_pem_x509_certificate(newest)]
    for authority in x509.load_pem_x509_certificates(bundle):
        if authority not in kept and authority.not_valid_after_utc > now:
            kept.append(authority)
    return b"".join(authority.public_bytes(Encoding.PEM) for authority in kept)


def _builder(
    key: ec.EllipticCurvePrivateKey, subject: x509.Name, issuer: x509.Name, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
