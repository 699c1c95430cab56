"""What a broker knows of who leads, and how it waits for logs to be opened."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from tidelog.broker.routing.leader_lookup import LeaderLookup
from tidelog.model.ids import PartitionId, TopicId

TOPIC = TopicId("0" * 32)
LOGS = 200


class Opening:
    """A broker that opens logs, one after the other, and is asked about them."""

    def __init__(self) -> None:
        self.left = list(range(LOGS))
        self.asked = 0

    def is_opening(self, partition_id: PartitionId) -> bool:
        self.asked += 1
        return partition_id.partition in self.left


async def test_who_waits_for_many_logs_looks_at_each_once_and_at_one_for_each_that_is_opened() -> None:
    host = Opening()
    lookup = LeaderLookup(cast("Any", host))
    deadline_s = asyncio.get_running_loop().time() + 60
    waiting = asyncio.create_task(lookup.until_opened([(TOPIC, number) for number in range(LOGS)], deadline_s))
    while host.left:
        await asyncio.sleep(0)
        assert not waiting.done()
        host.left.pop(0)
        lookup.on_metadata_applied()
    await waiting
    assert host.asked <= 3 * LOGS


async def test_who_waits_for_a_log_that_is_not_opened_waits_until_the_deadline() -> None:
    lookup = LeaderLookup(cast("Any", Opening()))
    await lookup.until_opened([(TOPIC, 0)], asyncio.get_running_loop().time() + 0.01)
    await lookup.until_opened([(TOPIC, LOGS)], asyncio.get_running_loop().time() + 60)
