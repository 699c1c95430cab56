"""The public producer: aiokafka's method names, tidelog's guarantees.

`send` adds a record to its partition's open batch and returns. `intake` opens batches, `sender` sends them: when they
are full, when their linger ends, or when `hurry` is called. Everything runs in one event loop.
"""

from __future__ import annotations

import logging
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from types import TracebackType
from typing import Self, Unpack

from tidelog.adapters.broker_frames import dial, in_thread
from tidelog.adapters.secret_file import read_secret
from tidelog.adapters.system import SystemClock, SystemEntropy
from tidelog.model.batch_header import Compression
from tidelog.model.errors import InvalidRequest, TidelogError
from tidelog.model.ports import Clock, Entropy
from tidelog.model.records import Header, RecordLike
from tidelog.producer.accumulator import RECORD_OVERHEAD_BYTES, Batch, PartitionQueue
from tidelog.producer.checks import check_timestamp, checked_record, checked_triples
from tidelog.producer.delivery import Deliveries, Delivery, RecordMetadata, settled
from tidelog.producer.intake import Intake
from tidelog.producer.options import ProducerOptions, parse_acks
from tidelog.producer.routes import TopicRoute
from tidelog.producer.sender import Sender
from tidelog.transport.addresses import DEFAULT_BOOTSTRAP
from tidelog.transport.frames.session import AUTO, RecordSession
from tidelog.transport.parameters import client_parameters
from tidelog.transport.security import Security, SecurityParameters

logger = logging.getLogger(__name__)


class Producer:
    """Writes records to topics, in order per partition, each exactly once.

    - `bootstrap_servers`: URLs or `host:port` of some brokers of the cluster, comma-separated or as a list.
    - `acks`: `"all"` waits until the commit quorum has the records on disk; `1` for the leader; `0` for no response.
    - `linger_ms`: how long a record may wait for others to share its batch. `send_and_wait` never lingers.
    - `batch_size`: maximum bytes of a batch.
    - `compression_type`: `none`, `gzip`, `snappy`, `lz4` or `zstd`, of whole batches.
    - `enable_idempotence`: number records so that retries never append twice. Without it, or with `acks=0`, a request
      whose outcome is unknown is not retried.
    - `buffer_memory`: maximum bytes of records without an outcome; when it is used up `send` waits, at most
      `max_block_ms`.
    - `max_request_size`: maximum bytes of records per request, and of one record.
    - `client_id`: the client's name for quotas and logs.
    - `transport`: the protocol for records: `auto` (Kafka's protocol where the broker's Kafka listener accepts this
      client's login, else HTTP), `http` or `kafka`. Everything else uses HTTP.
    - `sasl_mechanism` (`PLAIN`), `sasl_username` and `sasl_password`, or `sasl_password_file`: the user's credentials.
      `token_file` is a file with a token instead. Only the owner may be able to read files with secrets (mode 0600).
    - `request_timeout_ms` bounds one attempt, `delivery_timeout_ms` the time from `send` to the record's outcome.
    - `security_protocol`: `SSL` or `PLAINTEXT`, where the addresses have no scheme. `ssl_ca_location`: a PEM file with
      the CAs of the brokers' certificates, instead of the system's. `ssl_keystore_location`: a PEM file with this
      client's private key and certificate. `ssl_endpoint_identification_algorithm`: empty to accept certificates for
      other host names.

    Use it as an async context manager, or call `start` and `stop`.
    """

    @client_parameters(
        bootstrap="bootstrap_servers",
        batch_bytes="batch_size",
        compression="compression_type",
        idempotent="enable_idempotence",
    )
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = DEFAULT_BOOTSTRAP,
        *,
        acks: str | int = "all",
        linger_ms: float = 5,
        batch_size: int = 65536,
        compression_type: str = "none",
        enable_idempotence: bool = True,
        buffer_memory: int = 32 << 20,
        max_block_ms: float = 60_000,
        max_request_size: int = 1 << 20,
        request_timeout_ms: float = 30_000,
        delivery_timeout_ms: float = 120_000,
        metadata_max_age_ms: float = 300_000,
        client_id: str = "",
        transport: str = AUTO,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        **security: Unpack[SecurityParameters],
    ) -> None:
        self._options = ProducerOptions(
            acks=parse_acks(acks),
            linger_s=linger_ms / 1000,
            batch_size=batch_size,
            compression=Compression.from_name(compression_type),
            is_idempotent=enable_idempotence and parse_acks(acks) != "0",
            buffer_memory=buffer_memory,
            max_block_s=max_block_ms / 1000,
            max_request_size=max_request_size,
            request_timeout_s=request_timeout_ms / 1000,
            delivery_timeout_s=delivery_timeout_ms / 1000,
        )
        secure = Security(**security)
        entropy = entropy or SystemEntropy()
        self._wall_ms = (clock or SystemClock()).wall_ms
        self._session = RecordSession(
            bootstrap_servers,
            transport=transport,
            dial=dial,
            in_thread=in_thread,
            request_timeout_s=request_timeout_ms / 1000,
            metadata_max_age_s=metadata_max_age_ms / 1000,
            client_id=client_id,
            entropy=entropy,
            credentials=secure.credentials(read_secret),
            security=secure,
        )
        self._sender = Sender(self._session, self._options)
        self._intake = Intake(self._session, self._sender, self._options, entropy)
        self._routes = self._intake.routes

    # -- life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connects to the cluster. Raises `ConnectFailed` if no broker of the bootstrap list can be reached."""
        await self._session.open()
        self._intake.is_open = True

    async def stop(self) -> None:
        """Rejects new records, delivers those already sent, and closes. Idempotent.

        Takes at most `delivery_timeout_ms`. After closing, raises the first error of a record whose delivery nobody has
        awaited.
        """
        if not self._intake.is_open:
            return
        try:
            await self._intake.close()
            await self.flush()
        finally:
            await self._sender.close()
            await self._session.close()

    close = stop

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.stop()
        except TidelogError:
            if error is None:  # the caller's own error says more than what it did to the records on their way
                raise

    def __del__(self) -> None:
        """Warns about a producer that was garbage-collected without `stop`, and about the records lost with it."""
        intake = getattr(self, "_intake", None)  # missing if a setting was refused
        if intake is None or not intake.is_open:
            return
        queues = self._sender.accumulator.queues()
        unsent = [(queue.partition, count) for queue in queues if (count := queue.unsettled_records)]
        text = "a producer was dropped without `stop`; use `async with`, or `await producer.stop()`"
        if unsent:
            text = f"{text}. Not delivered: {', '.join(f'{count} records to {at}' for at, count in unsent)}"
            logger.error("%s", text)  # as few programs show warnings about resources
        warnings.warn(text, ResourceWarning, source=self, stacklevel=1)

    async def partitions_for(self, topic: str) -> list[int]:
        """Returns the partition numbers of a topic. Raises `UnknownTopic`."""
        return list(range(len((await self._session.topic(topic)).partitions)))

    # -- sending -------------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] | None = None,
    ) -> Delivery:
        """Buffers a record and returns a `Delivery`, before the record is sent. Awaiting the delivery returns the
        record's metadata or raises its error.

        The partition is `partition`, or the key's hash, or one that changes with every batch. A `None` value is a
        tombstone. Waits only for metadata at a topic's first record, and for memory when `buffer_memory` is used up.

        Raises `UnknownTopic`, `UnknownPartition`, `TooLarge`, `InvalidRequest`; `BufferFull` after `max_block_ms`;
        `ClientClosed`, or the error that stopped this producer.
        """
        route = self._routes.get(topic) or await self._intake.route(topic)
        if timestamp_ms is None:
            timestamp_ms = self._wall_ms()
        else:
            check_timestamp(timestamp_ms)
        # The common record by the short way: bytes, no headers. Everything else is checked with care.
        record: RecordLike = (timestamp_ms, key, value)
        if type(value) is bytes and not headers and key is None:
            size = RECORD_OVERHEAD_BYTES + len(value)
        else:
            record, size = checked_record(timestamp_ms, key, value, headers)
        queue = None
        if partition is not None:
            queue = route.at(partition)
        elif key is not None:
            queue = route.for_key(key)
        batch = (queue or route.sticky).open
        if batch is None or batch.room < size:
            batch = await self._intake.open_batch(route, queue, size)
        batch.room -= size
        records = batch.records
        index = len(records)
        records.append(record)
        return Delivery(batch, index, timestamp_ms)

    async def send_and_wait(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] | None = None,
    ) -> RecordMetadata:
        """Sends a record without linger, and returns its metadata once the broker has acknowledged it. Raises the
        record's error.

        Many concurrent calls still share batches, because one request at a time is in flight per partition.
        """
        delivery = await self.send(topic, value, key, partition, timestamp_ms, headers)
        delivery.hurry()
        return await delivery

    async def send_batch(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        partition: int | None = None,
    ) -> Deliveries:
        """Sends all values (with the key at the same index), several times cheaper than by `send`. Awaiting the result
        returns the metadata of all records.

        Records of one partition keep their order. Without keys and partition they fill one batch after another, so only
        large amounts spread over partitions.
        """
        route = self._routes.get(topic) or await self._intake.route(topic)
        if keys is not None and len(keys) != len(values):
            raise InvalidRequest(f"{len(values)} values and {len(keys)} keys: give as many of each")
        timestamp_ms = self._wall_ms()
        triples, sizes = checked_triples(timestamp_ms, values, keys)
        spans: list[tuple[Batch, int, Sequence[int]]] = []
        if keys is None or partition is not None:
            queue = None if partition is None else route.at(partition)
            await self._fill(route, queue, triples, sizes, range(len(triples)), spans)
            return Deliveries(spans, len(values), timestamp_ms)
        for queue, positions in _by_queue(route, triples).items():
            chosen = [triples[position] for position in positions]
            await self._fill(route, queue, chosen, [sizes[position] for position in positions], positions, spans)
        return Deliveries(spans, len(values), timestamp_ms)

    async def _fill(
        self,
        route: TopicRoute,
        queue: PartitionQueue | None,
        records: Sequence[RecordLike],
        sizes: Sequence[int],
        positions: Sequence[int],
        spans: list[tuple[Batch, int, Sequence[int]]],
    ) -> None:
        """Adds records to successive batches of `queue`, or of the sticky partitions if None; appends to `spans` which
        records are in which batch."""
        ends = list(accumulate(sizes, initial=0))
        start = 0
        while start < len(records):
            target = route.sticky if queue is None else queue
            batch = target.open
            if batch is None or batch.room < sizes[start]:
                batch = await self._intake.open_batch(route, queue, sizes[start])
            stop = bisect_right(ends, ends[start] + batch.room) - 1
            spans.append((batch, len(batch.records), positions[start:stop]))
            batch.records.extend(records[start:stop])
            batch.room -= ends[stop] - ends[start]
            start = stop

    async def flush(self) -> None:
        """Sends everything now, and waits until every record accepted before this call has its outcome.

        Raises the first error of a record whose delivery nobody has awaited, so that such failures are not silent.
        """
        self._sender.hurry()
        for batch in [queue.last for queue in self._sender.accumulator.queues()]:
            if batch is not None:
                await settled(batch)
        error = self._sender.take_unreported()
        if error is not None:
            raise error.with_traceback(None)


def _by_queue(route: TopicRoute, triples: Sequence[RecordLike]) -> dict[PartitionQueue, list[int]]:
    """Returns the indices of the records by partition queue, in order; records without a key go to the sticky
    partition."""
    positions: dict[PartitionQueue, list[int]] = {}
    for position, triple in enumerate(triples):
        key = triple[1]
        queue = route.sticky if key is None else route.for_key(key)
        positions.setdefault(queue, []).append(position)
    return positions
