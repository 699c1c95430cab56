"""`Lanes`: the requests of a producer to its brokers. A `Lane` combines what many partitions send to one broker.

    attempt of a partition -> lane of its broker: waits -> request (parcels of many partitions) -> outcome for each

A `Parcel` is what one partition sends in one attempt. A lane sends at once while fewer than `UNDER_WAY_MAX` of its
requests are in flight; otherwise parcels wait, and the next request contains all that arrived meanwhile. So a single
record is sent without delay, and a thousand busy partitions need few requests. A parcel is filled with batches when its
request is built (Kafka: `RecordAccumulator.drain`), so records that arrive while it waits are included.

A response is as slow as its slowest partition. So a partition that was slow on its own, or has little time left, gets a
request of its own. Where a broker has a Kafka listener (`transport/frames`), requests use Kafka's protocol, otherwise
HTTP. Two kinds always use HTTP: parcels in a request of their own, and parcels for a broker that has answered that it
is not the leader, because HTTP requests are forwarded.

A request that is rejected as a whole (too many partitions, too large, a path unknown to an older broker) says nothing
about its parcels: they are sent again in requests of half the size, down to single parcels, which use the path for one
partition.

The sender decides about retries: a parcel is one attempt with one outcome.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain, takewhile
from typing import Final
from urllib.parse import quote

from tidelog.model.errors import TidelogError
from tidelog.model.ids import TopicPartition
from tidelog.model.partition_batches import PARTITION_BATCHES_TYPE, batch_table
from tidelog.producer.options import ProducerOptions
from tidelog.producer.parcels import STRAY, Load, Outcome, Parcel
from tidelog.producer.produce_frames import ProduceFrames
from tidelog.producer.receipts import parse_many, parse_receipts
from tidelog.transport.connections import Answer, Pieces
from tidelog.transport.errors import ConnectFailed, NoAnswer
from tidelog.transport.frames.session import RecordSession
from tidelog.transport.session import ClusterSession, verdict_ms

UNDER_WAY_MAX: Final = 5
"""Maximum requests in flight to one broker (Kafka: `max.in.flight.requests.per.connection`), not counting requests of a
single parcel on its own."""
PARTITIONS_MAX: Final = 1_000
"""Maximum partitions per request; a broker's default limit (`http.batches.partitions.max`)."""


class Lane:
    """The parcels (batches of one partition for one attempt) that wait to be sent to one broker, oldest first."""

    def __init__(self) -> None:
        self.waiting: deque[Parcel] = deque()
        self.under_way = 0
        self.partitions_max = PARTITIONS_MAX
        self.is_called = False
        """True from the first parcel of a turn of the event loop until the next turn, so that the parcels of one turn
        share a request."""

    def take(self, bytes_max: int) -> list[Parcel]:
        """Removes and returns the parcels of the next request: one, and more as far as they fit; none if all have
        expired."""
        parcels: list[Parcel] = []
        size = 0
        while self.waiting and len(parcels) < self.partitions_max:
            parcel = self.waiting[0]
            if parcel.outcome.done() or not parcel.is_loaded():  # nobody waits for it, and it counts as not sent
                self.waiting.popleft()
                continue
            size += parcel.size
            if parcels and (size > bytes_max or parcel.travels_alone or parcels[0].travels_alone):
                break
            self.waiting.popleft()
            parcels.append(parcel)
        return parcels

    def take_back(self, parcels: list[Parcel]) -> None:
        """Puts the parcels of a rejected request back to the front, for smaller requests."""
        self.partitions_max = max(1, min(self.partitions_max, len(parcels) // 2))
        for parcel in reversed(parcels):
            if not parcel.outcome.done():
                parcel.is_sent = False
                self.waiting.appendleft(parcel)


class Lanes:
    """The lanes of all brokers that a producer has sent to. Owns the tasks of the requests in flight."""

    def __init__(self, session: ClusterSession, options: ProducerOptions) -> None:
        self._session = session
        self._frames = ProduceFrames(session, options) if isinstance(session, RecordSession) else None
        self._options = options
        self._lanes: dict[str, Lane] = {}
        self._tasks: dict[asyncio.Task[None], list[Parcel]] = {}
        """The requests in flight, with their parcels."""

    async def send(
        self, address: str, partition: TopicPartition, load: Load, timeout_s: float, *, alone: bool
    ) -> Outcome:
        """Sends the batches of one partition, which `load` returns, once to the broker at `address`, in a request that
        other partitions may share unless `alone`. Ends within `timeout_s`. Errors of the broker are returned in the
        outcome, not raised."""
        loop = asyncio.get_running_loop()
        parcel = Parcel(partition, load, loop.time() + timeout_s, alone, loop.create_future())
        lane = self._lanes.setdefault(address, Lane())
        lane.waiting.append(parcel)
        self._call(lane, address)
        try:
            return await parcel.outcome
        finally:
            if parcel.timer is not None:
                parcel.timer.cancel()
            if not parcel.is_sent and parcel in lane.waiting:
                lane.waiting.remove(parcel)

    async def close(self) -> None:
        """Cancels the requests in flight."""
        tasks = dict(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A task that is cancelled before its first step settles nothing itself, and counts nothing down.
        for parcel in chain.from_iterable(tasks.values()):
            parcel.settle(Outcome(error=ConnectFailed("this request was given up before it was sent")))
        self._lanes.clear()

    def _watch(self, lane: Lane, parcels: Iterable[Parcel]) -> None:
        """Sets a timer for each of these parcels (batches of one partition for one attempt): a parcel that still waits
        at its deadline fails."""
        for parcel in parcels:
            if parcel.timer is None and not parcel.outcome.done():
                loop = asyncio.get_running_loop()
                parcel.timer = loop.call_at(parcel.deadline_s, self._expire, lane, parcel)

    @staticmethod
    def _expire(lane: Lane, parcel: Parcel) -> None:
        """Fails a parcel (batches of one partition for one attempt) that still waits at its deadline; a parcel in
        flight has its request's deadline instead."""
        if not parcel.is_sent:
            refusal = ConnectFailed(
                f"{lane.under_way} requests to the broker of {parcel.partition} are under way already"
            )
            parcel.settle(Outcome(error=refusal))

    # -- requests ------------------------------------------------------------------------------------------------

    def _call(self, lane: Lane, address: str) -> None:
        if not lane.is_called:
            lane.is_called = True
            asyncio.get_running_loop().call_soon(self._depart, lane, address)

    def _depart(self, lane: Lane, address: str) -> None:
        """Sends the waiting parcels (batches of one partition for one attempt) of a broker in as many requests as the
        limit on requests in flight allows."""
        lane.is_called = False
        while lane.waiting and (lane.under_way < UNDER_WAY_MAX or lane.waiting[0].travels_alone):
            parcels = lane.take(self._options.max_request_size)
            if not parcels:
                break
            for parcel in parcels:
                parcel.is_sent = True
            lane.under_way += not parcels[0].travels_alone
            task = asyncio.get_running_loop().create_task(self._carry(lane, address, parcels))
            self._tasks[task] = parcels
            task.add_done_callback(self._tasks.pop)
        self._watch(lane, takewhile(lambda parcel: parcel.timer is None, reversed(lane.waiting)))

    async def _carry(self, lane: Lane, address: str, parcels: list[Parcel]) -> None:
        """Performs one request. Afterwards each of its parcels has an outcome, or waits again."""
        if self._frames is not None and self._frames.may_carry(address, parcels):
            parcels = await self._carry_in_frames(self._frames, lane, address, parcels)
        if parcels:
            await self._carry_over_http(lane, address, parcels)

    async def _carry_in_frames(
        self, frames: ProduceFrames, lane: Lane, address: str, parcels: list[Parcel]
    ) -> list[Parcel]:
        """Sends parcels by Kafka's protocol. Returns those that have to be sent over HTTP instead; they still count as
        in flight."""
        over_http: list[Parcel] = []
        outcomes: Sequence[Outcome] = ()
        try:
            outcomes = await frames.send(address, parcels)
            over_http = [parcel for parcel, outcome in zip(parcels, outcomes, strict=True) if outcome is STRAY]
        except TidelogError as failure:  # one parcel goes alone next time, over HTTP, which says what is wrong with it
            outcomes = [Outcome(error=failure, is_own=len(parcels) == 1)] * len(parcels)
        except BaseException as failure:
            outcomes = [Outcome(error=NoAnswer(f"this request was given up ({failure!r})"))] * len(parcels)
            raise
        finally:
            for parcel, outcome in zip(parcels, outcomes, strict=False):
                if outcome is not STRAY:
                    parcel.settle(outcome)
            if not over_http:
                lane.under_way -= not parcels[0].travels_alone
                self._call(lane, address)
        return over_http

    async def _carry_over_http(self, lane: Lane, address: str, parcels: list[Parcel]) -> None:
        try:
            answer = await self._ask(address, parcels)
            error = answer.error
            if error is None:
                outcomes = _outcomes(answer, parcels)
            elif len(parcels) > 1 and error.definite and not error.retriable:
                lane.take_back(parcels)
                self._watch(lane, parcels)
                outcomes = []
            else:
                outcomes = [Outcome((), error, answer.retry_after_s, len(parcels) == 1)] * len(parcels)
        except TidelogError as failure:
            outcomes = [Outcome(error=failure)] * len(parcels)
        except BaseException as failure:
            outcomes = [Outcome(error=NoAnswer(f"this request was given up ({failure!r})"))] * len(parcels)
            raise
        finally:
            lane.under_way -= not parcels[0].travels_alone
            for parcel, outcome in zip(parcels, outcomes, strict=False):
                parcel.settle(outcome)
            self._call(lane, address)

    async def _ask(self, address: str, parcels: list[Parcel]) -> Answer:
        timeout_s = max(0.001, min(parcel.deadline_s for parcel in parcels) - asyncio.get_running_loop().time())
        terms = f"acks={self._options.acks}&timeout_ms={verdict_ms(timeout_s)}"
        pieces = [data for parcel in parcels for data in parcel.batches]
        if len(parcels) == 1:
            topic, partition = parcels[0].partition
            target = f"/topics/{quote(topic, safe='')}/partitions/{partition}/batches?{terms}"
            body = Pieces(pieces)
        else:
            table = batch_table((*parcel.partition, parcel.size) for parcel in parcels)
            target, body = f"/batches?{terms}", Pieces([table, *pieces], PARTITION_BATCHES_TYPE)
        expects_s = 0.0 if self._options.is_idempotent else None
        return await self._session.attempt("POST", address, target, body=body, timeout_s=timeout_s, expects_s=expects_s)


def _outcomes(answer: Answer, parcels: list[Parcel]) -> list[Outcome]:
    """Returns the outcome of each parcel from an HTTP response. Raises `NoAnswer` if the response does not match the
    parcels."""
    if len(parcels) == 1:
        return [Outcome(parse_receipts(answer.body, len(parcels[0].batches)))]
    results = parse_many(answer.body, [(parcel.partition, len(parcel.batches)) for parcel in parcels])
    return [
        Outcome(error=result, is_own=True) if isinstance(result, TidelogError) else Outcome(result)
        for result in results
    ]
