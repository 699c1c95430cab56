"""A registered broker tells the controller how it is, and does what the answers allow."""

from __future__ import annotations

import asyncio

from tests.unit.broker.controller.test_active import Bench, on_bench
from tests.unit.controller.cluster import registration
from tidelog.broker.membership.controller_channel import ControllerChannel
from tidelog.broker.membership.registration import HeartbeatState, Registration
from tidelog.broker.runtime.cluster_time import ClusterTime
from tidelog.broker.runtime.lease import Lease
from tidelog.config.schema import BrokerConfig
from tidelog.controller.commands import MetadataApplied
from tidelog.controller.partition_commands import LostReplica, UnfitReplica
from tidelog.sim.kit.environment import SimClock, SimEntropy
from tidelog.sim.kit.seeds import stream
from tidelog.transport.peer import Answer

CONFIG = BrokerConfig(broker_stamp_interval_ms=1_000)


class Member:
    """A broker whose disk hangs, and that has applied what the bench's log has."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.marks = 0

    def heartbeat_state(self) -> HeartbeatState:
        return HeartbeatState(self._bench.log.image.position, (0, ""))

    def unfit(self) -> tuple[UnfitReplica, ...]:
        return ()

    def lost(self) -> tuple[LostReplica, ...]:
        return ()

    async def mark_time(self) -> int:
        self.marks += 1
        await asyncio.Event().wait()
        raise AssertionError

    async def mark_old(self) -> None:
        raise AssertionError

    def report_silences(self, own_epoch: int) -> None:
        pass

    def report_applied(self, report: MetadataApplied) -> None:
        self._bench.controller.noted(report)


def test_heartbeats_do_not_wait_for_a_disk_that_hangs() -> None:
    async def story(bench: Bench) -> None:
        await bench.lead()
        clock, entropy, member = SimClock(asyncio.get_running_loop()), SimEntropy(stream(1)), Member(bench)
        channel = ControllerChannel(1, bench.controller, _ask, entropy, lambda: (), lambda *_: None)
        channel.on_leader_changed(1)
        lease = Lease(clock, CONFIG.lease_ms)
        time = ClusterTime(clock, CONFIG.clock_skew_ms_max)
        living = Registration(CONFIG, channel, time, lease, "p", member)
        await living.register(registration(1))
        task = asyncio.create_task(living.run())
        await living.is_live.wait()
        await asyncio.sleep(CONFIG.heartbeat_ms / 1000)
        for _ in range(200):
            assert lease.is_held and time.may_delete
            await asyncio.sleep(0.1)
        assert member.marks == 1, "the disk is asked once, and not again before it has answered"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    on_bench(story)


async def _ask(*_: object, **__: object) -> Answer:
    raise AssertionError("there is no other broker")
