"""TLS contexts from the files that `ssl.*` settings name, or an error that says what is wrong with the files.

A certificate is tested before it is used, by handshakes in memory. In one the other end trusts this certificate alone,
which reveals a key that does not fit, or that the certificate has expired. For brokers, in a second one both ends are
this broker, which reveals whether other brokers would accept it. Nothing else in the standard library reads a
certificate's expiry or names.

Peers speak TLS 1.3 only, both ends present certificates, and no session is resumed: a certificate counts only for the
connection on which it was presented.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tidelog.adapters.tls_handshake import ServerContext
from tidelog.config.errors import ConfigError
from tidelog.config.schema import BrokerConfig
from tidelog.config.values import ClientAuth
from tidelog.model.broker_names import broker_name, parse_broker_name

KEYSTORE: Final = "ssl.keystore.location"
TRUSTSTORE: Final = "ssl.truststore.location"
OTHERS_BITS: Final = 0o077
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----", re.ASCII)
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class OwnCertificate(NamedTuple):
    """The certificate that this broker presents."""

    name: str
    """Broker name in the certificate (`model/broker_names.py`); empty if there is none."""
    digest: bytes
    """SHA-256 digest of the certificate in DER."""


@dataclass(frozen=True, slots=True)
class TlsContexts:
    """The TLS contexts from one reading of the files."""

    http: ssl.SSLContext
    """Context of the HTTP listener."""
    ops: ssl.SSLContext
    """Context of the listener for operators (ops)."""
    answering: ssl.SSLContext | None
    """Context of the peer listener, and in `calling` that of connections to peers; None if peers speak plain text."""
    calling: ssl.SSLContext | None
    own: OwnCertificate
    expires_s: float
    """Expiry of the certificate, in seconds since 1970."""


def load_contexts(config: BrokerConfig) -> TlsContexts:
    """Reads the certificate files of the configuration and tests them. Raises `ConfigError`."""
    keystore, truststore = config.ssl_keystore_location, config.ssl_truststore_location
    assert keystore is not None  # the schema asks for it
    # OpenSSL shows the first certificate of the file, so that one is judged.
    leaf = _first_certificate(keystore)
    http, ops = _server(config, config.ssl_client_auth), _server(config, config.ops_client_auth)
    certificate = _own_certificate(leaf, keystore)
    answering = calling = None
    if config.security_inter_broker_protocol == "SSL":
        assert truststore is not None
        answering, calling = _peer_contexts(keystore, truststore)
        # With another node's name it would be refused by all others, and each would only say so to itself.
        _check_name(config.node_id, certificate, keystore)
        _try_both(answering, calling, keystore, truststore)
    expires_s = ssl.cert_time_to_seconds(certificate["notAfter"])
    own = OwnCertificate(broker_name(certificate), hashlib.sha256(ssl.PEM_cert_to_DER_cert(leaf)).digest())
    return TlsContexts(http, ops, answering, calling, own, expires_s)


# -- contexts --------------------------------------------------------------------------------------------------------


def _server(config: BrokerConfig, client_auth: ClientAuth) -> ssl.SSLContext:
    context = ServerContext()
    versions = config.ssl_enabled_protocols
    context.minimum_version = ssl.TLSVersion.TLSv1_2 if "TLSv1.2" in versions else ssl.TLSVersion.TLSv1_3
    if "TLSv1.3" not in versions:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    _load_chain(context, config.ssl_keystore_location or "")
    context.verify_mode = _CLIENT_AUTH[client_auth]
    if client_auth != "none":
        _load_authorities(context, config.ssl_truststore_location or "")
        _without_resumption(context)
    return context


def _peer_contexts(keystore: str, truststore: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    answering, calling = ServerContext(), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # A peer is known by the node in its certificate, which is judged with its hello: addresses change, names of nodes
    # do not.
    calling.check_hostname = False
    _without_resumption(answering)
    for context in (answering, calling):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        _load_chain(context, keystore)
        _load_authorities(context, truststore)
    return answering, calling


def _without_resumption(context: ssl.SSLContext) -> None:
    # A resumed session shows no certificate: one that has expired, or whose CA was taken out, would go on counting.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET


def _load_chain(context: ssl.SSLContext, keystore: str) -> None:
    _check_private(keystore)
    try:
        # The callback is called only if the key has a password. Without one OpenSSL would ask on the terminal, and hang
        # the start.
        context.load_cert_chain(keystore, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{KEYSTORE}: {keystore} {_chain_fault(error)}") from error
    except OSError as error:
        raise _unreadable(KEYSTORE, keystore, error) from error


def _no_password() -> str:
    raise ValueError("has a key with a password, which nobody could type; take the password off (`openssl pkey`)")


def _chain_fault(error: ssl.SSLError | ValueError) -> str:
    if not isinstance(error, ssl.SSLError):
        return str(error)
    if error.reason == "KEY_VALUES_MISMATCH":
        return "has a private key that does not fit its first certificate; put the key and its own certificate there"
    return (
        f"has no private key and certificates in PEM ({error.reason or error}); write the key, its certificate and "
        "those of the CAs between into it, in this order"
    )


def _load_authorities(context: ssl.SSLContext, truststore: str) -> None:
    try:
        context.load_verify_locations(truststore)
    except ssl.SSLError as error:
        raise ConfigError(
            f"{TRUSTSTORE}: {truststore} has no certificates of CAs in PEM ({error.reason or error})"
        ) from error
    except OSError as error:
        raise _unreadable(TRUSTSTORE, truststore, error) from error
    # OpenSSL loads leaf certificates without a word, and then trusts nobody.
    if not context.cert_store_stats()["x509_ca"]:
        raise ConfigError(f"{TRUSTSTORE}: {truststore} has certificates, but none of a CA; put that of the CA there")


# -- files -----------------------------------------------------------------------------------------------------------


def _check_private(keystore: str) -> None:
    try:
        mode = stat.S_IMODE(os.stat(keystore).st_mode)
    except OSError as error:
        raise _unreadable(KEYSTORE, keystore, error) from error
    # The private key is in it: whoever reads it can be this broker.
    if mode & OTHERS_BITS:
        raise ConfigError(
            f"{KEYSTORE}: others than its owner may use {keystore} (mode {mode:04o}), and it holds the private key; "
            f"run `chmod 600 {keystore}`"
        )


def _first_certificate(keystore: str) -> str:
    _check_private(keystore)
    try:
        with open(keystore, encoding="ascii", errors="replace") as file:
            certificate = _CERTIFICATE.search(file.read())
    except OSError as error:
        raise _unreadable(KEYSTORE, keystore, error) from error
    if certificate is None:
        raise ConfigError(
            f"{KEYSTORE}: {keystore} has no certificate in PEM; write the private key, its certificate and those of "
            "the CAs between into it, in this order"
        )
    return certificate[0]


def _unreadable(setting: str, path: str, error: OSError) -> ConfigError:
    return ConfigError(f"{setting}: cannot read {path}: {error.strerror or error}")


# -- trials ----------------------------------------------------------------------------------------------------------


def _own_certificate(leaf: str, keystore: str) -> dict[str, Any]:
    """Returns the certificate `leaf` of the file `keystore` as a peer's `ssl` parses it after a trial handshake. Raises
    `ConfigError` if it has expired, or its key does not fit."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    # Trusts this certificate by itself, without its CA, which the keystore need not have: so only its own faults are
    # left to show, such as the end of its time.
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        client.load_verify_locations(cadata=leaf)
        trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trial.load_cert_chain(keystore, password=_no_password)
        return _shake_hands(trial, client)
    except ssl.SSLCertVerificationError as error:
        raise ConfigError(
            f"{KEYSTORE}: the certificate of {keystore} cannot be used: {error.verify_message}; make a new one, with "
            "`tidelog tls renew` if it was made by `tidelog tls`"
        ) from error
    except ssl.SSLError as error:
        raise ConfigError(f"{KEYSTORE}: {keystore} is of no use: {error.reason or error}") from error


def _check_name(node_id: int, certificate: dict[str, Any], keystore: str) -> None:
    name = parse_broker_name(broker_name(certificate))
    if name is None:
        raise ConfigError(
            f"{KEYSTORE}: the certificate of {keystore} names no broker, and others would refuse it: it needs the URI "
            f"broker://CLUSTER/{node_id} among its names; `tidelog tls issue --broker {node_id}` makes such a one"
        )
    if name.node_id != node_id:
        raise ConfigError(
            f"{KEYSTORE}: the certificate of {keystore} is that of node {name.node_id}, and node.id is {node_id}; give "
            f"each broker its own, as `tidelog tls issue --broker {node_id}` makes it"
        )


def _try_both(answering: ssl.SSLContext, calling: ssl.SSLContext, keystore: str, truststore: str) -> None:
    try:
        # Both ends are this broker, so it shows whether peers with the same files would take its certificate: before
        # they all refuse it.
        _shake_hands(answering, calling)
    except ssl.SSLCertVerificationError as error:
        raise ConfigError(
            f"{TRUSTSTORE}: no other broker with these files would take this one's certificate: {keystore} is not "
            f"vouched for by {truststore} ({error.verify_message}); put the certificate of its CA there"
        ) from error
    except ssl.SSLError as error:
        raise ConfigError(f"{KEYSTORE}: {keystore} is of no use among brokers: {error.reason or error}") from error


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, Any]:
    """Performs a handshake in memory and returns the server's certificate, as the client verified it. Raises
    `ssl.SSLError`."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    caller = client.wrap_bio(back, there, server_side=False)
    callee = server.wrap_bio(there, back, server_side=True)
    has_called = has_answered = False
    # In memory and by turns. Each step ends or wants the other end's bytes, so this ends.
    while not (has_called and has_answered):
        has_called = has_called or _step(caller.do_handshake)
        has_answered = has_answered or _step(callee.do_handshake)
    return dict(caller.getpeercert() or {})


def _step(do_handshake: Callable[[], None]) -> bool:
    try:
        do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def seconds_left(contexts: TlsContexts) -> float:
    """Returns the seconds until the certificate expires; negative afterwards."""
    return contexts.expires_s - time.time()
