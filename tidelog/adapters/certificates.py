"""A private CA, and certificates for the brokers and the clients of one cluster.

    <directory>/ca.pem          the CA's certificate, which all trust
    <directory>/ca-key.pem      its private key: stays where certificates are made
    <directory>/broker-<n>.pem  a broker's private key and certificate
    <directory>/client-<name>.pem

Keys are of P-256, and only the owner may read a file. The CA's certificate has the name of the cluster, with which the
names of brokers in their certificates begin (`model/broker_names.py`); a client's certificate has no name but its
subject. A file is written whole or not at all, so a broker never loads half of one.

Only this module needs the library `cryptography` (extra `security`); brokers do not. Modules that import this one
report a missing library (`NEEDS_LIBRARY` of `model/broker_names.py`).
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tidelog.model.broker_names import BrokerName, check_cluster_name
from tidelog.model.errors import InvalidRequest

CA_FILE: Final = "ca.pem"
CA_KEY_FILE: Final = "ca-key.pem"
CA_DAYS: Final = 3650
LEAF_DAYS: Final = 365
EARLIER: Final = datetime.timedelta(minutes=5)
"""Time before its creation from which a certificate is valid, because clocks differ."""
LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
MODE: Final = 0o600


class Authority(NamedTuple):
    """A CA: its private key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def cluster(self) -> str:
        """Name of the cluster that the CA signs certificates for."""
        names = self.certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        return check_cluster_name(str(names[0].value) if names else "")


class Made(NamedTuple):
    """A certificate that was written to a file."""

    file: Path
    subject: str
    names: tuple[str, ...]
    expires: datetime.datetime


# -- what the commands do --------------------------------------------------------------------------------------------


def make_authority(directory: Path, cluster: str, *, force: bool = False, days: int = CA_DAYS) -> Made:
    """Creates a CA and its files. Raises `InvalidRequest` or `OSError`."""
    check_cluster_name(cluster)
    key = _new_key()
    subject = _subject(f"{cluster} CA", cluster)
    certificate = _signed(
        _builder(subject, key, days)
        .issuer_name(subject)
        # Critical: software that does not know the extension has to reject the certificate, and not to pass over what
        # it forbids.
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_usage(ca=True), critical=True),
        key,
    )
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Both are looked at before either is written: half a CA over an old one would be two that do not fit.
    for name in (CA_KEY_FILE, CA_FILE):
        _check_free(directory / name, force=force)
    _write(directory / CA_KEY_FILE, _key_bytes(key))
    return _made(directory / CA_FILE, certificate, _certificate_bytes(certificate))


def load_authority(directory: Path) -> Authority:
    """Reads a CA from its files. Raises `InvalidRequest` or `OSError`."""
    key, certificate = _read(directory / CA_KEY_FILE, directory / CA_FILE)
    return Authority(key, certificate)


def issue_broker(
    directory: Path,
    authority: Authority,
    node_id: int,
    hosts: Sequence[str] = (),
    *,
    force: bool = False,
    days: int = LEAF_DAYS,
) -> Made:
    """Creates the key and the certificate of a broker; `hosts` are the names and addresses at which clients reach it.
    Raises `InvalidRequest` or `OSError`."""
    name = BrokerName(authority.cluster, node_id)
    names = x509.SubjectAlternativeName(
        [x509.UniformResourceIdentifier(str(name)), *map(_host_name, hosts or LOCAL_HOSTS)]
    )
    subject = _subject(f"broker-{node_id}", authority.cluster)
    file = directory / f"broker-{node_id}.pem"
    return _issue(file, authority, subject, names, is_broker=True, force=force, days=days)


def issue_client(
    directory: Path, authority: Authority, name: str, *, force: bool = False, days: int = LEAF_DAYS
) -> Made:
    """Creates the key and the certificate of a client. Raises `InvalidRequest` or `OSError`."""
    if not (name.isascii() and name.replace("-", "a").replace("_", "a").replace(".", "a").isalnum()) or len(name) > 64:
        raise InvalidRequest(f"{name[:80]!a} is no name for a client: use 1 to 64 of A-Z a-z 0-9 . _ -")
    file = directory / f"client-{name}.pem"
    return _issue(file, authority, _subject(name), None, is_broker=False, force=force, days=days)


def renew(file: Path, authority: Authority, *, keep_key: bool = False, days: int | None = None) -> Made:
    """Replaces a certificate file by one with the same names, valid from now on, and with a new key unless `keep_key`.
    The CA always keeps its key, so that the certificates it has signed stay valid. Raises `InvalidRequest` or
    `OSError`."""
    key, old = _read(file, file) if file.name != CA_FILE else (authority.key, authority.certificate)
    # A certificate of another CA would come back with this CA's signature, and with all names that it has.
    if old.issuer != authority.certificate.subject:
        raise InvalidRequest(f"{file} was not made by the CA of this directory")
    is_authority = file.name == CA_FILE
    # The CA keeps its key, or everything that it has signed would be void at once.
    if not (keep_key or is_authority):
        key = _new_key()
    builder = _builder(old.subject, key, days or (CA_DAYS if is_authority else LEAF_DAYS)).issuer_name(old.issuer)
    of_keys = (x509.SubjectKeyIdentifier, x509.AuthorityKeyIdentifier)
    for extension in old.extensions:
        # Names and purposes stay. Identifiers of keys are made anew, as the keys may be others.
        if not isinstance(extension.value, of_keys):
            builder = builder.add_extension(extension.value, critical=extension.critical)
    if not is_authority:
        builder = builder.add_extension(_authority_id(authority), critical=False)
    certificate = _signed(builder, authority.key)
    content = _certificate_bytes(certificate)
    return _made(file, certificate, content if is_authority else _key_bytes(key) + content)


# -- certificates ----------------------------------------------------------------------------------------------------


def _issue(
    file: Path,
    authority: Authority,
    subject: x509.Name,
    names: x509.SubjectAlternativeName | None,
    *,
    is_broker: bool,
    force: bool,
    days: int,
) -> Made:
    _check_free(file, force=force)
    key = _new_key()
    # A broker is both: it answers clients and peers, and it calls peers.
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if is_broker else [])]
    builder = (
        _builder(subject, key, days)
        .issuer_name(authority.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(_authority_id(authority), critical=False)
    )
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    certificate = _signed(builder, authority.key)
    return _made(file, certificate, _key_bytes(key) + _certificate_bytes(certificate))


def _builder(subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks differ: a broker whose clock is behind would refuse a certificate that begins now.
        .not_valid_before(now - EARLIER)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _signed(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    return builder.sign(key, hashes.SHA256())


def _subject(common: str, organization: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)] if organization else []
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise InvalidRequest(f"{host[:80]!a} is no name or address of a host: {error}") from error


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )


def _authority_id(authority: Authority) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


# -- files -----------------------------------------------------------------------------------------------------------


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _certificate_bytes(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _read(key_file: Path, certificate_file: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    try:
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise InvalidRequest(f"the key of {key_file} is of another kind than those that are made here")
        return key, x509.load_pem_x509_certificates(certificate_file.read_bytes())[0]
    except FileNotFoundError as error:
        raise InvalidRequest(
            f"there is no {error.filename}; `tidelog tls init` makes a CA, and --dir says where it is"
        ) from error
    except (ValueError, TypeError) as error:
        raise InvalidRequest(f"{key_file} and {certificate_file} are no key and certificate in PEM: {error}") from error


def _check_free(file: Path, *, force: bool) -> None:
    if file.exists() and not force:
        raise InvalidRequest(f"{file} is there already; --force writes over it")


def _made(file: Path, certificate: x509.Certificate, content: bytes) -> Made:
    _write(file, content)
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = tuple(str(name.value) for name in extension.value)
    except x509.ExtensionNotFound:
        names = ()
    return Made(file, certificate.subject.rfc4514_string(), names, certificate.not_valid_after_utc)


def _write(file: Path, content: bytes) -> None:
    """Writes a file atomically, readable by its owner alone."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    # O_EXCL and the mode at its making: nobody can have opened the file before it was private.
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, MODE)
    try:
        with open(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            # Before the rename, or a power cut could leave the name with an empty file.
            os.fsync(stream.fileno())
        draft.replace(file)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
