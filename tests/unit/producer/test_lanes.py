"""Partitions of one broker share a request; slow ones travel alone; a refused request is cut in halves."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

from tidelog.model.errors import LeaderNotAvailable, Overloaded, TimedOutAfterAppend, UnprocessableBody
from tidelog.model.ids import TopicPartition
from tidelog.model.partition_batches import split_partitions
from tidelog.producer.lanes import UNDER_WAY_MAX, Lanes
from tidelog.producer.options import ProducerOptions
from tidelog.producer.parcels import Outcome
from tidelog.transport.connections import Answer, Pieces
from tidelog.transport.errors import ConnectFailed, ErrorBody, NoAnswer
from tidelog.transport.session import ClusterSession

ADDRESS = "http://one"


class Broker:
    """Stands where a session leads to: notes which partitions each request was for, and answers when it is let."""

    def __init__(self, partitions_max: int = 1000, *, is_slow: bool = False) -> None:
        self.requests: list[list[int]] = []
        self.errors: dict[int, int] = {}
        self.partitions_max = partitions_max
        self.raises: Exception | None = None
        self.may_answer = asyncio.Event()
        if not is_slow:
            self.may_answer.set()

    async def attempt(self, method: str, address: str, target: str, *, body: Pieces, **_: Any) -> Answer:
        data = bytearray(b"".join(body._pieces))
        if target.startswith("/topics/"):
            partitions = [int(target.split("/")[4])]
        else:
            partitions = [entry.partition for entry in split_partitions(data, 10_000)]
        self.requests.append(partitions)
        await self.may_answer.wait()
        if self.raises is not None:
            raise self.raises
        if len(partitions) > self.partitions_max:
            return Answer(422, {}, msgspec.json.encode(ErrorBody(UnprocessableBody.code, "too many")))
        return self._answer(partitions)

    def _answer(self, partitions: list[int]) -> Answer:
        if len(partitions) == 1 and (code := self.errors.get(partitions[0])) is not None:
            return Answer(code // 100, {"Retry-After": "3"}, msgspec.json.encode(ErrorBody(code, "so it is")))
        receipts = [
            {
                "topic": "t",
                "partition": partition,
                "batches": [{"base_offset": partition, "last_offset": partition}],
                "leader_epoch": 1,
                "acked_by": [1],
                "durability": "fsynced",
                "error_code": self.errors.get(partition),
                "message": "so it is",
            }
            for partition in partitions
        ]
        document = receipts[0] if len(partitions) == 1 else {"partitions": receipts}
        return Answer(200, {}, msgspec.json.encode(document))


def lanes_to(broker: Broker, **options: Any) -> Lanes:
    chosen = {
        "acks": "all",
        "linger_s": 0.0,
        "batch_size": 1000,
        "compression": 0,
        "is_idempotent": True,
        "buffer_memory": 1 << 20,
        "max_block_s": 1.0,
        "max_request_size": 1000,
        "request_timeout_s": 30.0,
        "delivery_timeout_s": 120.0,
        **options,
    }
    return Lanes(cast("ClusterSession", broker), ProducerOptions(**chosen))


def sending(lanes: Lanes, *partitions: int, size: int = 10, alone: bool = False, timeout_s: float = 30.0) -> Any:
    sends = [
        lanes.send(ADDRESS, TopicPartition("t", partition), lambda: [bytearray(size)], timeout_s, alone=alone)
        for partition in partitions
    ]
    return asyncio.gather(*sends)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_comes_at_one_time_shares_a_request_and_each_has_its_outcome() -> None:
    broker = Broker()
    broker.errors[1] = LeaderNotAvailable.code
    outcomes: list[Outcome] = await sending(lanes_to(broker), 0, 1, 2)
    assert broker.requests == [[0, 1, 2]]
    assert [[receipt.base_offset for receipt in outcome.receipts] for outcome in outcomes] == [[0], [], [2]]
    assert isinstance(outcomes[1].error, LeaderNotAvailable)
    assert outcomes[1].is_own


async def test_a_request_holds_so_many_bytes() -> None:
    broker = Broker()
    await sending(lanes_to(broker), *range(10), size=300)
    assert broker.requests == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]


async def test_parcels_gather_while_requests_are_under_way() -> None:
    broker = Broker(is_slow=True)
    lanes = lanes_to(broker)
    waits = []
    for partition in range(UNDER_WAY_MAX + 20):
        waits.append(sending(lanes, partition))
        await settle()
    assert broker.requests == [[partition] for partition in range(UNDER_WAY_MAX)]
    broker.may_answer.set()
    await asyncio.gather(*waits)
    assert broker.requests[UNDER_WAY_MAX:] == [[*range(UNDER_WAY_MAX, UNDER_WAY_MAX + 20)]]


async def test_a_parcel_is_loaded_when_it_departs() -> None:
    broker = Broker(is_slow=True)
    lanes = lanes_to(broker)
    waits = []
    for partition in range(UNDER_WAY_MAX):
        waits.append(sending(lanes, partition))
        await settle()
    records: list[bytearray] = []
    last = asyncio.ensure_future(lanes.send(ADDRESS, TopicPartition("t", 9), lambda: [*records], 30.0, alone=False))
    await settle()
    records += [bytearray(10), bytearray(10)]  # what comes while it waits goes with it
    broker.may_answer.set()
    await asyncio.gather(*waits)
    assert isinstance((await last).error, NoAnswer), "two batches, and the broker speaks of one"
    assert broker.requests[UNDER_WAY_MAX:] == [[9]]


async def test_a_parcel_with_nothing_to_load_is_over() -> None:
    broker = Broker()
    lanes = lanes_to(broker)
    empty = lanes.send(ADDRESS, TopicPartition("t", 9), list, 30.0, alone=False)
    outcomes = await asyncio.gather(empty, sending(lanes, 0, 1))
    assert outcomes[0] == Outcome()
    assert broker.requests == [[0, 1]]


async def test_a_parcel_that_cannot_be_loaded_fails_alone() -> None:
    broker = Broker()
    lanes = lanes_to(broker)

    def load() -> list[bytearray]:
        raise ValueError("a bug")

    bad = lanes.send(ADDRESS, TopicPartition("t", 9), load, 30.0, alone=False)
    outcomes = await asyncio.gather(bad, sending(lanes, 0, 1), return_exceptions=True)
    assert isinstance(outcomes[0], ValueError)
    assert broker.requests == [[0, 1]]


async def test_who_travels_alone_shares_with_nobody_and_takes_no_place() -> None:
    broker = Broker(is_slow=True)
    lanes = lanes_to(broker)
    waits = [sending(lanes, partition, alone=True) for partition in range(UNDER_WAY_MAX)]
    await settle()
    waits.append(sending(lanes, 100, 101))
    await settle()
    assert broker.requests == [*([partition] for partition in range(UNDER_WAY_MAX)), [100, 101]]
    broker.may_answer.set()
    await asyncio.gather(*waits)


async def test_a_request_that_is_refused_as_a_whole_goes_again_in_smaller_ones() -> None:
    broker = Broker(partitions_max=1)
    lanes = lanes_to(broker)
    outcomes: list[Outcome] = await sending(lanes, *range(8))
    assert [outcome.error for outcome in outcomes] == [None] * 8
    assert [len(request) for request in broker.requests[:3]] == [8, 4, 4]
    broker.requests.clear()
    await sending(lanes, 0, 1, 2)
    assert broker.requests == [[0], [1], [2]]


async def test_an_error_of_the_request_is_everybodys_and_nobodys_own() -> None:
    broker = Broker()
    broker.raises = NoAnswer("cut")
    outcomes: list[Outcome] = await sending(lanes_to(broker), 0, 1)
    assert [(type(outcome.error), outcome.is_own) for outcome in outcomes] == [(NoAnswer, False)] * 2


async def test_an_error_of_a_request_of_one_is_its_own() -> None:
    broker = Broker()
    broker.errors[0] = TimedOutAfterAppend.code
    (outcome,) = await sending(lanes_to(broker), 0)
    assert (type(outcome.error), outcome.is_own, outcome.retry_after_s) == (TimedOutAfterAppend, True, 0.0)


async def test_an_overloaded_broker_may_ask_for_time() -> None:
    broker = Broker()
    broker.errors[0] = Overloaded.code
    (outcome,) = await sending(lanes_to(broker), 0)
    assert (type(outcome.error), outcome.retry_after_s) == (Overloaded, 3.0)


@pytest.mark.parametrize("is_given_up", [True, False])
async def test_what_waits_for_too_long_or_for_nobody_is_not_sent(is_given_up: bool) -> None:
    broker = Broker(is_slow=True)
    lanes = lanes_to(broker)
    first = []
    for partition in range(UNDER_WAY_MAX):
        first.append(sending(lanes, partition))
        await settle()
    late = sending(lanes, 100, timeout_s=30.0 if is_given_up else 0.0)
    await settle()
    if is_given_up:
        late.cancel()
        broker.may_answer.set()  # in the same turn: what is cancelled still waits there
        with pytest.raises(asyncio.CancelledError):
            await late
    else:
        (outcome,) = await late
        assert isinstance(outcome.error, ConnectFailed)
        assert outcome.error.definite
        broker.may_answer.set()
    await asyncio.gather(*first)
    await settle()
    assert [100] not in broker.requests


async def test_closing_ends_what_is_under_way_with_an_unknown_outcome() -> None:
    broker = Broker(is_slow=True)
    lanes = lanes_to(broker)
    waiting = sending(lanes, 0, 1)
    await settle()
    await lanes.close()
    outcomes: list[Outcome] = await waiting
    assert [outcome.error is not None and outcome.error.definite for outcome in outcomes] == [False, False]


async def test_closing_ends_what_has_not_begun_and_a_producer_that_starts_again_sends_as_before() -> None:
    broker = Broker(is_slow=True)
    lanes = lanes_to(broker)
    waiting = sending(lanes, *range(UNDER_WAY_MAX), size=600)  # each in a request of its own
    while not lanes._tasks:
        await asyncio.sleep(0)
    await lanes.close()
    outcomes: list[Outcome] = await waiting
    assert all(outcome.error is not None and outcome.error.definite for outcome in outcomes)
    assert not broker.requests
    broker.may_answer.set()
    (outcome,) = await sending(lanes, 7, timeout_s=5.0)
    assert outcome.error is None
