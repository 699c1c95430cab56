"""Brokers that have ended are known by their refused connections, for as long as the metadata may not know it."""

from __future__ import annotations

from unittest.mock import PropertyMock

import pytest

from tests.unit.broker.conftest import Bench
from tidelog.transport.peer import PeerNode


async def test_a_broker_that_is_refused_beyond_its_session_has_not_ended(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PeerNode, "down", PropertyMock(return_value={2: 8.9, 3: 9.1}))
    monkeypatch.setattr(PeerNode, "in_doubt", PropertyMock(return_value=[4]))
    assert bench.broker.config.broker_session_timeout_ms == 9_000
    assert bench.broker.ended_brokers == [2]
    assert bench.broker.missed_brokers == [2, 4]
