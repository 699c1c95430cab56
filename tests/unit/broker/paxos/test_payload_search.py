"""A voter that has lost what it accepted, and does not know it to be chosen, asks all others for the payload: one that
has no vote any more may hold it in its log, and then an election waits for nobody."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tests.unit.broker.isr.stage import PARTITION, until
from tests.unit.broker.paxos.site import Site
from tests.unit.broker.paxos.stage import Stage, play
from tests.unit.broker.paxos.test_comparison import lose_journal_end
from tests.unit.broker.paxos.test_damage import write
from tests.unit.broker.paxos.test_journal_copies import begin, positions
from tests.unit.broker.paxos.test_lost_values import JOURNAL
from tidelog.broker.consensus.engine import Engine
from tidelog.broker.consensus.payloads import digest_of
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.broker.paxos import applied_log
from tidelog.broker.paxos.applied_log import payload_in
from tidelog.broker.paxos.context import PartitionContext
from tidelog.broker.paxos.links import Links
from tidelog.broker.paxos.messages import PartitionFrame, ReadValue, ValueRead
from tidelog.broker.paxos.payload_search import ANSWER_S_MAX, PAUSE_S, PAUSE_S_MAX, VALUES_AT_ONCE, PayloadSearch
from tidelog.broker.paxos.service import PaxosService
from tidelog.model.errors import InvalidRequest, NotFound, TidelogError
from tidelog.model.ports import Buffer
from tidelog.replication.paxos.messages import Learned, LearnResponse
from tidelog.replication.paxos.state import Kind, Slot, Value
from tidelog.sim.kit.environment import SimEntropy
from tidelog.sim.kit.loop import run
from tidelog.sim.kit.seeds import stream
from tidelog.transport.peer import Answer

PAYLOAD = b"what was accepted"


def tells_of_nothing_chosen(message: msgspec.Struct) -> bool:
    assert isinstance(message, PartitionFrame)
    frame = message.frame
    return not frame.notices and not isinstance(frame.message, Learned | LearnResponse)


async def lose(stage: Stage, *, is_in_log: bool = True, is_end: bool = True) -> int:
    """Has brokers 1 and 3 choose a value that 2 never hears of, and that 3 alone knows to be chosen, and applies. The
    journal of 1 loses its payload then, and 3 the end of its journal, or all of it. Returns the position."""
    await stage.lead(3)
    await write(stage, 3, 10)
    await stage.quiet()
    stage.on_frame = lambda sender, to, said: (
        not isinstance(said, PartitionFrame)
        or {sender, to} == {3, 4}
        or ({sender, to} == {1, 3} and tells_of_nothing_chosen(said))
    )
    assert isinstance(await stage.produce(3, b"the last"), ProduceReceipt)
    first, second, third, *learners = stage.sites.values()
    position = max(first.replica.engine.node.replica.slots)
    assert not first.replica.engine.node.replica.slots[position].learned
    assert position not in second.replica.engine.node.replica.slots
    await until(lambda: all(site.replica.log.durable_offset == 11 for site in (third, *learners)))
    assert first.harm_journal(position)
    if not is_in_log:
        third.harm_log(10)
    if is_end:
        lose_journal_end(third, position)
    for site in stage.sites.values():
        await site.crash(is_power_lost=False)
    if not is_end:
        third.disk.remove_tree(JOURNAL)
    stage.on_frame = lambda sender, to, said: True
    return position


def slot_of(site: Site, position: int) -> Slot:
    return site.replica.engine.node.replica.slots[position]


def is_searching(site: Site) -> bool:
    task = site.replica._search._task
    return task is not None and not task.done()


@pytest.mark.parametrize("is_end", [True, False], ids=["hidden", "shown"])
@pytest.mark.parametrize("candidate", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_an_election_gets_what_it_waits_for_from_the_log_of_one_that_has_no_vote(
    seed: int, candidate: int, *, is_end: bool
) -> None:
    """Who campaigns may have nothing there: then it is the other voter that asks."""

    async def story(stage: Stage) -> None:
        await lose(stage, is_end=is_end)
        await stage.boot()
        assert stage.sites[3].replica.lost_engine_id == 3
        assert stage.sites[3].replica.high_watermark == (10 if is_end else 11)
        stage.elect(candidate)
        site = stage.sites[candidate]
        await until(lambda: site.replica.leader is not None and site.replica.leader.is_serving)
        await write(stage, candidate, 3)
        await stage.quiet()
        assert all(one.content() == site.content() for one in stage.sites.values())
        assert site.content().count(b"the last") == 1 and site.replica.high_watermark == 14
        await until(lambda: not any(is_searching(one) for one in stage.sites.values()))

    play(story, seed)


def test_an_election_gets_what_it_waits_for_from_a_replica_that_never_voted() -> None:
    """Broker 3 is down meanwhile. What its journal had learned the other would tell unasked: it is lost."""

    async def story(stage: Stage) -> None:
        await lose(stage)
        stage.sites[4].disk.remove_tree(JOURNAL)
        for node in (1, 2, 4):
            await stage.sites[node].boot()
        leader = await stage.lead(2)
        assert leader.high_watermark == 11
        await stage.quiet([1, 2, 4])
        assert stage.sites[2].content() == stage.sites[1].content() == stage.sites[4].content()

    play(story, spares=1)


def test_damage_that_is_found_as_a_promise_is_read_is_searched_for_as_well() -> None:
    async def story(stage: Stage) -> None:
        position = await lose(stage)
        await stage.boot()
        first = stage.sites[1]
        await until(lambda: not slot_of(first, position).faulty)
        first.replica.engine.payloads.clear()
        await asyncio.sleep(0.5)
        assert first.harm_journal(position) and not is_searching(first)
        stage.elect(2)
        second = stage.sites[2]
        await until(lambda: second.replica.leader is not None and second.replica.leader.is_serving)
        assert second.content().count(b"the last") == 1

    play(story)


def test_what_has_another_digest_is_no_copy() -> None:
    async def story(stage: Stage) -> None:
        position = await lose(stage)
        stage.asks_answered = False
        await stage.boot()
        first, second, third = stage.sites.values()
        read = third.service.read_value

        async def turned(request: ReadValue) -> Answer:
            answer = await read(request)
            body = bytearray(b"".join(answer.payload))
            body[-1] ^= 1
            return Answer(answer.message, (bytes(body),))

        third.service.read_value = turned  # type: ignore[method-assign]  # for this story
        stage.asks_answered = True
        stage.elect(2)
        await asyncio.sleep(10)
        assert slot_of(first, position).faulty and is_searching(first)
        assert not second.replica.is_elected
        third.service.read_value = read  # type: ignore[method-assign]  # as above
        await until(lambda: second.replica.is_elected)

    play(story)


def test_while_nobody_has_a_copy_the_election_waits_and_a_close_ends_the_search() -> None:
    async def story(stage: Stage) -> None:
        position = await lose(stage, is_in_log=False)
        await stage.boot()
        first, second, third = stage.sites.values()
        asked: list[ReadValue] = []
        read = third.service.read_value

        async def note(question: ReadValue) -> Answer:
            asked.append(question)
            return await read(question)

        third.service.read_value = note  # type: ignore[method-assign, assignment]  # for this story
        stage.elect(2)
        await asyncio.sleep(10)
        assert not second.replica.is_elected and slot_of(first, position).faulty
        assert 10 / (2 * PAUSE_S_MAX) - 2 <= len(asked) <= 10 / PAUSE_S_MAX + 4, (
            "neither given up nor asked all the time"
        )
        assert not is_searching(second) and not is_searching(third)
        replica = first.replica
        await first.stop()
        assert replica._search._task is not None and replica._search._task.done()

    play(story)


def test_nothing_is_asked_where_nothing_is_lost() -> None:
    async def story(stage: Stage) -> None:
        await begin(stage)
        await stage.restart()
        await stage.lead(2)
        await write(stage, 2, 3)
        await stage.quiet()
        assert [site.replica._search._task for site in stage.sites.values()] == [None] * 3

    play(story)


# -- who is asked ----------------------------------------------------------------------------------------------------


def test_a_copy_is_read_from_journal_and_log_and_whatever_else_stands_there_is_left_alone() -> None:
    async def story(stage: Stage) -> None:
        before = await begin(stage)
        third = stage.sites[3]
        core = third.replica.engine.node.replica
        position = positions(third)[4]
        value = core.slots[position].value

        async def read(at: int, wanted: Value) -> bytes:
            answer = await third.service.read_value(ReadValue(PARTITION.topic_id, 0, at, wanted))
            assert answer.message == ValueRead(bool(answer.payload))
            return b"".join(bytes(part) for part in answer.payload)

        copy = await read(position, value)
        assert copy and copy in before
        assert await read(position + 1, value) == copy, "from the log, which has it as another position"
        assert not core.slots[position + 1].faulty
        assert third.harm_journal(position)
        assert await read(position, value) == copy and not core.slots[position].faulty
        third.replica.engine.payloads.clear()
        assert await read(position, msgspec.structs.replace(value, digest=b"?" * 16)) == b""
        assert await read(1 << 40, msgspec.structs.replace(value, base_offset=1 << 40)) == b""
        assert await read(position, msgspec.structs.replace(value, kind=Kind.VOTERS, digest=b"?" * 16)) == b""
        assert not any(slot.faulty for slot in core.slots.values())

    play(story)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"topic_id": "another"}, NotFound),
        ({"partition": 7}, NotFound),
        ({"era": 1}, NotFound),
        ({"value": Value(Kind.NOP)}, InvalidRequest),
        ({"value": Value(Kind.DELETE, digest=b"d" * 16)}, InvalidRequest),
        ({"value": Value(Kind.APPEND, 1, 0, 1)}, InvalidRequest),
        ({"value": Value(Kind.APPEND, 1, 0, 1, b"d" * 15)}, InvalidRequest),
        ({"value": Value(Kind.APPEND, 1, -1, 1, b"d" * 16)}, InvalidRequest),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(changes: dict[str, Any], error: type[TidelogError]) -> None:
    async def story(stage: Stage) -> None:
        await begin(stage, 1)
        replica = stage.sites[1].replica
        service = PaxosService(lambda known: replica if known == PARTITION else None, cast("Any", None))
        asked = ReadValue(PARTITION.topic_id, 0, 1, Value(Kind.APPEND, 1, 0, 1, b"d" * 16))
        assert (await service.read_value(asked)).message == ValueRead(False)
        with pytest.raises(error):
            await service.read_value(msgspec.structs.replace(asked, **changes))

    play(story)


def test_no_more_is_read_of_a_log_than_a_value_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(stage: Stage) -> None:
        await begin(stage)
        site = stage.sites[1]
        value = slot_of(site, positions(site)[4]).value
        payload = payload_in(site.replica.log, value)
        assert payload is not None
        monkeypatch.setattr(applied_log, "PAYLOAD_BYTES_MAX", len(payload))
        assert payload_in(site.replica.log, value) == payload
        monkeypatch.setattr(applied_log, "PAYLOAD_BYTES_MAX", len(payload) - 1)
        assert payload_in(site.replica.log, value) is None

    play(story)


# -- the rounds ------------------------------------------------------------------------------------------------------


class Rounds:
    """A search without a replica: so many faulty slots, of which nobody has a payload."""

    def __init__(self, count: int) -> None:
        self.asked: list[tuple[int, int]] = []
        """Broker and position of each question."""
        self.mute: int | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.payload = b""
        self.restored: list[int] = []
        value = Value(Kind.APPEND, 1, 0, 1, digest_of(PAYLOAD))
        slots = {position: Slot(position, 1, value, faulty=True) for position in range(count)}
        core = SimpleNamespace(slots=slots, end=count, is_halted=False, applied=SimpleNamespace(position=0))
        self.core = core
        engine = SimpleNamespace(node=SimpleNamespace(replica=core), restore=self.restore)
        links = SimpleNamespace(era=0, holders=lambda: [2, 3])
        context = SimpleNamespace(
            peers=self,
            entropy=SimEntropy(stream("rounds")),
            spawn=lambda name, work: asyncio.get_running_loop().create_task(work),
        )
        self.search = PayloadSearch(
            PARTITION, cast("Engine", engine), cast("Links", links), cast("PartitionContext", context)
        )

    async def ask(self, node_id: int, message: ReadValue, deadline_s: float) -> Answer:
        assert deadline_s == ANSWER_S_MAX
        self.asked.append((node_id, message.position))
        if node_id == self.mute:
            raise TimeoutError
        await self.answers.wait()
        return Answer(ValueRead(bool(self.payload)), (self.payload,))

    def restore(self, position: int, value: Value, payload: Buffer) -> None:
        assert payload == PAYLOAD
        self.restored.append(position)
        self.core.slots[position] = msgspec.structs.replace(self.core.slots[position], faulty=False)

    def change(self, **changes: Any) -> None:
        self.core.slots[0] = msgspec.structs.replace(self.core.slots[0], **changes)


def test_a_copy_is_taken_once() -> None:
    async def main() -> None:
        rounds = Rounds(2)
        rounds.payload = PAYLOAD
        rounds.search.begin(0)
        await asyncio.sleep(3)
        assert rounds.restored == [0, 1] and rounds.asked == [(2, 0), (2, 1)]

    run(main)


@pytest.mark.parametrize("change", ["another value", "here", "gone", "learned", "halted"])
def test_an_answer_that_comes_late_changes_nothing_but_what_is_missing_still(change: str) -> None:
    async def main() -> None:
        rounds = Rounds(1)
        rounds.payload = PAYLOAD
        rounds.answers.clear()
        rounds.search.begin(0)
        await asyncio.sleep(PAUSE_S / 2)
        match change:
            case "another value":
                rounds.change(number=2, value=Value(Kind.APPEND, 2, 0, 1, b"e" * 16))
            case "here":
                rounds.change(faulty=False)
            case "gone":
                rounds.core.slots.clear()
            case "learned":
                rounds.change(learned=True)
            case "halted":
                rounds.core.is_halted = True
        rounds.answers.set()
        await asyncio.sleep(PAUSE_S / 2)
        assert rounds.restored == ([0] if change == "learned" else [])
        await rounds.search.close()

    run(main)


def test_no_search_begins_for_what_is_chosen() -> None:
    async def main() -> None:
        rounds = Rounds(1)
        rounds.change(learned=True)
        rounds.search.begin(0)
        rounds.search.begin(1)
        assert rounds.search._task is None

    run(main)


def test_each_round_asks_all_for_a_few_and_the_next_for_the_next() -> None:
    async def main() -> None:
        rounds = Rounds(VALUES_AT_ONCE + 3)
        for _ in range(3):
            rounds.search.begin(0)  # more than once: there is one search
        await asyncio.sleep(PAUSE_S / 2)
        few = list(range(VALUES_AT_ONCE))
        assert rounds.asked == [(node, position) for node in (2, 3) for position in few]
        rounds.asked.clear()
        await asyncio.sleep(2 * PAUSE_S)
        rest = [*range(VALUES_AT_ONCE, VALUES_AT_ONCE + 3), *range(VALUES_AT_ONCE - 3)]
        assert rounds.asked == [(node, position) for node in (2, 3) for position in rest]
        await rounds.search.close()
        rounds.search.begin(0)
        rounds.asked.clear()
        await asyncio.sleep(3)
        assert rounds.asked == []

    run(main)


def test_one_that_does_not_answer_is_asked_once_a_round() -> None:
    async def main() -> None:
        rounds = Rounds(3)
        rounds.mute = 2
        rounds.search.begin(0)
        await asyncio.sleep(PAUSE_S / 2)
        assert rounds.asked == [(2, 0), (3, 0), (3, 1), (3, 2)]
        await rounds.search.close()

    run(main)


@pytest.mark.parametrize("ending", ["learned", "named no more", "applied", "halted"])
def test_what_is_chosen_or_has_no_name_is_not_asked_for(ending: str) -> None:
    async def main() -> None:
        rounds = Rounds(1)
        rounds.search.begin(0)
        await asyncio.sleep(PAUSE_S / 2)
        match ending:
            case "learned":
                rounds.change(learned=True)
            case "named no more":
                rounds.core.slots[0] = Slot(0, 1, Value(Kind.UNKNOWN), faulty=True)
            case "applied":
                rounds.core.applied.position = 1
            case "halted":
                rounds.core.is_halted = True
        await asyncio.sleep(3)
        assert len(rounds.asked) == 2
        assert rounds.search._task is not None and rounds.search._task.done()

    run(main)
