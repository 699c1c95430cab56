"""The producer's sender: per partition a task that sends due batches, retries, and settles every batch.

One request is in flight per partition. It contains all due batches, so a slow broker makes requests larger, not more
numerous, with more records per fsync. Order is trivial, because nothing is sent before the outcome of the preceding
request is known. (Two requests in flight gained nothing measurable with the disk as the limit, and would make every
retry a question of order.) Concurrent requests of several partitions to one broker are combined (`lanes`) with an
outcome for each partition: retries, sequence numbers and leader changes are handled per partition.

A partition with nothing to send has no task, at most a timer for its linger.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import msgspec

from tidelog.model.batch_header import number
from tidelog.model.errors import LeaderNotAvailable, TidelogError, UnknownPartition, UnknownTopic
from tidelog.model.ids import ProducerId, TopicPartition
from tidelog.producer.accumulator import Accumulator, Batch, BatchReceipt, PartitionQueue
from tidelog.producer.lanes import Lanes
from tidelog.producer.options import ProducerOptions
from tidelog.producer.receipts import fill_in
from tidelog.producer.sequences import Sequences, Stamp
from tidelog.producer.verdicts import Verdict, expired, judge
from tidelog.transport.errors import ClientClosed, DeliveryExpired, DeliveryUnknown, decode_answer
from tidelog.transport.session import ClusterSession, needs_refresh

logger = logging.getLogger(__name__)

BATCHES_MAX = 1024
"""Maximum batches per request, below the broker's limit."""
FAILED_REMEMBERED = 1024
RETRY_TURN_S = 0.02
"""Seconds: retries start at multiples of this, so that partitions that failed together are retried in one request."""


class _NewProducerId(msgspec.Struct, frozen=True):
    producer_id: int


@dataclass(slots=True, eq=False)
class _Request:
    """Batches that are sent together until they are settled together; empty before the first attempt is sent.

    `stamp` is the producer id, epoch and first sequence of the first batch, once numbered. `unknown_tries` counts the
    attempts, including the one in flight, that may have appended the batches.
    """

    queue: PartitionQueue
    deadline_s: float
    batches: list[Batch] = field(default_factory=list)
    stamp: Stamp | None = None
    unknown_tries: int = 0


class Sender:
    """Owns the accumulator, and a task for each partition with a request in flight."""

    def __init__(self, session: ClusterSession, options: ProducerOptions) -> None:
        self.accumulator = Accumulator(
            batch_bytes=options.batch_size,
            linger_s=options.linger_s,
            compression=options.compression,
            buffer_memory=options.buffer_memory,
            will_number=options.is_idempotent,
            on_ready=self.notice,
        )
        self.fatal: TidelogError | None = None
        self._failed: deque[Batch] = deque(maxlen=FAILED_REMEMBERED)
        self.memory_freed = asyncio.Event()
        self._session = session
        self._options = options
        self._lanes = Lanes(session, options)
        self._sequences = Sequences() if options.is_idempotent else None
        self._id_request: asyncio.Future[TidelogError | None] | None = None
        """The request for a producer id in progress, which all waiting partitions share."""
        self._tasks: dict[PartitionQueue, asyncio.Task[None]] = {}
        self._timers: dict[PartitionQueue, asyncio.TimerHandle] = {}

    # -- when to send --------------------------------------------------------------------------------------------

    def notice(self, queue: PartitionQueue) -> None:
        """Starts the queue's task now if a batch is due, else sets a timer."""
        due_s = queue.due_s
        if due_s is None or queue in self._tasks:  # a running task looks again before it ends
            return
        loop = asyncio.get_running_loop()
        if due_s <= loop.time():
            self._tasks[queue] = loop.create_task(self._drain(queue))
        elif queue not in self._timers:
            self._timers[queue] = loop.call_at(due_s, self._on_timer, queue)

    def hurry(self) -> None:
        """Ends the linger of all batches."""
        for queue in self.accumulator.queues():
            if queue.open is not None:
                queue.hurry(queue.open)

    def _on_timer(self, queue: PartitionQueue) -> None:
        del self._timers[queue]
        self.notice(queue)

    async def close(self) -> None:
        """Cancels all tasks. Records without an outcome fail: with unknown outcome if they were in flight, else as
        certainly not sent."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A task that was cancelled before its first step runs no `finally`, so its entry is still there.
        self._tasks = {queue: task for queue, task in self._tasks.items() if not task.done()}
        await self._lanes.close()
        self._abandon(ClientClosed("the producer was closed before this record was sent"))
        self.memory_freed.set()

    # -- sending -------------------------------------------------------------------------------------------------

    async def _drain(self, queue: PartitionQueue) -> None:
        """Sends one request after the other while batches of the partition are due."""
        now_s = asyncio.get_running_loop().time
        try:
            while (oldest := self.accumulator.due(queue, now_s())) is not None:
                await self._deliver(_Request(queue, oldest.created_s + self._options.delivery_timeout_s))
        finally:
            del self._tasks[queue]
        self.notice(queue)

    async def _deliver(self, request: _Request) -> None:
        """Sends a request with retries until each of its batches is settled."""
        try:
            await self._try_until_settled(request)
        except BaseException as error:
            uncertain = bool(request.batches) and request.unknown_tries > 0
            self._settle_all(request, _stopped(error, uncertain=uncertain))
            raise

    async def _try_until_settled(self, request: _Request) -> None:
        now_s = asyncio.get_running_loop().time
        backoff = self._session.backoff()
        reason = "it waited in the buffer for too long"
        while now_s() < request.deadline_s:
            request.unknown_tries += 1
            error, wait_at_least_s = await self._attempt(request)
            if error is None:
                return
            verdict = judge(error, numbered=self._sequences is not None, uncertain=request.unknown_tries > 1)
            if error.definite:
                request.unknown_tries -= 1
            if verdict not in (Verdict.RETRY, Verdict.RENUMBER):
                self._give_up(request, verdict, error)
                return
            if verdict is Verdict.RENUMBER:
                self._forget_numbers(request)
            reason = f"the last error: {error.message}"
            wait_s = min(backoff.next_s(wait_at_least_s), max(0.0, request.deadline_s - now_s()))
            logger.info("%s: trying again in %.3f s: %s", request.queue.partition, wait_s, error.message)
            await asyncio.sleep(_until_shared_turn(now_s(), wait_s))
            if needs_refresh(error):
                await self._refresh(request)
        expiry = DeliveryExpired(f"not delivered within delivery_timeout_ms; {reason}")
        self._give_up(request, expired(uncertain=request.unknown_tries > 0), expiry)

    async def _attempt(self, request: _Request) -> tuple[TidelogError | None, float]:
        """Makes one attempt. Returns the error and the `Retry-After` seconds of the broker; the error is None once the
        batches are settled."""
        left_s = request.deadline_s - asyncio.get_running_loop().time()
        queue = request.queue
        try:
            if self._sequences is not None and request.stamp is None:
                await self._have_id(self._sequences, queue.partition, left_s)
            timeout_s = min(self._options.request_timeout_s, left_s)
            alone = queue.was_late or timeout_s < self._options.try_s_min
            address = self._session.leader(*queue.partition)
            load = partial(self._load, request)
            outcome = await self._lanes.send(address, queue.partition, load, timeout_s, alone=alone)
        except TidelogError as failure:
            return failure, 0.0
        queue.was_late = outcome.error is not None and outcome.is_own and not outcome.error.definite
        if outcome.receipts:
            self._session.note_leader_epoch(*queue.partition, outcome.receipts[0].leader_epoch)
            self._settle(request, outcome.receipts)
        return outcome.error, outcome.retry_after_s

    def _load(self, request: _Request) -> list[bytearray]:
        """Returns the encoded batches of a request that is being sent; none if the producer was closed meanwhile."""
        if not request.batches:
            now_s, bytes_max = asyncio.get_running_loop().time(), self._options.max_request_size
            request.batches = self.accumulator.take(request.queue, now_s, bytes_max=bytes_max, batches_max=BATCHES_MAX)
        if request.batches and request.stamp is None and self._sequences is not None:
            self._number(request, self._sequences)
        return [batch.data for batch in request.batches]

    async def _refresh(self, request: _Request) -> None:
        left_s = request.deadline_s - asyncio.get_running_loop().time()
        with suppress(TidelogError):  # the next try will meet it, and its verdict counts
            await self._session.refresh(request.queue.partition.topic, timeout_s=left_s)

    # -- numbers -------------------------------------------------------------------------------------------------

    async def _have_id(self, sequences: Sequences, partition: TopicPartition, timeout_s: float) -> None:
        while sequences.needs_id:
            await self._adopt_id(sequences, timeout_s)
        sequences.begin(partition)

    @staticmethod
    def _number(request: _Request, sequences: Sequences) -> None:
        stamps = [sequences.assign(request.queue.partition, batch.record_count) for batch in request.batches]
        for batch, stamp in zip(request.batches, stamps, strict=True):
            number(batch.data, *stamp)
        request.stamp = stamps[0]

    async def _adopt_id(self, sequences: Sequences, timeout_s: float) -> None:
        """Gets a producer id; concurrent callers share one request for it."""
        if self._id_request is not None:
            failure = await asyncio.shield(self._id_request)
            if failure is not None:
                raise failure
            return
        self._id_request = id_request = asyncio.get_running_loop().create_future()
        outcome: TidelogError | None = ClientClosed("the producer was closed before it had an id")
        try:
            sequences.adopt(await self._new_producer_id(timeout_s))
            outcome = None
        except TidelogError as error:
            outcome = error
            raise
        finally:
            self._id_request = None
            id_request.set_result(outcome)

    async def _new_producer_id(self, timeout_s: float) -> ProducerId:
        """Requests a producer id from a broker. All errors are raised as definite, since no record was sent."""
        target = f"/v3/clusters/{self._session.cluster_id}/producer-ids"
        try:
            body = await self._session.call("POST", target, timeout_s=timeout_s)
            return ProducerId(decode_answer(_NewProducerId, body).producer_id)
        except TidelogError as error:
            if error.definite:
                raise
            raise LeaderNotAvailable(f"no producer id: {error.message}") from error

    def _forget_numbers(self, request: _Request) -> None:
        assert self._sequences is not None
        self._sequences.bump(request.queue.partition)
        request.stamp = None

    # -- ends ----------------------------------------------------------------------------------------------------

    def _give_up(self, request: _Request, verdict: Verdict, error: TidelogError) -> None:
        """Fails the batches of a request with `error`, and with `DeliveryUnknown` if the verdict is LOSE. If it was
        never sent, only the partition's oldest batch fails. Their sequence numbers are used again (FAIL), or the
        partition gets a new producer epoch (LOSE, FATAL). After FATAL all other batches fail, too."""
        partition = request.queue.partition
        if not request.batches:
            now_s, bytes_max = asyncio.get_running_loop().time(), self._options.max_request_size
            request.batches = self.accumulator.take(request.queue, now_s, bytes_max=bytes_max, batches_max=1)
        if isinstance(error, (UnknownTopic, UnknownPartition)):
            self._session.invalidate(partition.topic)
        if request.stamp is not None and self._sequences is not None:
            if verdict is Verdict.FAIL:
                self._sequences.rewind(partition, request.stamp)
            else:
                self._sequences.bump(partition)
        if verdict is Verdict.LOSE:
            unknown = DeliveryUnknown(f"sent to {partition}, and whether it was appended is unknown: {error.message}")
            unknown.__cause__ = error
            error = unknown
        self._settle_all(request, error)
        if verdict is Verdict.FATAL:
            self.fatal = error
            self._abandon(error)
            self.memory_freed.set()

    def _settle(self, request: _Request, receipts: Sequence[BatchReceipt]) -> None:
        """Settles the batches of a request with their receipts."""
        # A broker knows the offsets of only the last few batches of a repeated request; the others are counted back
        # from theirs, since a try appends its batches without a gap. After more tries that may have appended something
        # there may be gaps, and the offsets stay unknown.
        if request.unknown_tries == 2:
            receipts = fill_in([*receipts], request.batches)
        for batch, receipt in zip(request.batches, receipts, strict=True):
            self._release(batch)
            batch.settle(receipt)

    def _settle_all(self, request: _Request, error: TidelogError) -> None:
        for batch in request.batches:
            if batch.outcome is None:
                self._fail(batch, error)

    def _abandon(self, error: TidelogError) -> None:
        """Fails all batches in the queues."""
        for queue in self.accumulator.queues():
            if queue.open is not None:
                self.accumulator.seal(queue)
            while queue.sealed:
                self._fail(queue.sealed.popleft(), error)

    def _fail(self, batch: Batch, error: TidelogError) -> None:
        if not batch.awaited:
            count, partition = batch.record_count, batch.queue.partition
            logger.warning("%d records to %s were not delivered: %s", count, partition, error.message)
        if batch.awaited < batch.record_count:
            self._failed.append(batch)
        self._release(batch)
        batch.settle(error)

    def take_unreported(self) -> TidelogError | None:
        """Returns the first error since the last call that nobody has awaited; each error is returned once."""
        failed, self._failed = self._failed, deque(maxlen=FAILED_REMEMBERED)
        for batch in failed:
            if batch.awaited < batch.record_count and isinstance(batch.outcome, TidelogError):
                return batch.outcome
        return None

    def _release(self, batch: Batch) -> None:
        self.accumulator.release(batch)
        self.memory_freed.set()


def _until_shared_turn(now_s: float, wait_s: float) -> float:
    """Returns the seconds from now to the first multiple of `RETRY_TURN_S` after a wait."""
    return math.ceil((now_s + wait_s) / RETRY_TURN_S) * RETRY_TURN_S - now_s


def _stopped(error: BaseException, *, uncertain: bool) -> TidelogError:
    if uncertain:
        return DeliveryUnknown(f"the producer stopped with this record under way ({error!r})")
    return ClientClosed("the producer was closed before this record was sent")
