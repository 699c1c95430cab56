"""The intact copies of batches on the disks now: a fault that damages a copy first asks here for the others.

One good copy is enough to demand a record, in a log or in the journal of a Paxos replica. But when a log is opened, it
ends at its first hole, and what lies behind is dropped: that does not count as a copy.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import groupby, takewhile
from typing import NamedTuple

from tidelog.model.batch_header import verify_batch
from tidelog.model.errors import TidelogError
from tidelog.model.ids import OFFSET_MAX, PartitionId
from tidelog.sim.cluster.data_rot import CopyExtent, batches_in, durable_files
from tidelog.sim.cluster.journal_rot import payloads_in
from tidelog.sim.cluster.ledger import Ledger
from tidelog.sim.cluster.shadows import Held
from tidelog.sim.cluster.world import World
from tidelog.storage.log_manager import JOURNAL, log_directory
from tidelog.storage.rows import RowCodec

FILES_PER_SEGMENT = 2


class Copy(NamedTuple):
    """Copy of one batch in a log, or of the batches of one value in a journal."""

    extent: CopyExtent
    batches: tuple[Held, ...]

    @property
    def node(self) -> int:
        return self.extent.node


def _connected(files: Mapping[str, bytes]) -> list[str]:
    """Returns the segments before the first one of which a power cut has left only one of its two files, log and
    catalog: the log ends there when it is opened."""
    whole = takewhile(lambda names: len(names) == FILES_PER_SEGMENT, _by_segment(files))
    return [max(names) for names in whole]


def _by_segment(files: Mapping[str, bytes]) -> Iterator[list[str]]:
    names = sorted(path for path in files if path.endswith((".log", ".catalog")))
    return (list(group) for _, group in groupby(names, key=lambda path: path.rpartition(".")[0]))


def end_of(partition_id: PartitionId, files: Mapping[str, bytes]) -> int:
    """Returns the end offset that the log in these files has when it is opened: the first offset that is in no valid
    catalog row and in no intact batch.

    A log that was durable beyond such a hole does not end there; its batches behind the hole are not counted as copies
    all the same.
    """
    paths = _connected(files)
    rows = [row for path in paths for row in RowCodec(partition_id).bodies(files[catalog_of(path)]) if row is not None]
    spans = [(row.first_offset, row.next_offset) for row in rows]
    spans += [span for path in paths for span in _sound_spans(path, files[path])]
    start = max((row.start_offset for row in rows), default=0)
    end = max((base for base in map(_base_of, paths) if base <= start), default=_base_of(paths[0]) if paths else 0)
    for begin, after in sorted(spans):
        end = max(end, after) if begin <= end else end
    return end


def _sound_spans(path: str, content: bytes) -> Iterator[tuple[int, int]]:
    """Yields the offset range of each intact batch. A range begins at the end of the batch before, if that is intact,
    since no other batch accounts for skipped offsets between them."""
    begin = _base_of(path)
    for batch, extent in batches_in(0, path, content):
        is_sound = _is_sound(content[extent.position : extent.position + extent.size])
        if is_sound:
            yield min(begin, batch.base), batch.end
        begin = batch.end if is_sound else OFFSET_MAX


def _is_sound(batch: bytes) -> bool:
    try:
        verify_batch(batch)
    except TidelogError:
        return False
    return True


def catalog_of(path: str) -> str:
    """Returns the path of a segment's catalog, given that of its log file."""
    return path.removesuffix(".log") + ".catalog"


def _base_of(path: str) -> int:
    return int(path.rpartition("/")[2].removesuffix(".log"))


class GoodCopies:
    """Finds the undamaged copies of batches on the disks of one run."""

    def __init__(self, world: World, ledger: Ledger) -> None:
        self._world = world
        self._ledger = ledger

    def _in_log(self, node: int, partition_id: PartitionId) -> list[Copy]:
        files = durable_files(self._world.medium(node), log_directory(partition_id))
        return [
            Copy(extent, (batch,))
            for path in _connected(files)
            for batch, extent in batches_in(node, path, files[path])
        ]

    def _in_journal(self, node: int, partition_id: PartitionId) -> list[Copy]:
        files = durable_files(self._world.medium(node), f"{log_directory(partition_id)}/{JOURNAL}")
        return [
            Copy(CopyExtent(node, payload.path, payload.position, payload.size), tuple(payload.batches))
            for payload in payloads_in(partition_id, files, is_known_durable=False)
        ]

    def read(self, partition_id: PartitionId, node: int, *, is_journal: bool) -> list[Copy]:
        """Returns, in order, the durable and intact batches of a node's log, or the values with batches of its
        journal."""
        return self._in_journal(node, partition_id) if is_journal else self._in_log(node, partition_id)

    def committed(self, partition_id: PartitionId, node: int, *, is_journal: bool) -> list[Copy]:
        """Returns the copies of committed batches that must not be lost; none for a partition whose losses are
        excused."""
        book = self._ledger.books[partition_id]
        if book.is_gone or book.is_volatile or book.is_unclean or book.reset_epoch is not None:
            return []
        committed = {batch for batch in book.batches if batch.base >= book.start}
        copies = self.read(partition_id, node, is_journal=is_journal)
        return [copy for copy in copies if committed.issuperset(copy.batches)]

    def may_go(self, partition_id: PartitionId, copies: list[Copy]) -> bool:
        """Returns True if each batch of these copies has another undamaged copy on the disk of a replica, where the
        replica finds it when it starts."""
        others = {
            batch
            for node in self._ledger.replicas(partition_id)
            for is_journal in (False, True)
            for copy in self._recoverable(partition_id, node, is_journal=is_journal)
            if copy not in copies
            for batch in copy.batches
        }
        return all(others.issuperset(copy.batches) for copy in copies)

    def _recoverable(self, partition_id: PartitionId, node: int, *, is_journal: bool) -> list[Copy]:
        copies = self.read(partition_id, node, is_journal=is_journal)
        if is_journal:
            return copies
        end = end_of(partition_id, durable_files(self._world.medium(node), log_directory(partition_id)))
        return [copy for copy in copies if copy.batches[-1].end <= end]

    def pick(
        self, drawn: Mapping[PartitionId, list[Copy]], rng: random.Random
    ) -> tuple[PartitionId, list[Copy]] | None:
        """Picks at random the partition that a fault is to hit, and returns it with the copies to be damaged.

        `drawn` has for each partition the copies that the fault would damage there. Only a partition with copies, of
        which each batch has another undamaged copy (`may_go`), can be picked. If there is none, the fault must not
        happen: returns None, and counts it as withheld.
        """
        candidates = [
            (partition_id, copies)
            for partition_id, copies in drawn.items()
            if copies and self.may_go(partition_id, copies)
        ]
        return self._world.draw(candidates, rng)
