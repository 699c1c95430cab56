"""Records the requests of a real cluster's clients and the answers, for `tidelog check`.

    recording = Recording()
    sent = await recording.send("p0", producer, "t", 0, [b"a", b"b"])       # a task; await it for the outcome
    await recording.poll("c0", consumer, timeout_ms=100)
    recording.fault("broker 2 killed")
    await recording.view(cluster, "t")                                      # in the end: what each replica holds
    assert recording.judge().word == "valid"

All values of a partition must be different: the checker identifies a record by its value.
"""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import aiofiles

from tidelog.admin import AdminClient
from tidelog.checker import Recorder, Verdict, encode, judge
from tidelog.checker.operations import Durability, Poll, Send, View
from tidelog.consumer import Consumer, ConsumerRecord
from tidelog.model.batch_codec import decode_batch
from tidelog.model.batch_header import iter_batches
from tidelog.model.cluster import ISR
from tidelog.model.errors import TidelogError
from tidelog.model.ids import TopicPartition
from tidelog.producer import Deliveries, Producer, RecordMetadata
from tidelog.testing.local_cluster import LocalCluster

ANSWER_S_MAX: Final = 30.0
LOOK_S = 0.05
COMMIT_S_MAX: Final = 10.0
"""Seconds within which an idle replica has to learn that all its records are committed."""
DURABILITIES: Final[dict[str, Durability]] = {"fsynced": "fsynced", "replicated": "replicated"}
"""Durabilities that a history contains. An acknowledgement by the leader alone promises nothing once another broker
leads."""


Text = Callable[[bytes | None], str]


class Recording:
    """The history of one test run. A *process* is one client that does one thing after another; the test chooses its
    name."""

    def __init__(self, known_as: Text | None = None) -> None:
        """`known_as` is a function that shortens long values for the history."""
        self.recorder = Recorder(time.monotonic)
        self._text: Text = known_as or text

    async def send(
        self,
        process: str,
        producer: Producer,
        topic: str,
        partition: int,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None = None,
    ) -> asyncio.Task[bool]:
        """Sends records with an idempotent producer, each as an operation of its own. The returned task ends when their
        outcome is known and recorded; its result is True if all are acknowledged.

        If one of several records fails, the outcome of the others is unknown: send records one by one where that
        matters.
        """
        key = str(TopicPartition(topic, partition))
        begun = [
            (self.recorder.invoke(process, "send", [Send(key, None, self._text(value))]), value) for value in values
        ]
        try:
            deliveries = await producer.send_batch(topic, values, keys, partition)
        except TidelogError as error:
            self._fail(begun, error)
            raise
        return asyncio.create_task(self._settle(key, begun, deliveries))

    async def _settle(self, key: str, begun: list[tuple[int, bytes]], deliveries: Deliveries) -> bool:
        try:
            receipts: list[RecordMetadata] = await deliveries
        except TidelogError as error:
            self._fail(begun, error)
            return False
        for (invocation, value), where in zip(begun, receipts, strict=True):
            self.recorder.complete(
                invocation,
                "ok",
                [Send(key, where.offset, self._text(value))],
                durability=DURABILITIES.get(where.durability, "none"),
                epoch=where.leader_epoch,
            )
        return True

    def _fail(self, begun: list[tuple[int, bytes]], error: TidelogError) -> None:
        is_refused = error.definite and len(begun) == 1
        for invocation, _ in begun:
            self.recorder.complete(invocation, "fail" if is_refused else "info", error=str(error.code))

    async def poll(
        self, process: str, consumer: Consumer, *, timeout_ms: int = 0
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Polls with `Consumer.getmany`, and records the result. Raises the error that stopped a partition, such as
        `DamagedBatch`, `RecordsLost` or `OffsetOutOfRange`."""
        invocation = self.recorder.invoke(process, "poll")
        try:
            batches = await consumer.getmany(timeout_ms=timeout_ms)
        except TidelogError as error:
            self.recorder.complete(invocation, "fail", error=str(error.code))
            raise
        records = {
            str(partition): [(record.offset, self._text(record.value)) for record in batch]
            for partition, batch in batches.items()
        }
        self.recorder.complete(invocation, "ok", [Poll(records)])
        return batches

    async def fetch(self, process: str, url: str, where: TopicPartition, offset: int) -> int:
        """Reads a partition through the broker at `url`, from its leader and from `offset` on. Returns the offset to
        continue at.

        Unlike a poll, the read begins now and sees all that is committed, so the checker compares it with what the
        leader had acknowledged before. Raises `OSError`; then the same offset has to be read again.
        """
        invocation = self.recorder.invoke(process, "poll")
        try:
            fetched = await asyncio.to_thread(_get, url, where, str(offset), "")
        except OSError as error:
            self.recorder.complete(invocation, "fail", error=str(error))
            raise
        ends = {str(where): fetched.high_watermark}
        records = [(at, self._text(value)) for at, value in fetched.records]
        self.recorder.complete(invocation, "ok", [Poll({str(where): records}, ends)], epoch=fetched.leader_epoch)
        return fetched.next_offset

    def assign(self, process: str, partitions: Sequence[TopicPartition]) -> None:
        """Records the partitions that a process reads from now on. In partitions that it already read it continues
        where it was."""
        self.recorder.tell("assign", map(str, partitions), process=process)

    def fault(self, what: str) -> None:
        """Records that a fault was inflicted."""
        self.recorder.tell("fault", [what])

    async def view(self, cluster: LocalCluster, topic: str) -> None:
        """Reads and records each in-sync replica's own copy of each partition, as soon as the replica knows that all
        its records are committed. No client may write meanwhile. Raises `OSError` if a broker does not answer."""
        async with AdminClient(cluster.bootstrap) as admin:
            described = await admin.describe_topic(topic)
        for partition in described.partitions:
            where = TopicPartition(topic, partition.partition_id)
            newest = await asyncio.to_thread(_get, cluster.broker(partition.leader).url, where, "earliest", "")
            for node_id in partition.isr:
                url = cluster.broker(node_id).url
                await asyncio.to_thread(_wait_until_committed, url, where, newest.log_end_offset)
                view = await asyncio.to_thread(read_copy, url, where, self._text, is_sparse=described.protocol != ISR)
                self.recorder.tell("view", [view], replica=node_id)

    def judge(self, *, acknowledged_min: int = 100, polls_min: int = 100, faults_min: int = 1) -> Verdict:
        """Returns the verdict that `tidelog check` gives on the history."""
        return judge(
            self.recorder.operations,
            acknowledged_min=acknowledged_min,
            polls_min=polls_min,
            faults_min=faults_min,
        )

    async def save(self, path: Path) -> None:
        """Writes the history to a file for `tidelog check`."""
        async with aiofiles.open(path, "wb") as file:
            await file.write(encode(self.recorder.operations))


def text(value: bytes | None) -> str:
    """Returns a value as it appears in a history, by default."""
    return "" if value is None else value.decode("utf-8", "backslashreplace")


class _Fetched(NamedTuple):
    """The records and offsets of one fetched partition."""

    records: list[tuple[int, bytes | None]]
    next_offset: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    leader_epoch: int


def _get(url: str, where: TopicPartition, offset: str, replica: str) -> _Fetched:
    """Fetches batches once, from the leader unless `replica` says otherwise. Raises `OSError`."""
    query = f"offset={offset}" + (f"&replica={replica}" if replica else "")
    address = f"{url}/topics/{where.topic}/partitions/{where.partition}/batches?{query}"
    with urllib.request.urlopen(address, timeout=ANSWER_S_MAX) as answer:  # noqa: S310 - a broker of this test
        body, headers = answer.read(), answer.headers
    start = int(headers["Tidelog-Log-Start-Offset"])
    records: list[tuple[int, bytes | None]] = []
    first = next_offset = start if offset == "earliest" else int(offset)
    for batch in iter_batches(body):
        records += [(record.offset, record.value) for record in decode_batch(batch) if record.offset >= first]
        next_offset = batch.header.next_offset
    high_watermark, end = int(headers["Tidelog-High-Watermark"]), int(headers["Tidelog-Log-End-Offset"])
    return _Fetched(records, next_offset, start, high_watermark, end, int(headers["Tidelog-Leader-Epoch"]))


def read_copy(url: str, where: TopicPartition, known_as: Text = text, *, is_sparse: bool = False) -> View:
    """Returns all records of a partition that one broker has and knows to be committed. Raises `OSError`.

    Offsets that are missing in the view are a gap, unless the log is sparse: then no replica has them.
    """
    fetched = _get(url, where, "earliest", "local")
    records, start = fetched.records, fetched.log_start_offset
    while fetched.records and fetched.next_offset < fetched.high_watermark:
        fetched = _get(url, where, str(fetched.next_offset), "local")
        records = records + fetched.records
    values = [(offset, known_as(value)) for offset, value in records]
    return View(str(where), start, fetched.high_watermark, fetched.log_end_offset, values, is_sparse=is_sparse)


def _wait_until_committed(url: str, where: TopicPartition, end: int) -> None:
    """Waits until a replica knows that all its records up to `end` are committed, for at most `COMMIT_S_MAX` seconds.
    If it takes longer, the checker reports that."""
    deadline_s = time.monotonic() + COMMIT_S_MAX
    while _get(url, where, "earliest", "local").high_watermark < end and time.monotonic() < deadline_s:
        time.sleep(LOOK_S)  # on a thread of its own: `asyncio.to_thread`
