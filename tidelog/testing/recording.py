"""Records what clients of a real cluster do, are told and see, for `tidelog check`.

    recording = Recording()
    sent = await recording.send("p0", producer, "t", 0, [b"a", b"b"])       # a task; await it for the outcome
    await recording.poll("c0", consumer, timeout_ms=100)
    recording.fault("broker 2 killed")
    await recording.view(cluster, "t")                                      # in the end: what each replica holds
    assert recording.judge().word == "valid"

All values of a partition must be different: the checker knows a record by its value.
"""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tidelog.admin import AdminClient
from tidelog.checker import Recorder, Verdict, encode, judge
from tidelog.checker.operations import Durability, Poll, Send, View
from tidelog.consumer import Consumer, ConsumerRecord
from tidelog.model.batch_codec import decode_batch
from tidelog.model.batch_header import iter_batches
from tidelog.model.errors import TidelogError
from tidelog.model.ids import TopicPartition
from tidelog.producer import Deliveries, Producer, RecordMetadata
from tidelog.testing.local_cluster import LocalCluster

ANSWER_S_MAX: Final = 30.0
DURABILITIES: Final[dict[str, Durability]] = {"fsynced": "fsynced", "replicated": "replicated"}
"""What a leader alone acknowledges promises nothing where others may lead after it."""


class Recording:
    """Of one run. A *process* is one client that does one thing after another; name it as you like."""

    def __init__(self) -> None:
        self.recorder = Recorder(time.monotonic)

    async def send(
        self,
        process: str,
        producer: Producer,
        topic: str,
        partition: int,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None = None,
    ) -> asyncio.Task[bool]:
        """Hands records to an idempotent producer, each an operation of its own. The task ends when their fate is known
        and recorded: True if all are acknowledged.

        If one of several fails, nobody knows of the others: send records one by one where that matters.
        """
        key = str(TopicPartition(topic, partition))
        begun = [(self.recorder.invoke(process, "send", [Send(key, None, text(value))]), value) for value in values]
        try:
            deliveries = await producer.send_batch(topic, values, keys, partition)
        except TidelogError as error:
            self._fail(begun, error)
            raise
        return asyncio.create_task(self._settle(key, begun, deliveries))

    async def _settle(self, key: str, begun: list[tuple[int, bytes]], deliveries: Deliveries) -> bool:
        try:
            found: list[RecordMetadata] = await deliveries
        except TidelogError as error:
            self._fail(begun, error)
            return False
        for (invocation, value), where in zip(begun, found, strict=True):
            self.recorder.complete(
                invocation,
                "ok",
                [Send(key, where.offset, text(value))],
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
        """As `Consumer.getmany`, and raises as it does."""
        invocation = self.recorder.invoke(process, "poll")
        try:
            found = await consumer.getmany(timeout_ms=timeout_ms)
        except TidelogError as error:
            self.recorder.complete(invocation, "fail", error=str(error.code))
            raise
        records = {
            str(partition): [(record.offset, text(record.value)) for record in batch]
            for partition, batch in found.items()
        }
        self.recorder.complete(invocation, "ok", [Poll(records)])
        return found

    def assign(self, process: str, partitions: Sequence[TopicPartition]) -> None:
        """From now on the process reads these, and goes on in those that it read before."""
        self.recorder.tell("assign", map(str, partitions), process=process)

    def fault(self, what: str) -> None:
        """Something is broken on purpose."""
        self.recorder.tell("fault", [what])

    async def view(self, cluster: LocalCluster, topic: str) -> None:
        """Reads the own copy of each in-sync replica of each partition from start to end. Nobody may write meanwhile.

        Raises `OSError` if a broker does not answer.
        """
        async with AdminClient(cluster.bootstrap) as admin:
            described = await admin.describe_topic(topic)
        for found in described.partitions:
            where = TopicPartition(topic, found.partition_id)
            for node_id in found.isr:
                url = cluster.broker(node_id).url
                view = await asyncio.to_thread(read_copy, url, where)
                self.recorder.tell("view", [view], replica=node_id)

    def judge(self, *, acknowledged_min: int = 100, polls_min: int = 100, faults_min: int = 1) -> Verdict:
        """The verdict, as `tidelog check` would give it."""
        return judge(
            self.recorder.operations,
            acknowledged_min=acknowledged_min,
            polls_min=polls_min,
            faults_min=faults_min,
        )

    def save(self, path: Path) -> None:
        """Writes the history, for `tidelog check`."""
        path.write_bytes(encode(self.recorder.operations))


def text(value: bytes | None) -> str:
    """A value in a history."""
    return "" if value is None else value.decode("utf-8", "backslashreplace")


def read_copy(url: str, where: TopicPartition) -> View:
    """All that one broker holds of a partition and knows to be committed. Raises `OSError`."""
    records: list[tuple[int, str]] = []
    start, offset, end = -1, 0, 0
    while start < 0 or offset < end:
        query = f"offset={offset if start >= 0 else 'earliest'}&replica=local"
        address = f"{url}/topics/{where.topic}/partitions/{where.partition}/batches?{query}"
        with urllib.request.urlopen(address, timeout=ANSWER_S_MAX) as answer:  # noqa: S310 - a broker of this test
            body, headers = answer.read(), answer.headers
        end = int(headers["Tidelog-High-Watermark"])
        if start < 0:
            start = offset = int(headers["Tidelog-Log-Start-Offset"])
        for batch in iter_batches(body):
            records += [(one.offset, text(one.value)) for one in decode_batch(batch) if one.offset >= offset]
            offset = batch.header.next_offset
        if not body:  # less than is committed: the checker will call it a gap
            break
    return View(str(where), start, end, int(headers["Tidelog-Log-End-Offset"]), records)
