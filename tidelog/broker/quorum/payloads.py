"""Payloads on their way: held by digest from when they come until the log that needs them has them on disk.

The engine decides on values, which name their payloads by digest. A payload may be needed later than its message: what
a candidate was told in promises it proposes again when a quorum has promised. So everything that came for the proposer
is held until its reign ends, and what is below the applied prefix, never proposed again, is let go before that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xxhash import xxh3_128_digest

from tidelog.model.ports import Buffer
from tidelog.replication.paxos.state import Value


class Payloads:
    """Of one replica. Bounded by the engine: a window of its own values, and what was open at an election."""

    def __init__(self) -> None:
        self._held: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, payload: Buffer) -> bytes:
        """Keeps a payload; returns its digest."""
        content = bytes(payload)
        digest = digest_of(content)
        self._held[digest] = content
        return digest

    def get(self, digest: bytes) -> bytes | None:
        return self._held.get(digest)

    def release(self, digest: bytes) -> None:
        """Nobody will ask for this one any more."""
        self._held.pop(digest, None)

    def clear(self) -> None:
        self._held.clear()


def digest_of(payload: Buffer) -> bytes:
    return xxh3_128_digest(payload)


def split(payload: memoryview, sizes: Sequence[int], values: Iterable[Value]) -> list[bytes] | None:
    """The payloads of a frame; None if they are not what its values name."""
    parts: list[bytes] = []
    position = 0
    for value, size in zip(values, sizes, strict=True):
        part = bytes(payload[position : position + size])
        if len(part) != size or digest_of(part) != value.digest:
            return None
        parts.append(part)
        position += size
    return parts if position == len(payload) else None
