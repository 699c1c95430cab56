"""Payloads in memory, by digest, from their arrival until the log that needs them has them on disk.

The engine decides on values, which name their payloads by digest. A payload may be needed after its message: a
candidate proposes the values that promises have shown it, once a quorum has promised. So a proposer keeps every payload
until its term ends; those below the applied prefix, which are never proposed again, are dropped before.

A replica that proposes nothing keeps the accepted payloads until they are applied, which is soon, within a bound
(`trim`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xxhash import xxh3_128_digest

from tidelog.model.ports import Buffer
from tidelog.replication.paxos.state import Value

HELD_BYTES_MAX = 16 << 20
"""Bytes of payloads that a replica that proposes nothing keeps: a window of large values."""


class Payloads:
    """The payloads that one replica keeps in memory, bounded by the engine's window and the values that were open at an
    election."""

    def __init__(self) -> None:
        self._held: dict[bytes, Buffer] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, payload: Buffer) -> bytes:
        """Keeps a payload in memory, whose bytes never change again; returns its digest."""
        digest = digest_of(payload)
        self.hold_as(digest, payload)
        return digest

    def hold_as(self, digest: bytes, payload: Buffer) -> None:
        """Keeps a payload in memory, under its digest."""
        # One payload may be held for several positions; it is counted once.
        if digest not in self._held:
            self._held[digest] = payload
            self._bytes += len(payload)

    def get(self, digest: bytes) -> Buffer | None:
        return self._held.get(digest)

    def release(self, digest: bytes) -> None:
        """Drops a payload that will not be requested any more."""
        self._bytes -= len(self._held.pop(digest, b""))

    def trim(self, *, is_any_open: bool) -> None:
        """Drops the oldest payloads of a replica that proposes nothing, down to `HELD_BYTES_MAX`, or all if no position
        is open: they are on the disk, or of no use."""
        # Such a replica could read all that it accepted back from its disk, so nothing here is needed; it saves reads.
        # Dictionaries keep the order of insertion: the oldest payload is the one that is on disk for longest.
        while self._bytes > (HELD_BYTES_MAX if is_any_open else 0):
            self.release(next(iter(self._held)))

    def clear(self) -> None:
        self._held.clear()
        self._bytes = 0


def digest_of(payload: Buffer) -> bytes:
    return xxh3_128_digest(payload)


def split(payload: memoryview, sizes: Sequence[int], values: Iterable[Value]) -> list[memoryview] | None:
    """Returns the payloads of a frame, as views of it; None if they do not match the digests of its values."""
    parts: list[memoryview] = []
    position = 0
    for value, size in zip(values, sizes, strict=True):
        part = payload[position : position + size]
        # The digest is the value's name: with other bytes under it, two replicas would hold different logs.
        if len(part) != size or digest_of(part) != value.digest:
            return None
        parts.append(part)
        position += size
    return parts if position == len(payload) else None
