"""Certificates that `tidelog tls` does not make: expired, of a server that is no broker, with a locked key."""

from __future__ import annotations

import datetime
from enum import Enum
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tidelog.adapters.certificates import load_authority
from tidelog.testing.certificates import ClusterCertificates


class Kind(Enum):
    BROKER = "broker://test/1"
    OTHER_CLUSTER = "broker://other/1"
    SERVER = "https://localhost"


def issued(
    made: ClusterCertificates,
    file: Path,
    kind: Kind,
    *,
    days: int = 30,
    starts_in_days: int = -30,
    password: bytes | None = None,
) -> Path:
    """Writes a certificate of the test's CA, with its key."""
    authority = load_authority(made.directory)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "some")]))
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=starts_in_days))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(kind.value), x509.DNSName("localhost")]),
            critical=False,
        )
        .sign(authority.key, hashes.SHA256())
    )
    lock: serialization.KeySerializationEncryption = (
        serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password)
    )
    pem = serialization.Encoding.PEM
    content = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, lock) + certificate.public_bytes(pem)
    file.write_bytes(content)
    file.chmod(0o600)
    return file
