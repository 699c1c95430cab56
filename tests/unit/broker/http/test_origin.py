"""Which names a listener is known by, and which pages a browser may send requests from."""

from __future__ import annotations

import pytest

from tidelog.broker.http.origin import HOSTS_REMEMBERED_MAX, KnownHosts, check_origin
from tidelog.model.errors import ForeignOrigin, UnknownHost

HOSTS = KnownHosts(["tidelog.example.com", "*.svc.cluster.local"], lambda: ["Broker-1.example.org"])


@pytest.mark.parametrize(
    "host",
    [None, "", "127.0.0.1", "127.0.0.1:8082", "10.1.2.3:1", "[::1]", "[::1]:8082", "[fe80::1]:80", "localhost",
     "LOCALHOST:8082", "localhost.:8082", "broker1:8082", "tidelog.example.com", "TideLog.Example.com:80",
     "tidelog.example.com.", "tidelog.default.svc.cluster.local:8082", "broker-1.example.org:8082"],
)  # fmt: skip
def test_known_hosts(host: str | None) -> None:
    for _ in range(2):
        HOSTS.check(host)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8082", "127.0.0.1.evil.example", "localhost.evil.example",
     "evil.tidelog.example.com", "svc.cluster.local", "evilsvc.cluster.local", "tidelog.example.com.evil.example",
     "[evil.example]:80", "256.1.1.1"],
)  # fmt: skip
def test_unknown_hosts(host: str) -> None:
    for _ in range(2):
        with pytest.raises(UnknownHost, match=r"http\.hosts"):
            HOSTS.check(host)


def test_any_host_may_be_let_in() -> None:
    KnownHosts(["*"], list).check("evil.example")


def test_what_brokers_advertise_later_is_known_then() -> None:
    advertised: list[str] = []
    hosts = KnownHosts([], lambda: advertised)
    with pytest.raises(UnknownHost):
        hosts.check("broker.example")
    advertised.append("broker.example")
    hosts.check("broker.example")


def test_headers_are_not_remembered_for_ever() -> None:
    hosts = KnownHosts(["*"], list)
    for number in range(HOSTS_REMEMBERED_MAX * 2):
        hosts.check(f"{number}.example")
        assert len(hosts._accepted) <= HOSTS_REMEMBERED_MAX


OWN: list[dict[str, str]] = [
    {},
    {"Host": "localhost:8082", "Sec-Fetch-Mode": "cors"},
    {"Host": "localhost:8082", "Origin": "http://localhost:8082"},
    {"Host": "Broker", "Origin": "http://broker:80"},
    {"Host": "broker:443", "Origin": "https://broker"},
    {"Host": "[::1]:8082", "Origin": "http://[::1]:8082", "Sec-Fetch-Site": "same-origin"},
    {"Host": "behind:1", "Origin": "https://tidelog.example.com", "Sec-Fetch-Site": "same-origin"},
    {"Host": "localhost:8082", "Sec-Fetch-Site": "none"},
]
FOREIGN: list[dict[str, str]] = [
    {"Host": "localhost:8082", "Origin": "http://localhost:3000"},
    {"Host": "localhost:8082", "Origin": "http://evil.example"},
    {"Host": "localhost:8082", "Origin": "null"},
    {"Host": "localhost:8082", "Origin": ""},
    {"Host": "", "Origin": "null"},
    {"Origin": "http://evil.example"},
    {"Host": "localhost:8082", "Sec-Fetch-Site": "cross-site"},
    {"Host": "localhost:8082", "Sec-Fetch-Site": "same-site"},
    {"Host": "localhost:8082", "Sec-Fetch-Site": "Same-Origin"},
    {"Host": "localhost:8082", "Origin": "http://localhost:8082", "Sec-Fetch-Site": "cross-site"},
]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_pages_of_other_origins_change_nothing(method: str) -> None:
    for headers in OWN:
        check_origin(method, headers)
    for headers in FOREIGN:
        with pytest.raises(ForeignOrigin):
            check_origin(method, headers)


def test_reading_is_left_to_the_browser() -> None:
    for headers in FOREIGN:
        check_origin("GET", headers)
        check_origin("HEAD", headers)
