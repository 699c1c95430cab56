"""The check of a request's origin: programs may send requests to a listener, foreign web pages may not.

A browser runs the pages of strangers inside its user's network, and lets them send requests anywhere. It tells where a
page comes from, in headers that no page can set and that no program needs to send:

- `Sec-Fetch-Site` and `Origin` name the page's origin. A request from a page of another origin is refused if it may
  change something. The answer to a read is kept from such a page by the browser: there is no CORS here.
- `Host` is the name that the browser looked up. An attacker can let a name of his own resolve to a broker's address
  ("DNS rebinding"), so that his page has the broker's origin. So the name has to be a known one of this cluster.

An IP address needs no look-up, so nobody can redirect it. Neither can a name without a dot be redirected, which the
public DNS does not have: `localhost`, a machine of the local network, a service of Docker or Kubernetes.
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
"""HTTP methods that change nothing."""
ANY_HOST: Final = "*"
HOSTS_REMEMBERED_MAX: Final = 1_000
SEC_FETCH_SITE: Final = istr("Sec-Fetch-Site")
_OWN_SITE: Final = frozenset({"same-origin", "none"})
_DEFAULT_PORTS: Final = (":80", ":443")


class KnownHosts:
    """The host names of a listener: `names` from the settings, and the names that brokers advertise."""

    def __init__(self, names: Sequence[str], advertised: Callable[[], Iterable[str]]) -> None:
        self._is_any = ANY_HOST in names
        self._names = frozenset(names)
        self._suffixes = tuple(name.removeprefix("*") for name in names if name.startswith("*."))
        self._advertised = advertised
        self._accepted: dict[str, None] = {}
        """`Host` headers that were accepted before; nearly every request has one of them."""

    def check(self, host: str | None) -> None:
        """Raises `UnknownHost` if the `Host` header names an unknown host. HTTP/1.0 clients may leave it out."""
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
    """Raises `ForeignOrigin` for a request that may change something, if a browser marks it as sent by a page of
    another origin. `Sec-Fetch-Site` decides if present, since a proxy may have changed `Host`.
    """
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
    """Returns the host of a `Host` header, without the port and without a trailing dot."""
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
    """Returns the host and port of an `Origin` header; None if it has none, as `null` has."""
    _, separator, authority = origin.partition("://")
    return _without_default_port(authority) if separator else None


def _without_default_port(authority: str) -> str:
    authority = authority.lower()
    for port in _DEFAULT_PORTS:
        authority = authority.removesuffix(port)
    return authority
