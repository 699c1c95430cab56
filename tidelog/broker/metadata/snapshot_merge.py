"""Merges the copies that several brokers have of one metadata snapshot: one sound copy of each chunk is enough.

Snapshots with equal headers are one snapshot: position, size, root hash and voters are the same. A chunk's own hash
proves that it is sound and belongs to this position and index; only the root hash proves that all chunks belong to this
snapshot. If they do not, a broker gave chunks of another snapshot: then every broker is asked for all chunks that it
has, and the merge is tried with each broker's chunks alone, and with those of all brokers but one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from tidelog.storage.snapshot_format import SnapshotHeader, is_sound, root_of

SNAPSHOTS_MAX = 8
"""The most snapshots that are merged at once. A broker keeps two."""


class PartialSnapshot:
    """The chunks collected for the snapshot with this header. With `asks_all`, each broker is asked also for chunks
    that another has given."""

    def __init__(self, header: SnapshotHeader, *, asks_all: bool = False) -> None:
        self.header = header
        self._asks_all = asks_all
        self._given: dict[int, dict[int, bytes]] = {}
        """The sound chunks by broker and index. Equal chunks share one object."""
        self._chunks: dict[tuple[int, bytes], bytes] = {}

    def add(self, node: int, blocks: Mapping[int, bytes]) -> None:
        """Adds the chunks that a broker gave and that are sound."""
        given = self._given.setdefault(node, {})
        for index, block in blocks.items():
            # A chunk's hash covers position and index, so a chunk of another place cannot pass for it.
            if 0 <= index < self.header.chunk_count and is_sound(self.header, index, block):
                given[index] = self._chunks.setdefault((index, block), block)

    def to_request(self, node: int) -> list[int]:
        """Returns the indexes of the chunks that this broker is to be asked for."""
        had = self._given.get(node, {}) if self._asks_all else _merge(self._given.values())
        return [index for index in range(self.header.chunk_count) if index not in had]

    def whole(self) -> list[bytes] | None:
        """Returns all chunks in order if they match the header's root hash; else None."""
        for merged in self._merged():
            if len(merged) == self.header.chunk_count:
                blocks = [merged[index] for index in range(len(merged))]
                # Each chunk may be sound, and of another snapshot of this position: only the root tells.
                if root_of(blocks) == self.header.root:
                    return blocks
        return None

    @property
    def is_contradictory(self) -> bool:
        """True if each chunk was given, but together they do not match the header's root hash."""
        return len(_merge(self._given.values())) == self.header.chunk_count and self.whole() is None

    def _merged(self) -> Iterator[dict[int, bytes]]:
        given_by_brokers = list(self._given.values())
        yield _merge(given_by_brokers)
        for i, given in enumerate(given_by_brokers):
            yield given
            # One broker that gives chunks of another snapshot must not spoil what the others have.
            yield _merge(given_by_brokers[:i] + given_by_brokers[i + 1 :])


def _merge(given: Iterable[Mapping[int, bytes]]) -> dict[int, bytes]:
    return {index: block for blocks in given for index, block in blocks.items()}


class SnapshotMerge:
    """The candidate snapshots that brokers have named; `would_do` selects the acceptable headers."""

    def __init__(self, would_do: Callable[[SnapshotHeader], bool]) -> None:
        self._would_do = would_do
        self._candidates: dict[SnapshotHeader, PartialSnapshot] = {}

    def begin_round(self) -> None:
        """Begins another round of asking all brokers; snapshots whose chunks do not fit together are collected anew."""
        for header, candidate in self._candidates.items():
            # Somebody's chunks are of another snapshot, and nobody can tell whose: all are asked for all.
            if candidate.is_contradictory:
                self._candidates[header] = PartialSnapshot(header, asks_all=True)

    def name(self, headers: Iterable[SnapshotHeader]) -> None:
        """Adds the acceptable snapshots among those that a broker has."""
        for header in headers:
            if self._would_do(header):
                self._candidates.setdefault(header, PartialSnapshot(header))
        # Headers come from other brokers, so their number is bounded.
        for candidate in self.newest_first()[SNAPSHOTS_MAX:]:
            del self._candidates[candidate.header]

    def newest_first(self) -> list[PartialSnapshot]:
        """Returns all candidates, the newest first. A broker that did not name a snapshot may have its chunks without
        its header."""
        return sorted(self._candidates.values(), key=lambda candidate: -candidate.header.position)
