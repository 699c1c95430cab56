"""The bootstrap addresses of clients, parsed into base URLs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from tidelog.model.errors import InvalidRequest

HTTP: Final = "http"
HTTPS: Final = "https"
SCHEMES: Final = (HTTP, HTTPS)
DEFAULT_PORT = 8082
BOOTSTRAP_TIMEOUT_S = 10.0
"""Seconds that a client tries its bootstrap addresses before it fails."""
DEFAULT_BOOTSTRAP = f"http://127.0.0.1:{DEFAULT_PORT}"


def parse_bootstrap(bootstrap: str | Sequence[str], scheme: str | None = None) -> tuple[str, ...]:
    """Parses bootstrap addresses, URLs or `host:port`, from a comma-separated string or a list. Returns their base URLs
    in the given order, without duplicates.

    All get the same scheme: `scheme` if given, else the one that an address names, else `http`. Raises `InvalidRequest`
    if there is no address, an address is neither a URL nor `host:port`, or two schemes differ.
    """
    entries = bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap
    texts = [entry.strip() for entry in entries if entry.strip()]
    if not texts:
        raise InvalidRequest(f"no bootstrap address; give that of a broker, such as {DEFAULT_BOOTSTRAP}")
    named = dict.fromkeys(entry.partition("://")[0].lower() for entry in texts if "://" in entry)
    schemes = [*named] if scheme is None else [scheme, *(name for name in named if name != scheme)]
    if len(schemes) > 1 and {*schemes}.issubset(SCHEMES):
        raise InvalidRequest(
            f"bootstrap addresses {', '.join(texts)} are of {' and '.join(schemes)}, and a client speaks one of them: "
            "security.protocol=SSL is https, PLAINTEXT is http"
        )
    return tuple(dict.fromkeys(parse_address(entry, schemes[0] if schemes else HTTP) for entry in texts))


def parse_address(entry: str, scheme: str = HTTP) -> str:
    """Returns the base URL, `http://host:port` or `https://host:port`, of one URL or `host[:port]`."""
    parts = urlsplit(entry if "://" in entry else f"{scheme}://{entry}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidRequest(f"bootstrap address {entry!r}: {error}") from error
    if parts.scheme not in SCHEMES or not host or parts.path.strip("/") or parts.query or parts.username:
        raise InvalidRequest(f"bootstrap address {entry!r} is neither http(s)://HOST:PORT nor HOST:PORT")
    return base_url(host, DEFAULT_PORT if port is None else port, parts.scheme)


def base_url(host: str, port: int, scheme: str = HTTP) -> str:
    """Returns the base URL of a host name or address; IPv6 addresses get their brackets."""
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
