"""TLS and authentication settings of clients, under Kafka's names: `security.protocol`, `ssl.*`, `sasl.*`, and
tidelog's own `token.file`.

All clients accept the same settings: as keyword arguments (`SecurityParameters`), in a command's properties file, and
as Spark options (`parse_security`). All become one `Security`.

The scheme of the bootstrap addresses has the same meaning as `security.protocol`: either suffices, and both must agree.
A client uses one scheme for all brokers, since the metadata lists them as hosts and ports.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypedDict, cast

from tidelog.model.errors import InvalidRequest
from tidelog.transport.addresses import DEFAULT_BOOTSTRAP, HTTP, HTTPS, parse_bootstrap
from tidelog.transport.credentials import Credentials, basic, bearer

PROTOCOLS: Final[Mapping[str, str]] = {"PLAINTEXT": HTTP, "SSL": HTTPS}
CHECKS_HOST: Final[Mapping[str, bool]] = {"https": True, "": False, "none": False}


class SecurityParameters(TypedDict, total=False):
    """The keyword arguments for TLS and authentication of a client, with the fields of `Security`."""

    security_protocol: str | None
    ssl_ca_location: str | None
    ssl_keystore_location: str | None
    ssl_endpoint_identification_algorithm: str
    sasl_mechanism: str | None
    sasl_username: str | None
    sasl_password: str | None
    sasl_password_file: str | None
    token_file: str | None


@dataclass(frozen=True, slots=True)
class Security:
    """TLS and authentication settings as given by the user: picklable values, with files by name."""

    security_protocol: str | None = None
    """`PLAINTEXT` or `SSL`; None takes the scheme of the bootstrap addresses."""
    ssl_ca_location: str | None = None
    """A PEM file with the CAs that sign brokers' certificates; None for the CAs of the system."""
    ssl_keystore_location: str | None = None
    """A PEM file with the private key and certificate of this client, for brokers that require one."""
    ssl_endpoint_identification_algorithm: str = "https"
    """`https`: a broker's certificate must contain the host name that was connected to; empty: host names are not
    checked."""
    sasl_mechanism: str | None = None
    """`PLAIN`: a user's name and password; None means the same."""
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    sasl_password_file: str | None = None
    token_file: str | None = None
    """A file with a token `ID.SECRET`, in place of a name and a password."""

    def addresses(self, bootstrap: str | Sequence[str]) -> tuple[str, ...]:
        """Returns the bootstrap addresses as base URLs, all of one scheme. Raises `InvalidRequest`."""
        protocol = self.security_protocol
        if protocol is not None and protocol not in PROTOCOLS:
            raise InvalidRequest(f"security.protocol is {protocol!r}; it can be {' or '.join(PROTOCOLS)}")
        if self.ssl_endpoint_identification_algorithm not in CHECKS_HOST:
            raise InvalidRequest("ssl.endpoint.identification.algorithm is `https`, or empty")
        if protocol == "SSL" and bootstrap == DEFAULT_BOOTSTRAP:
            bootstrap = DEFAULT_BOOTSTRAP.removeprefix("http://")  # which nobody has typed
        addresses = parse_bootstrap(bootstrap, None if protocol is None else PROTOCOLS[protocol])
        is_encrypted = scheme_of(addresses) == HTTPS
        if (self.ssl_ca_location or self.ssl_keystore_location) and not is_encrypted:
            raise InvalidRequest(
                f"ssl.* is given, and {addresses[0]} is plain text; set security.protocol to SSL, or write https://"
            )
        return addresses

    def context(self) -> ssl.SSLContext:
        """Returns a TLS context made from the configured files. Raises `InvalidRequest`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = CHECKS_HOST[self.ssl_endpoint_identification_algorithm]
        if self.ssl_ca_location is None:
            context.load_default_certs()
        else:
            _read("ssl.ca.location", self.ssl_ca_location, context.load_verify_locations)
        if self.ssl_keystore_location is not None:
            _read("ssl.keystore.location", self.ssl_keystore_location, lambda path: _load_chain(context, path))
        return context

    def credentials(self, read_secret: Callable[[str], str]) -> Credentials | None:
        """Returns the configured credentials; None for an anonymous client. `read_secret` reads a file that must be
        private to its owner. Raises `InvalidRequest`, and what `read_secret` raises."""
        mechanism, user = self.sasl_mechanism, self.sasl_username
        passwords = [text for text in (self.sasl_password, self.sasl_password_file) if text is not None]
        if mechanism not in (None, "PLAIN"):
            raise InvalidRequest(f"sasl_mechanism {mechanism!r} is not known over HTTP; take PLAIN, or a token_file")
        if self.token_file is not None:
            if user is not None or passwords:
                raise InvalidRequest("give a token_file, or a user's name and password, not both")
            return bearer(partial(read_secret, self.token_file))
        if user is None and not passwords and mechanism is None:
            return None
        if user is None or len(passwords) != 1:
            raise InvalidRequest("sasl_username goes with one of sasl_password and sasl_password_file")
        password = self.sasl_password
        return basic(user, partial(str, password) if password is not None else partial(read_secret, passwords[0]))


ALIASES: Final[Mapping[str, str]] = {"ssl_truststore_location": "ssl_ca_location"}
NAMES: Final[Mapping[str, str]] = {
    name.replace("_", "."): ALIASES.get(name, name)
    for name in (*SecurityParameters.__annotations__, *ALIASES)
    if name != "sasl_password"
}
"""The settings that may be given as text (in properties files and Spark options), by Kafka's and librdkafka's names,
with the fields of `SecurityParameters`. A password is not among them: it would be visible in process lists and in the
options of a query."""
KAFKAS_NAMES: Final = NAMES.keys() - {"token.file"}


def parse_security(settings: Mapping[str, str]) -> SecurityParameters:
    """Parses settings with Kafka's names. Raises `InvalidRequest` for an unknown name, or two names of the same
    setting."""
    if "sasl.password" in settings:
        raise InvalidRequest("sasl.password would be seen by others; give sasl.password.file, which only you may read")
    unknown = sorted(settings.keys() - NAMES.keys())
    if unknown:
        raise InvalidRequest(f"there is no {unknown[0]}; there are {', '.join(NAMES)}")
    first_names: dict[str, str] = {}
    for name in settings:
        first_name = first_names.setdefault(NAMES[name], name)
        if first_name != name:
            raise InvalidRequest(f"{first_name} and {name} are two names of the same; keep one")
    return cast("SecurityParameters", {NAMES[name]: value for name, value in settings.items()})


def overridden(settings: Mapping[str, str], by: Mapping[str, str]) -> dict[str, str]:
    """Returns `settings` with those of `by` in place of the ones with the same meaning, also under another name."""
    meanings = {NAMES.get(name, name) for name in by}
    return {**{name: value for name, value in settings.items() if NAMES.get(name, name) not in meanings}, **by}


def scheme_of(addresses: Sequence[str]) -> str:
    """Returns the common scheme of these addresses."""
    return addresses[0].partition(":")[0]


def _load_chain(context: ssl.SSLContext, path: str) -> None:
    context.load_cert_chain(path, password=_no_password)


def _no_password() -> str:
    raise ValueError("its key has a password")


def _read(name: str, path: str, read: Callable[[str], None]) -> None:
    try:
        read(path)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise InvalidRequest(f"{name}: {path} has not what is needed, in PEM: {reason}") from error
    except OSError as error:
        raise InvalidRequest(f"{name}: cannot read {path}: {error.strerror or error}") from error


def tls_fault(error: BaseException) -> str | None:
    """Returns an explanation of a TLS error with the steps to take; None for any other error.

    Libraries wrap OpenSSL's errors in exceptions of their own, so the text is searched.
    """
    text = str(error)
    for sign, meaning in _FAULTS.items():
        if sign in text.upper():
            return f"{meaning} ({text})"
    return None


_PLAIN_TEXT: Final = "it speaks plain text, and not TLS: set security.protocol to PLAINTEXT, or write http://"
_FAULTS: Final[Mapping[str, str]] = {
    "WRONG_VERSION_NUMBER": _PLAIN_TEXT,
    "RECORD_LAYER_FAILURE": _PLAIN_TEXT,
    "MISMATCH, CERTIFICATE IS NOT VALID FOR": "its certificate is that of another host: reach it by a name that is in "
    "it, or set ssl.endpoint.identification.algorithm to nothing",
    "CERTIFICATE HAS EXPIRED": "its certificate has expired",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not vouched for: give the file of its CA as ssl.ca.location",
    "CERTIFICATE_REQUIRED": "it takes only clients with a certificate: give one as ssl.keystore.location",
    "ALERT_UNKNOWN_CA": "it does not know the CA of this client's certificate (ssl.keystore.location)",
    "ALERT_CERTIFICATE_EXPIRED": "this client's certificate has expired (ssl.keystore.location)",
    "ALERT_BAD_CERTIFICATE": "it does not take this client's certificate (ssl.keystore.location)",
    "ALERT_PROTOCOL_VERSION": "it speaks other versions of TLS",
}

PLAIN: Final = Security()
