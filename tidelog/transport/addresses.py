"""Addresses of brokers: the bootstrap list that every client takes, as base URLs."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from tidelog.model.errors import InvalidRequest

DEFAULT_PORT = 8082
BOOTSTRAP_TIMEOUT_S = 10.0
"""How long the bootstrap addresses are tried: a mistyped one must not look like a slow one."""
DEFAULT_BOOTSTRAP = f"http://127.0.0.1:{DEFAULT_PORT}"


def parse_bootstrap(bootstrap: str | Sequence[str]) -> tuple[str, ...]:
    """Returns the base URLs of a comma list, or a list, of URLs or `host:port`, in its order, without repeats.

    Raises `InvalidRequest` if the list is empty or an entry is neither.
    """
    entries = bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap
    addresses = [parse_address(entry.strip()) for entry in entries if entry.strip()]
    if not addresses:
        raise InvalidRequest(f"no bootstrap address; give that of a broker, such as {DEFAULT_BOOTSTRAP}")
    return tuple(dict.fromkeys(addresses))


def parse_address(entry: str) -> str:
    """The base URL, `http://host:port`, of one URL or `host[:port]`."""
    parts = urlsplit(entry if "://" in entry else f"http://{entry}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidRequest(f"bootstrap address {entry!r}: {error}") from error
    if parts.scheme != "http" or not host or parts.path.strip("/") or parts.query or parts.username:
        raise InvalidRequest(f"bootstrap address {entry!r} is neither http://HOST:PORT nor HOST:PORT")
    return base_url(host, DEFAULT_PORT if port is None else port)


def base_url(host: str, port: int) -> str:
    """The base URL of a host name or address; IPv6 addresses get their brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
