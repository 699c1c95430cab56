"""Removing from the disk what this broker no longer holds: deleted topics, and replicas that were reassigned.

Only because the metadata says so, never because it does not mention something: a directory of an unknown topic may be
all that is left of a damaged metadata log. A deleted topic id never comes back. A partition's replica is removed from
this broker only when all its target replicas are in sync, or together with the reassignment that brought it; should it
come back, it is a follower that is not in sync, in a later leader epoch, and what the earlier log acknowledged does not
count.

A directory is renamed first, durably: from then on nothing takes it for a log. Its files are removed afterwards, on the
disk threads, one directory at a time (`run`), while the broker serves; so are those that an earlier process has left
(`begin`).

While it runs, a broker removes logs as soon as it no longer holds them. Replicas that were reassigned while it was down
are found by one look at its directories, when the image has this process registered: an older image may be outdated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial

import structlog

from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.model.cluster import ClusterImage
from tidelog.model.errors import TidelogError
from tidelog.model.ids import NodeId, PartitionId, TopicId
from tidelog.storage.log_manager import LogManager

logger = structlog.get_logger("tidelog.broker")


class Removal:
    """Removes replicas that one broker no longer holds. A removal that the disk refuses is tried again at the next
    change of the metadata image, or at the next start."""

    def __init__(
        self, node_id: NodeId, manager: LogManager, log_writer: LogWriter, removed: Callable[[TopicId], None]
    ) -> None:
        """`removed` is called with each deleted topic of which nothing is left on this disk."""
        self._node_id = node_id
        self._manager = manager
        self._log_writer = log_writer
        self._removed = removed
        self._gone: dict[TopicId, None] = {}
        self._unheld: dict[PartitionId, None] = {}
        """Replicas whose directories are on the disk, found when the directories were listed or left by a removal that
        failed. `follow` removes those that the metadata assign to other brokers only."""
        self._has_looked = False
        self._aside: dict[str, TopicId | None] = {}
        """Renamed directories to remove, each with the topic that is gone when it is removed, or None."""
        self._has_more = asyncio.Event()

    async def begin(self) -> None:
        """Removes what an earlier process has left half removed or half made. Must be called before any log is made."""
        try:
            await self._log_writer.perform(self._manager.remove_leftovers)
        except OSError as error:
            logger.error("what is left of removed logs could not be removed", error=str(error))

    async def run(self) -> None:
        """Removes the files of renamed directories, until cancelled."""
        while True:
            await self._has_more.wait()
            self._has_more.clear()
            while self._aside:
                directory = next(iter(self._aside))
                topic_id = self._aside[directory]
                await self._remove_files(directory, topic_id)
                del self._aside[directory]

    async def _remove_files(self, directory: str, topic_id: TopicId | None) -> None:
        steps: list[Callable[[], None]] = []
        try:
            await self._log_writer.perform(lambda: steps.extend(self._manager.removals(directory)))
            for step in steps:
                await self._log_writer.perform(step)
        except OSError as error:
            logger.error("removed data is still on the disk", directory=directory, error=str(error))
            if topic_id is not None:
                self._gone.pop(topic_id, None)
        else:
            if topic_id is not None:
                self._removed(topic_id)

    async def follow(
        self, image: ClusterImage, held: Collection[PartitionId], *, is_admitted: bool
    ) -> list[PartitionId]:
        """Removes what `image` says is no longer held; returns the partitions whose logs are not used any more.

        `held` are the partitions that have a replica here; no others may be in use. `is_admitted` says that the image
        has this very process registered as its node's broker.
        """
        deleted = await self._remove_deleted(image)
        return [*deleted, *(await self._remove_moved(image, held) if is_admitted else ())]

    async def _remove_deleted(self, image: ClusterImage) -> list[PartitionId]:
        removed: list[PartitionId] = []
        deleted = [topic_id for topic_id, holders in image.deleted_topics.items() if self._node_id in holders]
        self._gone = {topic_id: None for topic_id in deleted if topic_id in self._gone}
        for topic_id in [topic_id for topic_id in deleted if topic_id not in self._gone]:
            partition_ids = [name for name in self._manager.logs if name.topic_id == topic_id]
            removed += partition_ids  # also if the disk refuses the removal: their logs are closed all the same
            try:
                await self._close_removed(partition_ids)
                await self._set_aside(partial(self._manager.set_topic_aside, topic_id), topic_id)
            except (OSError, TidelogError) as error:
                logger.error("a deleted topic's data could not be removed", topic_id=topic_id, error=str(error))
            else:
                self._gone[topic_id] = None
        return removed

    async def _close_removed(self, partition_ids: Sequence[PartitionId]) -> None:
        for partition_id in partition_ids:
            if partition_id in self._manager.logs:
                await self._log_writer.at_rest(self._manager.logs[partition_id])
            self._manager.close_removed([partition_id])
            await asyncio.sleep(0)

    async def _set_aside(self, call: Callable[[], str], topic_id: TopicId | None) -> None:
        (outcome,) = await self._log_writer.perform_all([partial(_attempt, call)])
        if isinstance(outcome, OSError):
            raise outcome
        self._aside[outcome] = topic_id
        self._has_more.set()

    async def _remove_moved(self, image: ClusterImage, held: Collection[PartitionId]) -> list[PartitionId]:
        await self._look()
        unheld = [name for name in (*self._unheld, *self._manager.logs) if name not in held]
        reassigned = list(dict.fromkeys(name for name in unheld if self._is_taken(image, name)))
        removed = [partition_id for partition_id in reassigned if await self._remove(partition_id)]
        for partition_id in removed:
            self._unheld.pop(partition_id, None)
        return removed

    async def _look(self) -> None:
        """Lists the replicas on the disk, once."""
        if self._has_looked:
            return
        stored: list[PartitionId] = []
        try:
            await self._log_writer.perform(lambda: stored.extend(self._manager.partition_ids()))
        except OSError as error:
            logger.error("replicas that were reassigned could not be looked for", error=str(error))
        else:
            self._unheld = dict.fromkeys(stored)
            self._has_looked = True

    def _is_taken(self, image: ClusterImage, partition_id: PartitionId) -> bool:
        """Returns True if the metadata knows the partition and assigns it to other brokers only, or says that its topic
        was deleted."""
        if partition_id.topic_id in image.deleted_topics:
            return True
        topic = image.topic_by_id(partition_id.topic_id)
        # A topic that the metadata does not know may be all that is left of a damaged metadata log: it stays.
        if topic is None or partition_id.partition >= len(topic.partitions):
            return False
        return self._node_id not in topic.partitions[partition_id.partition].replicas

    async def _remove(self, partition_id: PartitionId) -> bool:
        try:
            await self._close_removed([partition_id])
            await self._set_aside(partial(self._manager.set_partition_aside, partition_id), None)
        except (OSError, TidelogError) as error:
            self._unheld[partition_id] = None
            logger.error(
                "a replica that was reassigned could not be removed", partition=str(partition_id), error=str(error)
            )
            return False
        logger.info("removed a replica that has been reassigned", partition=str(partition_id))
        return True


def _attempt(call: Callable[[], str]) -> str | OSError:
    """Makes a call, on a disk thread; returns its result or its `OSError`."""
    try:
        return call()
    except OSError as error:
        return error
