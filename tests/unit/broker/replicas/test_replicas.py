"""Bringing a broker in line with the metadata: only what an image changes is touched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from tests.unit.broker.conftest import Bench
from tidelog.broker.broker import NewTopic
from tidelog.broker.isr.isr_roles import IsrRoles
from tidelog.broker.partitions.roles import Assignment
from tidelog.broker.paxos.roles import PaxosRoles
from tidelog.model.cluster import ClusterImage

PARTITIONS = 40
BOTH = pytest.mark.parametrize("protocol", ["isr", "paxos"])

Roles = IsrRoles | PaxosRoles
Told = Counter[tuple[object, ...]]
"""How often roles were told the same of a partition: its metadata, and the brokers' states."""


def counted(serve: Callable[[Roles, Assignment, ClusterImage], Awaitable[bool]], told: Told) -> object:
    async def count(roles: Roles, assigned: Assignment, image: ClusterImage) -> bool:
        brokers = [(broker.node_id, broker.epoch, broker.is_fenced) for broker in image.brokers.values()]
        told[assigned.partition_id, assigned.info, *brokers] += 1
        return await serve(roles, assigned, image)

    return count


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    calls: Told = Counter()
    monkeypatch.setattr(IsrRoles, "serve", counted(IsrRoles.serve, calls))  # type: ignore[arg-type] # of its own roles
    monkeypatch.setattr(PaxosRoles, "serve", counted(PaxosRoles.serve, calls))  # type: ignore[arg-type] # as above
    return calls


@BOTH
async def test_roles_are_told_nothing_twice(bench: Bench, told: Told, protocol: str) -> None:
    await bench.broker.admin.create_topic(NewTopic("many", PARTITIONS, configs={"commit.protocol": protocol}))
    for number in range(5):
        await bench.topic(f"other-{number}")
    await bench.restart()
    await bench.topic("last")
    assert len({partition for partition, *_ in told}) == PARTITIONS + 6
    assert set(told.values()) <= {1, 2}, "once for the log to be opened, once with it"
