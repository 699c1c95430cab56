"""`tidelog cluster describe` says whose clock is off, and who is not secure."""

from __future__ import annotations

import pytest

from tidelog.admin import BrokerDescription, BrokerState, ClusterDescription
from tidelog.cli.cluster import _Described, _document, _print


def described(*states: BrokerState | None) -> _Described:
    brokers = tuple(
        BrokerDescription(number, f"host-{number}", 8082, None, False, number == 1, 3, number, f"host-{number}", 8083)
        for number in range(1, len(states) + 1)
    )
    cluster = ClusterDescription("c", 1, 1, 7, (), brokers)
    return _Described(cluster, dict(enumerate(states, start=1)))


def test_the_clock_of_each_broker_is_shown_and_one_that_is_off_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    shown = described(BrokerState(7, 3), BrokerState(6, -45_000, clock_is_off=True), None, BrokerState(7))
    _print(shown)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-2] for line in lines if "host-" in line] == ["3", "-45000", "-", "-"]
    [warning] = [line for line in lines if "clock is off" in line]
    assert warning.startswith("broker 2's clock is off: 45,000 ms behind the others', over clock.skew.ms.max;")
    document = _document(shown)
    assert [(broker["clock_offset_ms"], broker["clock_is_off"]) for broker in document["brokers"]] == [
        (3, False),
        (-45_000, True),
        (None, False),
        (None, False),
    ]


def test_a_broker_that_believes_strangers_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    shown = described(BrokerState(7), BrokerState(7, insecure_listeners=("peer.listener x:1 is open",)), None)
    _print(shown)
    assert "\nbroker 2 is not secure: peer.listener x:1 is open\n" in capsys.readouterr().out
    assert [broker["insecure_listeners"] for broker in _document(shown)["brokers"]] == [
        (),
        ("peer.listener x:1 is open",),
        (),
    ]
