"""Types of settings' values, with their validation.

A value is text (environment, flag, HTTP) or already typed by TOML. Both must mean the same, and neither may be coerced:
pydantic alone would take `true` for 1 and "1_0" for 10. So every type begins with a validator of its own.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from tidelog.model.access import check_principal
from tidelog.model.certificate_names import parse_rules
from tidelog.model.errors import InvalidRequest
from tidelog.model.levels import LEVEL_MAX, LEVEL_MIN

JwtAlgorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "HS256", "HS384", "HS512"
]
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
HOLE_SPAN_MAX = 4096
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_URL = re.compile(r"https?://(?P<address>[^/?#@]+)/?")
_HOST = re.compile(r"\*|(?:\*\.)?[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63}){0,126}")
_PRINTABLE = re.compile(r"[!-~]{1,255}")


def split_address(address: str) -> tuple[str, int]:
    """Splits `host:port` or `[IPv6]:port` into host and port; port 0 lets the system choose one. Raises
    `ValueError`."""
    host, separator, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("must be HOST:PORT; write an IPv6 address in brackets, as in [::1]:8082")
    if not (separator and _PRINTABLE.fullmatch(host) and _INTEGER.fullmatch(port) and 0 <= int(port) <= 65535):
        raise ValueError("must be HOST:PORT with a port from 0 to 65535, as in 127.0.0.1:8082")
    return host, int(port)


def _read_integer(value: object) -> object:
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError("must be a whole number")


def _read_hole_span(value: object) -> object:
    try:
        span = _read_integer(value)
    except ValueError:
        span = None
    if not isinstance(span, int) or not 1 <= span <= HOLE_SPAN_MAX:
        raise ValueError(f"must be a whole number from 1 to {HOLE_SPAN_MAX}")
    return span


def _read_boolean(value: object) -> object:
    spelt = {"true": True, "false": False}.get(value.strip().lower()) if isinstance(value, str) else value
    if isinstance(spelt, bool):
        return spelt
    raise ValueError("must be true or false")


def split_voter(entry: str) -> tuple[int, str, int]:
    """Splits `2@10.0.0.2:9192` into `(2, "10.0.0.2", 9192)`. Raises `ValueError`."""
    node_id, separator, address = entry.partition("@")
    if not separator or not node_id.isdecimal() or int(node_id) > INT32_MAX:
        raise ValueError(f"{entry} must be NODE@HOST:PORT, as in 1@127.0.0.1:9192")
    host, port = split_address(address)
    if port == 0:
        raise ValueError(f"{entry} needs the port that its broker listens on, not 0")
    return int(node_id), host, port


def _read_voters(value: object) -> object:
    voters = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(voters, list | tuple) or not all(isinstance(voter, str) for voter in voters):
        raise ValueError('must be a list such as ["1@127.0.0.1:9192", "2@127.0.0.1:9193"]')
    entries = [split_voter(voter) for voter in voters]
    for what, values in (
        ("node id", [node_id for node_id, _, _ in entries]),
        ("address", [f"{host}:{port}" for _, host, port in entries]),
    ):
        twice = next((value for i, value in enumerate(values) if value in values[:i]), None)
        if twice is not None:
            raise ValueError(f"names the {what} {twice} twice; every voter has its own")
    return tuple(voters)


def _read_hosts(value: object) -> object:
    hosts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(hosts, list | tuple) or not all(isinstance(host, str) for host in hosts):
        raise ValueError('must be a list such as ["tidelog.example.com", "*.svc.cluster.local"]')
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise ValueError(f"{host} must be a name without a port, as in tidelog.example.com, *.example.com, or *")
    return tuple(host.lower() for host in hosts)


def _read_versions(value: object) -> object:
    versions = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(versions, list | tuple) or not versions or not {*TLS_VERSIONS}.issuperset(versions):
        raise ValueError(f"must be one or both of {' and '.join(TLS_VERSIONS)}, as in TLSv1.2,TLSv1.3")
    return tuple(dict.fromkeys(versions))


def _read_words(value: object) -> object:
    words = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    return tuple(words) if isinstance(words, list | tuple) else words


def _read_principals(value: object) -> object:
    principals = [part.strip() for part in value.split(";") if part.strip()] if isinstance(value, str) else value
    if not isinstance(principals, list | tuple) or not all(isinstance(principal, str) for principal in principals):
        raise ValueError("must be principals with semicolons between, as in User:admin;User:ops")
    for principal in principals:
        try:
            check_principal(principal)
        except InvalidRequest as error:
            raise ValueError(error.message) from None
    return tuple(principals)


def _are_rules(value: str) -> str:
    try:
        parse_rules(value)
    except InvalidRequest as error:
        raise ValueError(error.message) from None
    return value


def _is_url(value: str) -> str:
    match = _URL.fullmatch(value)
    if match is None:
        raise ValueError("must be the HTTP address of a broker, as in http://127.0.0.1:8082")
    split_address(match["address"])
    return value.rstrip("/")


def keys_file(url: str) -> str:
    """Returns the path of a `file:` URL. Raises `ValueError` for any other URL."""
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path:
        raise ValueError(
            "must be the URL of a file, as in file:///etc/tidelog/jwks.json: brokers fetch no keys; have something "
            "beside them write into a file what the issuer publishes"
        )
    return unquote(parts.path)


def _is_keys_url(value: str) -> str:
    keys_file(value)
    return value


def _is_address(value: str) -> str:
    split_address(value)
    return value


def _read_compression(value: object) -> object:
    return (
        "none" if value == "uncompressed" else value
    )  # Kafka's topic setting says the latter, its producer's the former


NO_COMPACTION = "compaction is not available in this version; use delete, or leave it empty to keep everything"


def _refuse_compaction(value: object) -> object:
    if isinstance(value, str) and "compact" in value:
        raise ValueError(NO_COMPACTION)
    return value


def _refuse_mixed_compaction(value: object) -> object:
    return value if value == "compact" else _refuse_compaction(value)


def _refuse_auto_creation(value: object) -> object:
    if _read_boolean(value):
        raise ValueError(
            "topics are never created by themselves, so that a misspelt name is an error; create them explicitly"
        )
    return False


Integer = Annotated[int, BeforeValidator(_read_integer)]
Boolean = Annotated[bool, BeforeValidator(_read_boolean)]
Count = Annotated[Integer, Field(ge=1, le=INT32_MAX)]
"""A count, at least 1."""
LaneCount = Annotated[Integer, Field(ge=1, le=8)]
HoleSpan = Annotated[int, BeforeValidator(_read_hole_span), Field(ge=1, le=HOLE_SPAN_MAX)]
"""A count of positions of a Paxos log."""
FeatureLevel = Annotated[Integer, Field(ge=LEVEL_MIN, le=LEVEL_MAX)]
Milliseconds = Annotated[Integer, Field(ge=1, le=INT64_MAX)]
Delay = Annotated[Integer, Field(ge=0, le=INT32_MAX)]
"""A delay in milliseconds; 0 for none."""
Bytes = Annotated[Integer, Field(ge=1, le=INT64_MAX)]
Limit = Annotated[Integer, Field(ge=-1, le=INT64_MAX)]
"""A limit in bytes or milliseconds; -1 for none."""
Seconds = Annotated[Integer, Field(ge=0, le=INT32_MAX)]
Skew = Annotated[Integer, Field(ge=0, le=INT64_MAX)]
"""A tolerated clock difference in milliseconds."""
SegmentBytes = Annotated[Integer, Field(ge=1024, le=INT32_MAX)]
ShownBytes = Annotated[Integer, Field(ge=2**20, le=2**26)]
BatchBytes = Annotated[Integer, Field(ge=64, le=INT32_MAX)]
Address = Annotated[str, AfterValidator(_is_address)]
OptionalAddress = Annotated[str, AfterValidator(lambda value: value and _is_address(value))]
"""An address `host:port`, or the empty string."""
Voters = Annotated[tuple[str, ...], BeforeValidator(_read_voters)]
Principals = Annotated[tuple[str, ...], BeforeValidator(_read_principals)]
LoginMethods = Annotated[tuple[Literal["token", "basic", "certificate", "jwt"], ...], BeforeValidator(_read_words)]
SaslMechanisms = Annotated[
    tuple[Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"], ...], BeforeValidator(_read_words)
]
JwtAlgorithms = Annotated[tuple[JwtAlgorithm, ...], BeforeValidator(_read_words), Field(min_length=1)]
Text = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]+$")]
Words = Annotated[tuple[Text, ...], BeforeValidator(_read_words)]
KeysUrl = Annotated[str, AfterValidator(_is_keys_url)]
MappingRules = Annotated[str, AfterValidator(_are_rules)]
Hosts = Annotated[tuple[str, ...], BeforeValidator(_read_hosts)]
TlsVersions = Annotated[tuple[str, ...], BeforeValidator(_read_versions)]
Url = Annotated[str, AfterValidator(_is_url)]
Path = Text
Rack = Annotated[str, Field(pattern=f"^{_PRINTABLE.pattern}$")]
NodeNumber = Annotated[Integer, Field(ge=0, le=INT32_MAX)]

CleanupPolicy = Annotated[Literal["delete", ""], BeforeValidator(_refuse_compaction)]
TopicCleanupPolicy = Annotated[Literal["delete", "", "compact"], BeforeValidator(_refuse_mixed_compaction)]
"""Cleanup policy of a topic. `compact` is allowed only for the brokers' internal topics."""
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]
TimestampType = Literal["CreateTime", "LogAppendTime"]
CompressionType = Annotated[
    Literal["producer", "none", "gzip", "snappy", "lz4", "zstd"], BeforeValidator(_read_compression)
]
CommitSemantics = Literal["processed", "next"]
AckDurability = Literal["fsynced", "replicated"]
SecurityProtocol = Literal["PLAINTEXT", "SSL"]
KafkaSecurity = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
ClientAuth = Literal["none", "requested", "required"]
Never = Annotated[Literal[False], BeforeValidator(_refuse_auto_creation)]
