"""Bootstrap addresses that do not answer: every client says which, soon, and one that answers is enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidelog.admin import AdminClient
from tidelog.consumer import Consumer
from tidelog.log import Reader, Writer
from tidelog.producer import Producer
from tidelog.testing import LocalCluster
from tidelog.transport.errors import ConnectFailed

DEADLINE_MS = 300
CLIENTS: list[Callable[[str], Any]] = [
    lambda servers: Producer(servers, request_timeout_ms=DEADLINE_MS),
    lambda servers: Consumer("t", bootstrap_servers=servers, request_timeout_ms=DEADLINE_MS),
    lambda servers: Consumer("t", bootstrap_servers=servers, group_id="g", request_timeout_ms=DEADLINE_MS),
    lambda servers: AdminClient(servers, request_timeout_ms=DEADLINE_MS),
    lambda servers: Writer(servers, "t", request_timeout_ms=DEADLINE_MS),
    lambda servers: Reader(servers, "t", request_timeout_ms=DEADLINE_MS),
]


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_client_names_the_address_where_nobody_answers(silent: str, client: Callable[[str], Any]) -> None:
    with pytest.raises(ConnectFailed, match=rf"no broker answers at {silent} within 0.3 s: ") as failed:
        async with client(silent):
            pass
    assert failed.value.code == 50380


@pytest.mark.parametrize("reverse", [False, True])
async def test_an_address_that_refuses_tells_more_than_one_that_is_silent(
    nobody: str, swallowing: str, reverse: bool
) -> None:
    addresses = [swallowing, nobody]
    with pytest.raises(ConnectFailed, match=rf" within 0.3 s: no connection to {nobody}: "):
        await Producer(addresses[::-1] if reverse else addresses, request_timeout_ms=DEADLINE_MS).start()


async def test_the_deadline_is_that_of_the_bootstrap_however_long_a_request_may_take(
    swallowing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.transport.session.BOOTSTRAP_TIMEOUT_S", 0.2)
    with pytest.raises(ConnectFailed, match=r"within 0.2 s"):
        await Producer(swallowing, request_timeout_ms=3_600_000).start()


@pytest.mark.process
@pytest.mark.parametrize("reverse", [False, True])
async def test_one_broker_is_enough(cluster: LocalCluster, nobody: str, swallowing: str, reverse: bool) -> None:
    addresses = [nobody, swallowing, cluster.bootstrap]
    async with AdminClient(addresses[::-1] if reverse else addresses) as admin:
        assert [broker.broker_id for broker in await admin.list_brokers()] == [1]
