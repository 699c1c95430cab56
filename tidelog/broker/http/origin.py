"""The check of a request's origin: programs may send requests to a listener, web pages may not.

A browser runs the pages of strangers inside the network of its user, and lets them send requests anywhere. It tells
the truth about where a page comes from, in headers that no page can set, and that no program needs to send:

- `Sec-Fetch-Site` and `Origin` name the page's origin. A request that may change something, and that a page of
  another origin sends, is refused. What such a page only reads the browser keeps from it: there is no CORS here.
- `Host` is the name that the browser looked up. A stranger can have his own name lead to a broker's address ("DNS
  rebinding"), and then his page is of the broker's origin. So a name has to be one that this cluster is known by.

An IP address is no name, so nobody can have it lead elsewhere. Neither can a name without a dot, which the public
DNS does not have: `localhost`, a machine of the local network, a service of Docker or Kubernetes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from aiohttp.hdrs import HOST, ORIGIN
from multidict import istr

from tidelog.broker.http.params import shown
from tidelog.model.errors import ForeignOrigin, UnknownHost

READING: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods that change nothing."""
ANY_HOST: Final = "*"
HOSTS_REMEMBERED_MAX: Final = 1_000
SEC_FETCH_SITE: Final = istr("Sec-Fetch-Site")
_OWN_SITE: Final = frozenset({"same-origin", "none"})
_DEFAULT_PORTS: Final = (":80", ":443")


class KnownHosts:
    """The names that a listener is known by: `names` as the operator gave them, and those that brokers `advertise`."""

    def __init__(self, names: Sequence[str], advertised: Callable[[], Iterable[str]]) -> None:
        self._is_any = ANY_HOST in names
        self._names = frozenset(names)
        self._suffixes = tuple(name.removeprefix("*") for name in names if name.startswith("*."))
        self._advertised = advertised
        self._accepted: dict[str, None] = {}
        """`Host` headers that were good before: nearly every request has one of them."""

    def check(self, host: str | None) -> None:
        """Raises `UnknownHost` if the header names a host that this listener is not known by. HTTP/1.0 may leave it
        out."""
        if host is None or host in self._accepted:
            return
        if not (self._is_any or self._is_known(_name_of(host))):
            raise UnknownHost(
                f"this broker is not known as {shown(host)}: use its address, or have its operator add the name to "
                "http.hosts"
            )
        if len(self._accepted) >= HOSTS_REMEMBERED_MAX:
            self._accepted.clear()
        self._accepted[host] = None

    def _is_known(self, name: str) -> bool:
        if "." not in name or _is_address(name):
            return True
        if name in self._names or name.endswith(self._suffixes):
            return True
        return any(name == host.lower() for host in self._advertised())


def check_origin(method: str, headers: Mapping[str, str]) -> None:
    """Raises `ForeignOrigin` for a request that may change something, if a browser says that a page of another origin
    sends it. Behind a proxy that has changed `Host` the browser's own word counts, `Sec-Fetch-Site`."""
    if method in READING:
        return
    site = headers.get(SEC_FETCH_SITE)
    origin = headers.get(ORIGIN)
    if site is None and origin is None:
        return
    if site is None:
        is_own = origin is not None and _authority_of(origin) == _without_default_port(headers.get(HOST, ""))
    else:
        is_own = site in _OWN_SITE
    if not is_own:
        raise ForeignOrigin(f"a web page of another origin ({shown(origin or str(site))}) may not change anything here")


def _name_of(host: str) -> str:
    """Returns the host of a `Host` header, without port and without the dot that ends a full name."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".").lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _authority_of(origin: str) -> str | None:
    """Host and port of an `Origin` header; None if it has none, as `null` has."""
    _, separator, authority = origin.partition("://")
    return _without_default_port(authority) if separator else None


def _without_default_port(authority: str) -> str:
    authority = authority.lower()
    for port in _DEFAULT_PORTS:
        authority = authority.removesuffix(port)
    return authority
