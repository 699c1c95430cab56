"""Tests of the choice of a connection for each frame of a Paxos partition, and of what several connections cost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import pytest

from tests.unit.broker.isr.stage import PARTITION, until
from tests.unit.broker.paxos.site import DELAY_S
from tests.unit.broker.paxos.stage import WIRE, Stage, play
from tidelog.broker.consensus.messages import PaxosFrame
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.broker.paxos.lanes import AVOIDED_S, LATE_S, UNANSWERED_MAX, Lanes
from tidelog.broker.paxos.messages import PartitionFrame
from tidelog.broker.runtime.stats import Stats
from tidelog.model.ports import Clock
from tidelog.replication.paxos.messages import LearnRequest, LearnResponse, Message, Reply, WriteRequest, WriteResponse
from tidelog.replication.paxos.state import Kind, Value
from tidelog.storage.slot_store import SlotPut

VALUES = 32
NUMBER = 1 << 16
OPEN = (1, 2, 3)
PutAll = Callable[[Sequence[SlotPut]], int]
TWO = 2


@dataclass
class ByHand(Clock):
    now_s: float = 0.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return 0


class Sender:
    """The lanes of one broker, with its clock."""

    def __init__(self) -> None:
        self.clock, self.stats = ByHand(), Stats()
        self.lanes = Lanes(self.clock, self.stats)

    def write(self, position: int, size: int = 0, open_lanes: tuple[int, ...] = OPEN) -> int:
        value = Value(Kind.APPEND, NUMBER, position, 1, b"digest")
        return self.lanes.choose(TWO, _frame(WriteRequest(NUMBER, position, value), size), open_lanes)

    def answer(self, position: int) -> int:
        return self.lanes.choose(TWO, _frame(WriteResponse(Reply.ACCEPT, NUMBER, position)), OPEN)

    def answered(self, position: int) -> None:
        self.lanes.answered(TWO, _frame(WriteResponse(Reply.ACCEPT, NUMBER, position)))


def _frame(message: Message, size: int = 0) -> PartitionFrame:
    return PartitionFrame(PARTITION.topic_id, PARTITION.partition, PaxosFrame(1, TWO, message, (size,) if size else ()))


def test_a_value_goes_by_the_lane_that_is_least_busy() -> None:
    sender = Sender()
    assert [sender.write(0), sender.write(1), sender.write(2, size=100_000), sender.write(3)] == [1, 2, 3, 1]
    sender.answered(1)
    assert [sender.write(4), sender.write(5), sender.write(6)] == [2, 2, 1], "100 KB are busier than two small values"


def test_values_one_after_the_other_stay_on_one_lane() -> None:
    sender = Sender()
    for position in range(5):
        assert sender.write(position) == 1
        sender.answered(position)


def test_only_open_lanes_are_chosen() -> None:
    sender = Sender()
    assert [sender.write(0), sender.write(1, open_lanes=(1, 3)), sender.write(2, open_lanes=(3,))] == [1, 3, 3]


def test_a_late_value_is_sent_again_by_another_lane_and_its_own_is_avoided_for_a_while() -> None:
    sender = Sender()
    assert sender.write(0) == 1
    sender.clock.now_s += LATE_S
    assert sender.write(0) == 2
    assert sender.stats.paxos_late_frames == 1
    sender.answered(0)
    for position in range(1, 7):
        assert sender.write(position) in (2, 3)
    sender.clock.now_s += AVOIDED_S
    assert sender.write(7) == 1
    assert sender.write(8, open_lanes=(1,)) == 1


def test_an_avoided_lane_is_better_than_none() -> None:
    sender = Sender()
    for lane in (1, 2, 3):
        assert sender.write(0, open_lanes=(lane,)) == lane
        sender.clock.now_s += LATE_S
    assert sender.write(0) in OPEN


def test_what_is_repeated_at_once_makes_no_lane_late() -> None:
    sender = Sender()
    assert [sender.write(0), sender.write(0), sender.write(1)] == [1, 1, 2]
    assert sender.stats.paxos_late_frames == 0


def test_answers_are_spread_evenly_and_a_late_one_is_known_by_its_write_that_comes_again() -> None:
    sender = Sender()
    assert [sender.answer(position) for position in range(6)] == [1, 2, 3, 1, 2, 3]
    sender.clock.now_s += LATE_S
    assert sender.answer(1) != 2
    assert 2 not in [sender.answer(position) for position in range(6, 12)]


def test_other_frames_go_by_the_least_busy_lane_and_make_none_busy() -> None:
    sender = Sender()
    sender.write(0)
    assert [sender.lanes.choose(TWO, _frame(LearnRequest(0)), OPEN) for _ in range(3)] == [2, 2, 2]


def test_what_is_remembered_is_bounded() -> None:
    sender = Sender()
    for position in range(3 * UNANSWERED_MAX):
        sender.write(position)
    assert len(sender.lanes._sent) == UNANSWERED_MAX
    assert sender.lanes._bytes.total() == sum(sent.size for sent in sender.lanes._sent.values())


# -- replicas with lanes between them ----------------------------------------------------------------------------------


async def produce(stage: Stage, values: int = VALUES) -> None:
    receipts = await asyncio.gather(*(stage.produce(1, b"v%d" % number) for number in range(values)))
    assert all(isinstance(receipt, ProduceReceipt) for receipt in receipts)


def work(lanes: int, at_once: int) -> list[int]:
    """Frames, fsyncs and writes of an orderly stream of values, of all three replicas."""
    counted = list[int]()

    async def story(stage: Stage) -> None:
        stage.is_orderly, stage.lanes = True, lanes
        await stage.restart()
        await stage.lead(1)
        await stage.quiet()
        sites = stage.sites.values()

        def count() -> list[int]:
            operations = [site.disk.medium.statistics.operations for site in sites]
            frames = sum(site.stats.paxos_frames for site in sites)
            return [frames, *(sum(of[kind] for of in operations) for kind in ("sync", "write"))]

        before = count()
        for _ in range(0, 4 * VALUES, at_once):
            await produce(stage, at_once)
        await stage.quiet()
        counted.extend(now - then for now, then in zip(count(), before, strict=True))

    play(story)
    return counted


def test_values_one_by_one_cost_the_same_with_several_lanes() -> None:
    assert work(4, at_once=1)[:2] == work(1, at_once=1)[:2]


def test_values_in_flight_together_cost_no_more_with_several_lanes() -> None:
    of_four, of_one = work(4, at_once=VALUES), work(1, at_once=VALUES)
    assert all(cost <= cost_of_one for cost, cost_of_one in zip(of_four, of_one, strict=True))


def test_writes_that_arrive_together_are_written_in_the_order_of_their_positions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(stage: Stage) -> None:
        stage.is_orderly, stage.lanes = True, 4
        await stage.restart()
        await stage.lead(1)
        await stage.quiet()
        arrived = list[tuple[PartitionFrame, bytes]]()

        def hold(sender: int, to: int, message: bytes, payload: bytes, lane: int) -> None:
            frame = WIRE.decode(message)
            if to == 2 and isinstance(frame, PartitionFrame) and isinstance(frame.frame.message, WriteRequest):
                arrived.append((frame, payload))
            else:
                carry(sender, to, message, payload, lane)

        carry, stage.carry = stage.carry, hold  # type: ignore[method-assign]  # the stage has no hook
        await produce(stage)
        site, puts = stage.sites[2], list[list[int]]()
        store = site.replica._files.store

        def put_all(run: Sequence[SlotPut], put_all: PutAll = store.put_all) -> int:
            puts.append([put.position for put in run])
            return put_all(run)

        def take_all() -> None:
            for frame, data in reversed(arrived):
                site.service.take_frame(1, frame, memoryview(data))

        monkeypatch.setattr(store, "put_all", put_all)
        site.act(take_all)
        await until(lambda: bool(puts))
        accepted = [position for put in puts for position in put]
        assert len(arrived) > 3
        positions = {frame.frame.message.position for frame, _ in arrived}  # type: ignore[union-attr]  # writes only
        assert accepted[-len(positions) :] == sorted(positions)

    play(story)


@pytest.mark.parametrize("stalled", [(1, 2), (2, 1)], ids=["writes", "answers"])
def test_a_lane_that_stalls_holds_nothing_up_for_long(stalled: tuple[int, int]) -> None:
    """A lane of four stalls, on the only way to a majority."""

    async def story(stage: Stage) -> None:
        stage.is_orderly, stage.lanes = True, 4
        await stage.restart()
        await stage.lead(1)
        await stage.quiet()
        await stage.sites[3].crash()
        stage.delay_s = lambda sender, to, lane: 60.0 if (sender, to, lane) == (*stalled, 1) else DELAY_S
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        for _ in range(20):
            await produce(stage)
        assert loop.time() - begun_s < 1.0
        assert stage.sites[stalled[0]].stats.paxos_late_frames > 0

    play(story)


def test_notices_that_overtake_their_values_cost_no_catching_up() -> None:
    async def story(stage: Stage) -> None:
        stage.is_orderly, stage.lanes = True, 4
        await stage.restart()
        await stage.lead(1)
        await stage.quiet()
        asked = list[int]()

        def note(sender: int, to: int, message: msgspec.Struct) -> bool:
            if isinstance(message, PartitionFrame) and isinstance(message.frame.message, LearnResponse):
                asked.extend(slot.position for slot in message.frame.message.slots)
            return True

        stage.on_frame = note
        stage.delay_s = lambda sender, to, lane: 0.05 if (to, lane) == (2, 1) else DELAY_S
        await produce(stage)
        await stage.quiet()
        assert asked == []

    play(story)


def late(lanes: int, values: int = 400) -> tuple[float, float]:
    """Values per second, and seconds within which 99 of 100 are acknowledged, where each frame between brokers is 50 ms
    late with a chance of 5 %, and holds up those behind it on its lane."""
    figures = list[float]()

    async def story(stage: Stage) -> None:
        stage.is_orderly, stage.lanes = True, lanes
        await stage.restart()
        await stage.lead(1)
        await stage.quiet()
        rng, loop = random.Random(5), asyncio.get_running_loop()

        def delay_s(sender: int, to: int, lane: int) -> float:
            held_up_s = stage.arrives_s.get((sender, to, lane), 0.0) - loop.time()
            return max(held_up_s, DELAY_S / 4) + (0.05 if rng.random() < 0.05 else 0.0)

        stage.delay_s = delay_s
        begun_s, waits_s = loop.time(), list[float]()

        async def client() -> None:
            while len(waits_s) < values:
                asked_s = loop.time()
                assert isinstance(await stage.produce(1, bytes(1_000)), ProduceReceipt)
                waits_s.append(loop.time() - asked_s)

        await asyncio.gather(*(client() for _ in range(32)))
        figures.extend((len(waits_s) / (loop.time() - begun_s), sorted(waits_s)[len(waits_s) * 99 // 100]))

    play(story)
    return figures[0], figures[1]


def test_lanes_more_than_double_the_throughput_and_halve_the_latency_where_frames_are_late() -> None:
    (of_one, wait_of_one_s), (of_eight, wait_of_eight_s) = late(1), late(8)
    assert of_eight > 2 * of_one
    assert wait_of_eight_s < wait_of_one_s / 2
