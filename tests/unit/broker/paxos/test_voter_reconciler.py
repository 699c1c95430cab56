"""Changes of members, as the reconciler of the leader's broker makes them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import cast

from tests.unit.broker.isr.stage import PARTITION, until
from tests.unit.broker.paxos.stage import Stage, play
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.broker.partitions.roles import ProtocolContext
from tidelog.broker.paxos.journal_truncation import JournalBounds
from tidelog.broker.paxos.replica import PaxosReplica
from tidelog.broker.paxos.roles import PaxosRoles
from tidelog.broker.paxos.voter_reconciler import VoterReconciler
from tidelog.broker.runtime.role_tasks import RoleTasks
from tidelog.config.schema import TopicConfig
from tidelog.controller.commands import Command, CommandAnswer
from tidelog.model.cluster import ClusterImage, PartitionInfo, PartitionMember
from tidelog.model.errors import LeaderNotAvailable
from tidelog.model.ids import NodeId, PartitionId
from tidelog.sim.kit.environment import SimClock

VALUES = 60


@dataclass
class Roles:
    """Of `PaxosRoles`, what a reconciler looks at."""

    holders: dict[PartitionId, PaxosReplica]
    infos: dict[PartitionId, PartitionInfo]


class NoController:
    """A `ControllerChannel` that leads nowhere."""

    async def submit(self, command: Command, answer: type[CommandAnswer], *, seconds_max: float) -> CommandAnswer:
        raise LeaderNotAvailable("there is no controller on this stage")


def reconciler_of(stage: Stage, node: int, wanted: tuple[int, ...]) -> VoterReconciler:
    """Of a leader that goes by these wishes of the controller's."""

    def image() -> ClusterImage:
        known = stage.image()
        return replace(known, brokers={one: replace(info, storage="") for one, info in known.brokers.items()})

    async def in_force(position: int) -> bool:
        return True

    site = stage.sites[node]
    members = {one: PartitionMember(one, one, "") for one in (*site.replica.voters.ids, *wanted)}
    info = replace(
        stage.image().topics["t"].partitions[0],
        members=tuple(members[one] for one in site.replica.voters.ids),
        wanted=tuple(members[one] for one in wanted),
    )
    context = SimpleNamespace(
        node_id=NodeId(node),
        own_epoch=lambda: 1,
        image=image,
        channel=NoController(),
        in_force=in_force,
        clock=SimClock(asyncio.get_running_loop()),
        tasks=RoleTasks(lambda: None),
    )
    roles = Roles({PARTITION: site.replica}, {PARTITION: info})
    return VoterReconciler(cast("ProtocolContext", context), cast("PaxosRoles", roles))


def test_a_leader_whose_own_log_lacks_what_was_agreed_on_removes_nobody_who_has_it() -> None:
    """It was added and named leader while it still copied: its own high watermark says nothing of what must be kept."""

    async def story(stage: Stage) -> None:
        stage.journal_bounds = JournalBounds(bytes_max=1 << 30, slots_max=20)
        for site in stage.sites.values():
            await site.crash()
        await stage.sites[1].boot()
        await stage.lead(1)
        for number in range(VALUES):
            assert isinstance(await stage.produce(1, b"v%d" % number), ProduceReceipt)
        first = stage.sites[1].replica.engine.node.replica
        await until(lambda: first.begin > 5)
        stage.asks_answered = False
        await stage.sites[2].boot()
        await stage.change(1, add=2)
        stage.elect(2)
        site = stage.sites[2]
        await until(lambda: site.replica.voting.is_settled)
        assert (site.replica.high_watermark, site.replica.agreed_end) == (0, VALUES)

        site.run(reconciler_of(stage, 2, wanted=(2,)).run())
        await asyncio.sleep(5.0)
        assert site.replica.voters.ids == (1, 2), "nobody else has what the journals have given up"
        stage.asks_answered = True
        await until(lambda: site.replica.voters.ids == (2,))
        await stage.sites[1].crash()
        await site.crash()
        await site.boot()
        await stage.lead(2)
        assert site.replica.high_watermark == VALUES

    play(story, replicas=1, spares=1)


def test_a_disk_that_has_forgotten_what_it_accepted_goes_before_those_whose_votes_count() -> None:
    """What it said of its log under its old id does not mean that it still votes."""

    async def story(stage: Stage) -> None:
        stage.config = TopicConfig(ack_durability="replicated")
        await stage.lead(3)
        site = stage.sites[3]
        for number in range(VALUES):
            assert isinstance(await stage.produce(3, b"v%d" % number), ProduceReceipt)
        await until(lambda: site.replica.durable_end_of(2) == VALUES)
        await stage.sites[2].crash(is_power_lost=False)
        await stage.sites[2].boot()
        assert stage.sites[2].replica.lost_engine_id == 2
        site.run(reconciler_of(stage, 3, wanted=(3,)).run())
        await until(lambda: site.replica.voters.ids != (1, 2, 3))
        assert site.replica.voters.ids == (1, 3)
        await until(lambda: site.replica.voting.is_settled)

    play(story)
