"""A broker that the controller has not answered for a session leads no more, whoever asks it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest

from tests.unit.broker.conftest import batch
from tests.unit.broker.isr.stage import Stage, play
from tidelog.broker.isr.partition import Partition
from tidelog.broker.membership.registration import HeartbeatState, Registration
from tidelog.broker.partitions.local_copy import LocalCopy
from tidelog.broker.runtime.cluster_time import ClusterTime
from tidelog.broker.runtime.lease import Lease
from tidelog.broker.runtime.purgatory import Purgatory
from tidelog.config.schema import BrokerConfig
from tidelog.controller.commands import HeartbeatAnswered, MetadataApplied, RegisterBroker
from tidelog.controller.partition_commands import LostReplica, UnfitReplica
from tidelog.model.errors import LeaderNotAvailable
from tidelog.sim.kit.environment import SimClock
from tidelog.sim.kit.loop import run


def test_a_lease_is_nine_tenths_of_a_session_from_when_the_heartbeat_was_sent() -> None:
    async def story() -> None:
        clock = SimClock(asyncio.get_running_loop())
        lease = Lease(clock, 1_000)
        assert not lease.is_held, "nothing was answered yet"
        sent_s = clock.monotonic_s()
        await asyncio.sleep(0.5)
        lease.renew(sent_s)
        await asyncio.sleep(0.39)
        assert lease.is_held
        lease.renew(sent_s - 1)
        assert lease.is_held, "a late answer to an early heartbeat shortens nothing"
        await asyncio.sleep(0.02)
        assert not lease.is_held

    run(story)


class Controller:
    """Answers heartbeats: the broker is live, as of position 7."""

    async def submit(self, command: object, answer_type: type, *, seconds_max: float) -> HeartbeatAnswered:
        return HeartbeatAnswered(7, False, False)


@dataclass
class Member:
    """A broker that is in line with the metadata up to `position`."""

    position: int

    def heartbeat_state(self) -> HeartbeatState:
        return HeartbeatState(self.position, (-1, ""))

    def unfit(self) -> tuple[UnfitReplica, ...]:
        return ()

    def lost(self) -> tuple[LostReplica, ...]:
        return ()

    async def mark_time(self) -> int:
        return 0

    async def mark_old(self) -> None:
        """Nothing happens: no controller here takes a directory for old."""

    def report_silences(self, own_epoch: int) -> None:
        pass

    def report_applied(self, report: MetadataApplied) -> None:
        """Nobody listens."""


def test_a_broker_that_is_live_again_waits_for_what_was_decided_meanwhile() -> None:
    """It was fenced while it was cut off, and the answer that forgives this comes before the news who leads now."""

    async def story() -> None:
        clock = SimClock(asyncio.get_running_loop())
        lease = Lease(clock, 1_000)
        member = Member(6)
        registration: Any = Registration(
            BrokerConfig(), cast("Any", Controller()), ClusterTime(clock, 30_000), lease, "incarnation",
            member,
        )  # fmt: skip
        registration._command = RegisterBroker(1, "incarnation", "disk", {}, "h", 2)
        await registration._beat(1.0)
        assert registration.is_live.is_set() and not lease.is_held
        member.position = 7
        registration.on_metadata_applied()
        assert lease.is_held

    run(story)


CALLS: dict[str, Callable[[Partition], Awaitable[Any]]] = {
    "produce": lambda partition: partition.produce(
        batch(b"x", timestamp_ms=1), acks=1, deadline_s=asyncio.get_running_loop().time() + 5
    ),
    "read": lambda partition: partition.read(0, bytes_max=1 << 20),
    "read beyond the end": lambda partition: partition.read(99, bytes_max=1 << 20),
    "extent": lambda partition: partition.extent(),
    "offset for timestamp": lambda partition: partition.offset_for_timestamp(0),
}


@pytest.mark.parametrize("call", CALLS)
def test_without_a_lease_a_leader_answers_nothing_as_a_leader(call: str) -> None:
    async def story(stage: Stage) -> None:
        stage.leader.write(1, b"a")
        partition = stage.lead()
        await asyncio.sleep(9)
        with pytest.raises(LeaderNotAvailable) as caught:
            await CALLS[call](partition)
        assert caught.value.definite and caught.value.retriable
        assert stage.leader.log.log_end_offset == 1

    play(story)


def test_what_is_here_can_be_read_without_a_lease_by_whoever_asks_for_just_that() -> None:
    async def story(stage: Stage) -> None:
        stage.leader.write(1, b"a")
        partition = stage.lead(isr=(1,))
        await asyncio.sleep(9)
        copy = LocalCopy(partition, 1, Purgatory(), stage.leader.stats)
        assert (await copy.extent()).high_watermark == 1
        assert (await copy.read(0, bytes_max=1 << 20)).next_offset == 1

    play(story)
