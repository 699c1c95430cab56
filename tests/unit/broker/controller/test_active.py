"""The active controller at work, over a metadata log in memory and in simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import pytest

from tests.unit.controller.cluster import newest, registration, topic_id, voter
from tidelog.broker.controller import active
from tidelog.broker.controller.active import COMMANDS_MAX, ActiveController
from tidelog.broker.controller.applied_positions import APPLIED_S_MAX
from tidelog.config.schema import BrokerConfig
from tidelog.controller.apply import apply_all, with_voters
from tidelog.controller.commands import (
    AllocateProducerIds,
    BrokerAdmitted,
    BrokerHeartbeat,
    Command,
    CreateTopic,
    DeleteTopic,
    HeartbeatAnswered,
    MetadataApplied,
    NewTopic,
    ProducerIdBlock,
    SpokenLevels,
    TopicPlaced,
)
from tidelog.controller.decide import decide
from tidelog.controller.partition_commands import AlterPartition, IsrAsked, IsrMember
from tidelog.controller.records import (
    MetadataRecord,
    SnapshotAgreed,
    SnapshotTaken,
)
from tidelog.model.cluster import ClusterImage, Voter
from tidelog.model.errors import (
    ControllerLost,
    ImplausibleNumber,
    InvalidRequest,
    NotController,
    Overloaded,
    StaleBrokerEpoch,
    TidelogError,
)
from tidelog.model.ids import NodeId
from tidelog.model.levels import SPOKEN_LEVELS
from tidelog.sim.kit.loop import run

CONFIG = BrokerConfig.model_validate({"metadata.log.snapshot.records": 100})
APPEND_S = 0.01


class MemoryLog:
    """Agrees on everything after a moment, unless told to fail."""

    def __init__(self) -> None:
        self.image = with_voters(ClusterImage(""), [voter(1)], 2)
        self.appends: list[list[MetadataRecord]] = []
        self.failure: TidelogError | None = None
        self.is_stuck = False
        self.resigned = 0

    async def append(self, records: Sequence[MetadataRecord]) -> int:
        await asyncio.sleep(APPEND_S)
        while self.is_stuck:
            await asyncio.sleep(APPEND_S)
        if self.failure is not None:
            raise self.failure
        offset = self.image.position
        self.appends.append([*records])
        self.image = apply_all(self.image, records, offset)
        return offset

    async def change_voters(self, *, add: Voter | None = None, remove: int | None = None) -> None:
        voters = [one for one in self.image.voters if one.voter_id != remove]
        voters = [*voters, add] if add is not None else voters
        self.image = with_voters(self.image, voters, max(one.voter_id + 1 for one in voters))

    has_lease = True
    alone_s = 0.0

    def resign(self) -> None:
        self.resigned += 1


class Bench:
    def __init__(self, config: BrokerConfig = CONFIG) -> None:
        self.log = MemoryLog()
        spoken = [SpokenLevels(1, "life 1", SPOKEN_LEVELS)]
        self.controller = ActiveController(NodeId(1), self.log, lambda: self.log.image, config, lambda: spoken)

    async def lead(self, epoch: int = 1 << 16) -> None:
        self.controller.on_elected(epoch, "c1")
        while not self.controller.is_active:
            await asyncio.sleep(APPEND_S)

    async def register(self, *nodes: int) -> None:
        for node in nodes:
            answer = await self.controller.handle(registration(node))
            assert isinstance(answer, BrokerAdmitted)
            await self.heartbeat(node)

    async def heartbeat(self, node: int, position: int | None = None, snapshot: str = "") -> HeartbeatAnswered:
        image = self.log.image
        at = image.position if position is None else position
        epoch = image.brokers[NodeId(node)].epoch
        told = BrokerHeartbeat(node, epoch, at, False, image.snapshot_position if snapshot else 0, snapshot)
        answer = await self.controller.handle(told)
        assert isinstance(answer, HeartbeatAnswered)
        return answer

    async def live(self, nodes: Sequence[int], seconds: float, snapshot: str = "") -> None:
        """These brokers send heartbeats for a while."""
        until = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < until:
            for node in nodes:
                await self.heartbeat(node, snapshot=snapshot)
            await asyncio.sleep(1)


def on_bench(story: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        bench = Bench()
        task = asyncio.get_running_loop().create_task(bench.controller.run())
        try:
            await story(bench)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()

    run(main)


def create(name: str, replicas: int = 1) -> CreateTopic:
    return CreateTopic(NewTopic(name, 1, replicas), topic_id(name))


def test_who_does_not_lead_refuses() -> None:
    async def story(bench: Bench) -> None:
        with pytest.raises(NotController):
            await bench.controller.handle(AllocateProducerIds())
        assert bench.log.appends == []

    on_bench(story)


def test_a_term_begins_with_its_own_record_and_commands_wait_for_it() -> None:
    async def story(bench: Bench) -> None:
        bench.controller.on_elected(70_000, "c1")
        answer = await bench.controller.handle(AllocateProducerIds())
        assert isinstance(answer, ProducerIdBlock)
        image = bench.log.image
        assert (image.cluster_id, image.controller_id, image.controller_epoch) == ("c1", 1, 70_000)
        assert [len(records) for records in bench.log.appends] == [2, 1]

    on_bench(story)


def test_commands_that_come_together_are_one_append_and_see_each_other() -> None:
    async def story(bench: Bench) -> None:
        await bench.lead()
        await bench.register(1)
        appends = len(bench.log.appends)
        commands: list[Command] = [create("a"), create("a"), DeleteTopic("a"), create("b"), AllocateProducerIds()]
        commands.append(CreateTopic(NewTopic("b"), "ff" * 16))
        answers = await asyncio.gather(*map(bench.controller.handle, commands), return_exceptions=True)
        assert len(bench.log.appends) == appends + 1
        assert isinstance(answers[0], TopicPlaced)
        assert answers[0] == answers[1]
        assert isinstance(answers[-1], InvalidRequest)
        assert list(bench.log.image.topics) == ["b"]

    on_bench(story)


def test_silence_fences_a_broker_after_its_session_and_a_heartbeat_brings_it_back() -> None:
    async def story(bench: Bench) -> None:
        await bench.lead()
        await bench.register(1, 2)
        await bench.live([1], 8.5)
        assert bench.log.image.is_live(2)
        await bench.live([1], 1.5)
        assert not bench.log.image.is_live(2)
        assert not (await bench.heartbeat(2)).is_fenced

    on_bench(story)


def test_a_process_that_has_surely_ended_is_fenced_at_once() -> None:
    async def story(bench: Bench) -> None:
        await bench.lead()
        await bench.register(1, 2)
        bench.controller.on_peer_down(2)
        await asyncio.sleep(APPEND_S * 3)
        assert not bench.log.image.is_live(2)

    on_bench(story)


def test_the_end_of_a_controller_is_noticed_before_there_is_another() -> None:
    async def story(bench: Bench) -> None:
        await bench.lead()
        await bench.register(1, 2, 3)
        bench.controller.on_lost()
        bench.controller.on_peer_down(2)
        bench.controller.on_peer_down(3)
        again = registration(3, process="q", replaces=newest(bench.log.image, 3))
        await bench.log.append(decide(bench.log.image, again, CONFIG).records)
        await bench.lead(1 << 17)
        await bench.heartbeat(3)
        assert [broker.node_id for broker in bench.log.image.live_brokers] == [1, 3]

    on_bench(story)


def test_heartbeats_do_not_wait_behind_a_stuck_append_unless_they_change_something() -> None:
    async def story(bench: Bench) -> None:
        await bench.lead()
        await bench.register(1)
        bench.log.is_stuck = True
        waiting = asyncio.ensure_future(bench.controller.handle(AllocateProducerIds()))
        await asyncio.sleep(1)
        before = asyncio.get_running_loop().time()
        assert not (await bench.heartbeat(1)).is_fenced
        assert asyncio.get_running_loop().time() == before
        bench.log.is_stuck = False
        assert isinstance(await waiting, ProducerIdBlock)

    on_bench(story)


def test_partitions_go_back_to_their_preferred_leader_at_the_next_look() -> None:
    async def story(bench: Bench) -> None:
        await bench.lead()
        await bench.register(1, 2)
        creating = asyncio.get_running_loop().create_task(bench.controller.handle(create("t", 2)))
        await bench.live([1, 2], 2)
        await creating
        first, second = bench.log.image.topics["t"].partitions[0].replicas
        await bench.live([second], 12)
        await bench.heartbeat(first)
        info = bench.log.image.topics["t"].partitions[0]
        assert (info.leader, info.isr) == (second, (second,))
        brokers = bench.log.image.brokers
        isr = [IsrMember(node, brokers[node].epoch) for node in (first, second)]
        asked = IsrAsked(topic_id("t"), 0, info.leader_epoch, info.partition_epoch, isr)
        await bench.controller.handle(AlterPartition(second, brokers[second].epoch, [asked]))
        await bench.live([1, 2], CONFIG.leader_imbalance_check_interval_seconds - 30)
        assert bench.log.image.topics["t"].partitions[0].leader == second
        await bench.live([1, 2], 30)
        assert bench.log.image.topics["t"].partitions[0].leader == first

    on_bench(story)


def test_a_broker_that_is_being_fenced_is_not_told_that_it_lives() -> None:
    """An answered heartbeat would let the broker serve as a leader, beside the one that the fence elects."""

    async def story(bench: Bench) -> None:
        await bench.lead()
        await bench.register(1, 2)
        await bench.controller.handle(create("t", 2))
        led = bench.log.image.topics["t"].partitions[0].leader
        (other,) = {1, 2} - {int(led)}
        bench.log.is_stuck = True
        await bench.live([other], CONFIG.broker_session_timeout_ms / 1000 + 0.5)
        late = asyncio.create_task(bench.heartbeat(int(led)))
        await asyncio.sleep(1)
        assert not late.done(), "the fence is on its way"
        bench.log.is_stuck = False
        answer = await late
        assert bench.log.image.topics["t"].partitions[0].leader == other
        assert not answer.is_fenced and answer.position == bench.log.image.position

    on_bench(story)


def test_a_heartbeats_answer_asks_to_know_what_was_taken_from_the_broker_and_nothing_else() -> None:
    async def story(bench: Bench) -> None:
        await bench.lead()
        await bench.register(1, 2)
        begun = (await bench.heartbeat(2)).position
        await asyncio.gather(bench.live([1, 2], 2.0), *(bench.controller.handle(create(f"t{n}", 2)) for n in range(3)))
        assert (await bench.heartbeat(2)).position == begun < bench.log.image.position
        bench.controller.on_peer_down(2)
        await asyncio.sleep(0.1)
        assert not bench.log.image.is_live(NodeId(2))
        fenced = bench.log.image.position
        await bench.heartbeat(2)
        await asyncio.gather(bench.live([1, 2], 2.0), bench.controller.handle(create("later", 2)))
        assert (await bench.heartbeat(2)).position == fenced < bench.log.image.position
        assert (await bench.heartbeat(1)).position == begun

    on_bench(story)


def test_clocks_are_compared_whenever_they_were_told() -> None:
    async def story(bench: Bench) -> None:
        await bench.lead()
        await bench.register(1, 2, 3)
        offsets = []
        for round_number in range(2):
            for node, ahead_ms in ((1, 0), (2, 20), (3, 3_600_000)):
                await asyncio.sleep(0.3)
                wall_ms = 10**12 + int(asyncio.get_running_loop().time() * 1000) + ahead_ms
                epoch = bench.log.image.brokers[NodeId(node)].epoch
                answer = await bench.controller.handle(BrokerHeartbeat(node, epoch, 0, wall_ms=wall_ms))
                assert isinstance(answer, HeartbeatAnswered)
                offsets += [answer.clock_offset_ms] if round_number else []
        assert offsets == pytest.approx([-20, 0, 3_599_980], abs=1)

    on_bench(story)


@pytest.mark.parametrize("field", ["position", "snapshot_position", "stamp"])
def test_a_broker_is_not_believed_to_have_come_where_nobody_can_be(field: str) -> None:
    async def story(bench: Bench) -> None:
        await bench.lead()
        await bench.register(1)
        await bench.heartbeat(1)
        epoch = bench.log.image.brokers[NodeId(1)].epoch
        told = BrokerHeartbeat(1, epoch, bench.log.image.position)
        with pytest.raises(ImplausibleNumber):
            await bench.controller.handle(msgspec.structs.replace(told, **{field: 2**40}))
        with pytest.raises(ImplausibleNumber):
            bench.controller.noted(MetadataApplied(1, epoch, 2**40))
        before = bench.log.image
        await bench.heartbeat(1)
        assert bench.log.image is before

    on_bench(story)


def test_an_old_process_hears_that_it_is_one() -> None:
    async def story(bench: Bench) -> None:
        await bench.lead()
        await bench.register(1)
        old = bench.log.image.brokers[NodeId(1)].epoch
        await bench.controller.handle(registration(1, process="q", replaces=old))
        with pytest.raises(StaleBrokerEpoch):
            await bench.controller.handle(BrokerHeartbeat(1, old, 100))

    on_bench(story)


def test_a_topic_is_answered_when_every_live_broker_has_applied_it() -> None:
    async def story(bench: Bench) -> None:
        await bench.lead()
        await bench.register(1, 2)
        asked = asyncio.ensure_future(bench.controller.handle(create("t")))
        await asyncio.sleep(1)
        assert not asked.done()
        epoch = bench.log.image.brokers[NodeId(2)].epoch
        await bench.controller.handle(MetadataApplied(2, epoch, bench.log.image.position))
        await asyncio.sleep(0.001)
        assert asked.done()
        await asked

    on_bench(story)


def test_a_broker_that_does_not_come_along_holds_answers_up_for_five_seconds_at_most() -> None:
    async def story(bench: Bench) -> None:
        await bench.lead()
        await bench.register(1, 2)
        began = asyncio.get_running_loop().time()
        await bench.controller.handle(create("t"))
        assert APPLIED_S_MAX <= asyncio.get_running_loop().time() - began < APPLIED_S_MAX + 1
        bench.controller.on_peer_down(2)
        await asyncio.sleep(1)
        began = asyncio.get_running_loop().time()
        await bench.controller.handle(create("u"))
        assert asyncio.get_running_loop().time() - began < 1

    on_bench(story)


def test_losing_the_term_answers_whoever_waits() -> None:
    async def story(bench: Bench) -> None:
        await bench.lead()
        await bench.register(1)
        bench.log.is_stuck = True
        begun = asyncio.ensure_future(bench.controller.handle(AllocateProducerIds()))
        await asyncio.sleep(0.1)
        queued = asyncio.ensure_future(bench.controller.handle(AllocateProducerIds()))
        await asyncio.sleep(0.1)
        bench.controller.on_lost()
        bench.log.failure = ControllerLost("gone")
        bench.log.is_stuck = False
        with pytest.raises(NotController):
            await queued
        with pytest.raises(ControllerLost):
            await begun
        assert (bench.controller.is_active, bench.log.resigned) == (False, 0)

    on_bench(story)


def test_an_unknown_outcome_ends_the_term_and_a_refusal_does_not() -> None:
    async def story(bench: Bench) -> None:
        await bench.lead()
        bench.log.failure = NotController("the voters are changing")
        with pytest.raises(NotController):
            await bench.controller.handle(AllocateProducerIds())
        assert bench.controller.is_active
        bench.log.failure = ControllerLost("nobody knows")
        with pytest.raises(ControllerLost):
            await bench.controller.handle(AllocateProducerIds())
        assert (bench.controller.is_active, bench.log.resigned) == (False, 1)
        bench.log.failure = None
        await bench.lead(1 << 17)
        assert isinstance(await bench.controller.handle(AllocateProducerIds()), ProducerIdBlock)

    on_bench(story)


def test_what_was_refused_for_something_that_has_not_happened_was_not_refused() -> None:
    async def story(bench: Bench) -> None:
        await bench.lead()
        await bench.register(1)
        bench.log.failure = NotController("not now")
        commands = [create("t"), CreateTopic(NewTopic("t"), "ff" * 16)]
        answers = await asyncio.gather(*map(bench.controller.handle, commands), return_exceptions=True)
        assert [type(answer) for answer in answers] == [NotController, NotController]

    on_bench(story)


def test_a_command_that_is_not_begun_in_time_is_surely_not_done_and_one_that_is_begun_may_be() -> None:
    async def story(bench: Bench) -> None:
        await bench.lead()
        bench.log.is_stuck = True
        begun = asyncio.ensure_future(bench.controller.handle(AllocateProducerIds(), seconds_max=3))
        await asyncio.sleep(0.1)
        with pytest.raises(Overloaded):
            await bench.controller.handle(AllocateProducerIds(), seconds_max=1)
        with pytest.raises(ControllerLost):
            await begun
        bench.log.is_stuck = False
        await bench.controller.handle(AllocateProducerIds())
        assert bench.log.image.next_producer_id == 2_000

    on_bench(story)


def test_commands_are_bounded() -> None:
    async def story(bench: Bench) -> None:
        await bench.lead()
        bench.log.is_stuck = True
        waiting = [asyncio.ensure_future(bench.controller.handle(AllocateProducerIds())) for _ in range(COMMANDS_MAX)]
        await asyncio.sleep(0.1)
        with pytest.raises(Overloaded):
            await bench.controller.handle(AllocateProducerIds())
        bench.log.is_stuck = False
        assert len(await asyncio.gather(*waiting)) == COMMANDS_MAX

    on_bench(story)


def test_snapshots_are_taken_alone_and_agreed_when_the_voters_report_them() -> None:
    async def story(bench: Bench) -> None:
        await bench.lead()
        await bench.register(1)
        for _ in range(100):
            await bench.controller.handle(AllocateProducerIds())
        await bench.live([1], 2)
        assert [SnapshotTaken()] in bench.log.appends
        await bench.live([1], 2, snapshot="0f" * 16)
        position = bench.log.image.snapshot_position
        assert [SnapshotAgreed(position, "0f" * 16)] in bench.log.appends
        assert bench.log.image.snapshot_agreed == position

    on_bench(story)


def test_three_brokers_come_to_vote() -> None:
    async def story(bench: Bench) -> None:
        await bench.lead()
        await bench.register(1, 2, 3)
        await bench.live([1, 2, 3], 5)
        assert [(one.voter_id, one.node_id) for one in bench.log.image.voters] == [(1, 1), (2, 2), (3, 3)]

    on_bench(story)


def test_a_timer_that_fires_a_moment_early_is_a_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Event loops count in milliseconds. A tick that is not taken then would be waited for without a pause."""
    waits: list[float | None] = []

    def early(until_s: float | None) -> asyncio.Timeout:
        waits.append(until_s)
        assert len(waits) < 1000
        return asyncio.timeout(None if until_s is None else until_s - asyncio.get_running_loop().time() - 0.0004)

    monkeypatch.setattr(active, "timeout_at", early)

    async def story(bench: Bench) -> None:
        await bench.lead()
        waits.clear()
        await asyncio.sleep(5)
        assert 40 <= len(waits) <= 80

    on_bench(story)
