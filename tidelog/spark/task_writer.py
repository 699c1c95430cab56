"""A writing task: groups its rows into chunks and appends each exactly once.

Chunks are sent to the leaders of their partitions, several per request if they belong to the same partition. A request
may be repeated at will, since the broker recognises a duplicate chunk (`identity`). After the query's timeout without
progress the last error is raised, and Spark repeats the task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

import pyarrow as pa

from tidelog.adapters.system import SystemClock
from tidelog.model.batch_codec import encode_batch
from tidelog.model.errors import IdempotencyKeyReused, LeaderNotAvailable, TidelogError, UnknownTopic
from tidelog.model.ids import TopicPartition
from tidelog.spark.chunks import Chunk, Chunker
from tidelog.spark.cluster import BATCHES_HEADERS, Cluster
from tidelog.spark.errors import NotRepeatable
from tidelog.spark.identity import chunk_producer, fingerprint
from tidelog.spark.sink_options import SinkOptions
from tidelog.spark.sink_rows import sink_rows
from tidelog.transport.metadata import TopicMetadata

HELD_BYTES = 8 << 20
"""Bytes of waiting chunks at which all of them are sent, several per request."""
ACCEPT_TIMEOUT_MS = 10_000


@dataclass
class Written:
    """The numbers of records and batches that a task wrote, including those that an earlier attempt had already
    written."""

    records: int = 0
    batches: int = 0


class TaskWriter:
    """The writer of one attempt of a task. `scope` names the task and its write, the same for all attempts."""

    def __init__(self, cluster: Cluster, options: SinkOptions, scope: str) -> None:
        self._cluster, self._options, self._scope = cluster, options, scope
        self._clock = SystemClock()
        self._topics: dict[str, TopicMetadata] = {}
        self._leaders: dict[TopicPartition, str] = {}
        self._partitions: dict[str, int] = {}
        self._held: dict[TopicPartition, list[tuple[Chunk, bytearray]]] = {}
        self._held_bytes = 0
        self._written = Written()

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Appends all rows. Raises `NotRepeatable` if an earlier attempt of this task wrote other rows; or the last
        error, if nothing could be appended for the query's timeout."""
        chunker = Chunker(self._partitions, self._scope)
        for batch in batches:
            for row in sink_rows(batch, self._options, self._clock.wall_ms()):
                if row.topic not in self._partitions:
                    self._look_up(row.topic)
                chunk = chunker.add(row)
                if chunk is not None:
                    self._hold(chunk)
            chunker.end_of_batch()
        for chunk in chunker.rest():
            self._hold(chunk)
        self._send_held()
        return self._written

    def _look_up(self, topic: str) -> None:
        """Looks up the leaders of a topic. The number of its partitions is taken at its first row and kept, since keys
        must not move within a task. Raises `UnknownTopic`."""
        metadata = self._cluster.metadata([topic])
        if not metadata.topics:
            raise UnknownTopic(f"topic {topic!r} does not exist; create it first, topics are never created by use")
        self._topics[topic] = metadata.topics[0]
        self._partitions.setdefault(topic, len(metadata.topics[0].partitions))
        addresses: Mapping[int, str] = {broker.node_id: broker.address for broker in metadata.brokers}
        for partition in metadata.topics[0].partitions:
            key = TopicPartition(topic, partition.partition)
            self._leaders.pop(key, None)
            if partition.leader in addresses:
                self._leaders[key] = addresses[partition.leader]

    def _hold(self, chunk: Chunk) -> None:
        self._held.setdefault(chunk.partition, []).append((chunk, self._encode(chunk)))
        self._held_bytes += chunk.size
        self._written.records += len(chunk.rows)
        self._written.batches += 1
        if self._held_bytes >= HELD_BYTES:
            self._send_held()

    def _encode(self, chunk: Chunk) -> bytearray:
        topic, partition = chunk.partition
        return encode_batch(
            chunk.rows,
            compression=self._options.compression,
            producer_id=chunk_producer(self._scope, self._topics[topic].topic_id, partition, chunk.position),
            producer_epoch=0,
            base_sequence=fingerprint(chunk.rows),
        )

    def _send_held(self) -> None:
        for partition, held in self._held.items():
            try:
                self._post(partition, b"".join(data for _, data in held))
            except IdempotencyKeyReused:  # nothing of it was appended; see which of them it is
                for chunk, data in held:
                    self._send(chunk, data)
        self._held, self._held_bytes = {}, 0

    def _send(self, chunk: Chunk, data: bytearray) -> None:
        """Appends one chunk. If an earlier attempt appended only its first rows, up to the end of one of Spark's
        batches, appends the rows after these. Raises `NotRepeatable` if an earlier attempt appended other rows."""
        try:
            self._post(chunk.partition, data)
        except IdempotencyKeyReused as error:
            for cut in chunk.cuts:
                if cut < len(chunk.rows) and self._is_there(chunk.first(cut)):
                    rest = chunk.after(cut)
                    self._send(rest, self._encode(rest))
                    return
            raise _not_repeatable(chunk.partition) from error

    def _is_there(self, beginning: Chunk) -> bool:
        """Returns True if exactly this beginning of a chunk was appended at its position by an earlier attempt. It is
        appended to find out: a repetition changes nothing, and other rows are refused."""
        try:
            self._post(beginning.partition, self._encode(beginning))
        except IdempotencyKeyReused:
            return False
        return True

    def _post(self, partition: TopicPartition, body: bytes | bytearray) -> None:
        """Sends a request to the leader, and repeats it until it is answered. Raises `IdempotencyKeyReused`, with
        nothing appended; or the last error, after the query's timeout without an answer."""
        target = (
            f"/topics/{quote(partition.topic, safe='')}/partitions/{partition.partition}/batches"
            f"?acks=all&timeout_ms={ACCEPT_TIMEOUT_MS}"
        )
        patience = self._cluster.patience()
        while True:
            try:
                leader = self._leaders.get(partition)
                if leader is None:
                    raise LeaderNotAvailable(f"partition {partition} has no leader at the moment")
                self._cluster.send("POST", leader, target, body=body, headers=BATCHES_HEADERS)
                return
            except TidelogError as error:
                if error.definite and not error.retriable:
                    raise
                patience.pause(error)
                self._look_up(partition.topic)


def _not_repeatable(partition: TopicPartition) -> NotRepeatable:
    return NotRepeatable(
        f"{partition}: this part of the batch was written before, with other rows. What a batch writes must be the "
        "same each time it is computed: sort the rows within their partitions before the sink "
        "(DataFrame.sortWithinPartitions), or set idempotence=false to append them once more"
    )
