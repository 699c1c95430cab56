"""A Kafka listener that takes connections and stays silent: a request without time fails alone, and the listener is
given up only after `OPEN_S_MAX` of silence in all."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.integration.doors import doors_of
from tidelog.testing import LocalCluster
from tidelog.transport.errors import ConnectFailed
from tidelog.transport.frames import doors as door_rules

pytestmark = pytest.mark.process

BROKER = "http://broker"
SHORT_S = 0.02
PATIENCE_S = 30.0


@pytest.fixture
def silent() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield "{}:{}".format(*listener.getsockname())


async def test_a_request_without_time_does_not_shut_the_door_to_those_that_have_it(
    silent: str, doors: LocalCluster
) -> None:
    pool = doors_of()
    pool.learn({BROKER: silent})
    with pytest.raises(ConnectFailed, match=r"has opened no connection within 0\.02 s"):
        await pool.take(BROKER, SHORT_S)
    assert pool.is_open(BROKER)
    pool.learn({BROKER: str(doors.kafka_bootstrap)})
    assert await pool.take(BROKER, PATIENCE_S) is not None
    pool.close()


async def test_short_silences_add_up_until_the_listener_is_given_up(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_rules, "OPEN_S_MAX", 2.5 * SHORT_S)
    pool = doors_of()
    pool.learn({BROKER: silent})
    for _ in range(2):
        with pytest.raises(ConnectFailed):
            await pool.take(BROKER, SHORT_S)
        assert pool.is_open(BROKER)
    assert await pool.take(BROKER, SHORT_S) is None
    assert not pool.is_open(BROKER)
    pool.close()


async def test_a_connection_that_opens_ends_the_count_of_silence(
    silent: str, doors: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = doors_of()
    for _ in range(2):
        pool.learn({BROKER: silent})
        monkeypatch.setattr(door_rules, "OPEN_S_MAX", 1.5 * SHORT_S)
        with pytest.raises(ConnectFailed):
            await pool.take(BROKER, SHORT_S)
        monkeypatch.undo()
        pool.learn({BROKER: str(doors.kafka_bootstrap)})
        assert await pool.take(BROKER, PATIENCE_S) is not None
    pool.close()
