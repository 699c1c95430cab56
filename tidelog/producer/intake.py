"""Acquires what a record needs before it is buffered: its topic's metadata, and an open batch with memory.

`send` appends to an open batch with room, and calls this module only if there is none: once per topic and once per
batch. So a few microseconds per call are acceptable.
"""

from __future__ import annotations

import asyncio
import logging

from tidelog.model.batch_header import HEADER_BYTES
from tidelog.model.errors import TidelogError, TooLarge, UnknownTopic
from tidelog.model.ids import TopicPartition
from tidelog.model.ports import Entropy
from tidelog.producer.accumulator import Batch, PartitionQueue
from tidelog.producer.options import ProducerOptions
from tidelog.producer.routes import TopicRoute
from tidelog.producer.sender import Sender
from tidelog.transport.errors import BufferFull, ClientClosed
from tidelog.transport.session import ClusterSession

logger = logging.getLogger(__name__)

DEPARTURE_TURNS = 12
"""Turns of the event loop for which a caller waits after a response has freed memory: by then the next request has
been sent."""


class Intake:
    """Opens batches for records while the producer is open. `routes` holds the known topics; it is empty after
    `close`."""

    def __init__(self, session: ClusterSession, sender: Sender, options: ProducerOptions, entropy: Entropy) -> None:
        self.routes: dict[str, TopicRoute] = {}
        self.is_open = False
        self._session = session
        self._sender = sender
        self._options = options
        self._entropy = entropy
        self._turn = asyncio.Lock()
        self._renewal: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Rejects further records."""
        self.is_open = False
        self.routes.clear()
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)

    @property
    def is_waiting(self) -> bool:
        """True while a caller waits for memory."""
        return self._turn.locked()

    async def route(self, topic: str) -> TopicRoute:
        """Returns the route of a topic (its queues and partitioner), and refreshes stale metadata. Raises
        `UnknownTopic`, `ClientClosed`."""
        self._check_usable()
        metadata = await self._session.topic(topic, timeout_s=self._options.max_block_s)
        self._check_usable()
        accumulator = self._sender.accumulator
        queues = [accumulator.queue(TopicPartition(topic, info.partition)) for info in metadata.partitions]
        available = [info.partition for info in metadata.partitions if info.leader >= 0]
        route = TopicRoute(topic, queues, available, int(self._entropy.uniform(0, len(queues))))
        self.routes[topic] = route
        return route

    async def open_batch(self, route: TopicRoute, queue: PartitionQueue | None, size: int) -> Batch:
        """Returns an open batch of `queue`, or of the sticky partition's queue if None, with room for a record of
        `size` bytes.

        The caller adds the record without awaiting anything. After a full batch this yields to the event loop once, and
        also if the batch needs more memory while other batches are due; so a tight loop of sends does not starve the
        sender. Raises `TooLarge`, `BufferFull`, `ClientClosed`, or the error that stopped the producer.
        """
        if HEADER_BYTES + size > self._options.max_request_size:
            raise TooLarge(f"a record of {size} bytes is over max_request_size ({self._options.max_request_size})")
        accumulator = self._sender.accumulator
        target = route.sticky if queue is None else queue
        is_full = target.open is not None and not accumulator.grow(target, size)
        is_due = not is_full and accumulator.has_due(asyncio.get_running_loop().time())
        if target.open is not None and not is_full and not is_due:
            return target.open
        if queue is None and (is_full or target.open is None):
            route.advance()
        if is_full:
            accumulator.seal(target)
        if is_full or is_due:
            await asyncio.sleep(0)
        self._renew(route)
        if self._turn.locked() or not self._sender.accumulator.has_memory_for(size):
            return await self._open_in_turn(route, queue, size)
        return self._open_now(route, queue, size)

    async def _open_in_turn(self, route: TopicRoute, queue: PartitionQueue | None, size: int) -> Batch:
        """Waits for memory, first come, first served, and opens a batch. Raises `BufferFull` after `max_block_ms`."""
        sender = self._sender
        try:
            async with asyncio.timeout(self._options.max_block_s), self._turn:
                while not sender.accumulator.has_memory_for(size):
                    self._check_usable()
                    sender.accumulator.make_room()
                    sender.memory_freed.clear()
                    await sender.memory_freed.wait()
                    await _next_request_departs()
                return self._open_now(route, queue, size)
        except TimeoutError:
            raise BufferFull(
                f"buffer_memory ({self._options.buffer_memory} bytes) stayed full for max_block_ms; "
                "brokers take records in more slowly than they are sent"
            ) from None

    def _open_now(self, route: TopicRoute, queue: PartitionQueue | None, size: int) -> Batch:
        self._check_usable()
        target = route.sticky if queue is None else queue
        if target.open is not None:
            if self._sender.accumulator.grow(target, size):
                return target.open
            self._sender.accumulator.seal(target)
        return self._sender.accumulator.open_batch(target, size, asyncio.get_running_loop().time())

    def _renew(self, route: TopicRoute) -> None:
        """Starts a task that looks for new partitions of the topic, if its metadata is stale."""
        if (self._renewal is None or self._renewal.done()) and not self._session.is_fresh(route.topic):
            self._renewal = asyncio.get_running_loop().create_task(self._renew_route(route.topic))

    async def _renew_route(self, topic: str) -> None:
        try:
            await self.route(topic)
        except UnknownTopic:
            self.routes.pop(topic, None)  # the next `send` says so
        except TidelogError as error:
            logger.info("metadata of %s could not be renewed: %s", topic, error.message)

    def _check_usable(self) -> None:
        if self._sender.fatal is not None:
            raise self._sender.fatal.with_traceback(None)
        if not self.is_open:
            raise ClientClosed("this producer is closed, or was never started (use `async with`)")


async def _next_request_departs() -> None:
    """Waits until the next request is sent. A response frees memory, and the broker is then idle: a producer that
    filled a batch in each turn of the event loop would delay the next request several times over."""
    for _ in range(DEPARTURE_TURNS):
        await asyncio.sleep(0)
