"""A file on a simulated disk: what programs see, what would survive a power cut, and the writes in between.

`data` is the page cache, `durable` the platter, `pending` the ordered un-synced changes that turn one into the other.
Four real behaviours follow:

- A sync replays `pending` onto `durable`: it costs as much as was written, never as much as the file holds.
- A crash keeps a subset of `pending`, each write torn at sector bounds. What is written beyond a lost write leaves a
  hole. The length is a change of its own and may have grown further than the bytes did.
- A failed sync forgets `pending`: the pages are marked clean, so a later sync reports success for bytes that are
  nowhere.
- Rot changes both sides; a write that the drive lost changes `data` only, until the cache is dropped.
"""

from __future__ import annotations

from tidelog.sim.kit.choices import CrashChoices

SECTOR_BYTES = 512
"""Bytes in a sector, which a drive writes whole or not at all."""


Pending = tuple[int, int, bytes | None]
"""Unsynced change as (sequence, position, payload); without a payload, the file's length becomes `position`."""


class FileNode:
    """The bytes of a file (an inode), independent of its names."""

    __slots__ = ("data", "durable", "has_failed_sync", "number", "pending", "unreadable")

    def __init__(self, number: int) -> None:
        self.number = number
        self.data = bytearray()
        self.durable = bytearray()
        self.pending: list[Pending] = []
        self.unreadable: list[tuple[int, int]] = []
        self.has_failed_sync = False

    def write(self, sequence: int, position: int, payload: bytes) -> None:
        put(self.data, position, payload)
        self.pending.append((sequence, position, payload))
        if self.unreadable:  # a drive remaps a bad sector when it is written
            end = position + len(payload)
            self.unreadable = [(low, high) for low, high in self.unreadable if high <= position or low >= end]

    def truncate(self, sequence: int, size: int) -> None:
        resize(self.data, size)
        self.pending.append((sequence, size, None))

    def sync(self) -> None:
        for _, position, payload in self.pending:
            if payload is None:
                resize(self.durable, position)
            else:
                put(self.durable, position, payload)
        self.pending.clear()

    def settle(self, choices: CrashChoices, filler: bytes) -> None:
        """Applies those of the pending changes to the durable content that `choices` lets through, and forgets the
        others. Holes show zeros, or `filler` (whole sectors of it). The page cache still shows all changes."""
        for sequence, position, payload in self.pending:
            if payload is None:
                if choices.survives(sequence):
                    resize(self.durable, position)
            else:
                for start, piece in _surviving(sequence, position, payload, choices):
                    resize(self.durable, max(len(self.durable), start), filler)
                    put(self.durable, start, piece)
        self.pending.clear()

    def drop_cache(self) -> None:
        """Makes reads return the durable content from now on. The length stays, as it is part of the inode and not of
        the pages."""
        size = len(self.data)
        self.data[:] = self.durable
        resize(self.data, size)

    def is_unreadable(self, position: int, size: int) -> bool:
        return any(low < position + size and position < high for low, high in self.unreadable)


def put(target: bytearray, position: int, payload: bytes) -> None:
    """Writes into a sparse file: bytes between the old end and `position` read as zeros."""
    if position > len(target):
        target.extend(bytes(position - len(target)))
    target[position : position + len(payload)] = payload


def resize(target: bytearray, size: int, filler: bytes = b"") -> None:
    """Truncates a file, or extends it with zeros; whole sectors of the extension repeat `filler`, if there is any."""
    position = len(target)
    if size <= position:
        del target[size:]
        return
    if filler:
        target.extend(bytes(min(size - position, -position % SECTOR_BYTES)))
        missing, phase = size - len(target), len(target) % len(filler)
        target.extend((filler * (missing // len(filler) + 2))[phase : phase + missing])
    else:
        target.extend(bytes(size - position))


def _surviving(sequence: int, position: int, payload: bytes, choices: CrashChoices) -> list[tuple[int, bytes]]:
    """Returns the pieces of one write that reached the disk, with their positions; sectors are counted from the start
    of the file."""
    if not payload:
        return []
    first = position // SECTOR_BYTES
    count = (position + len(payload) - 1) // SECTOR_BYTES - first + 1
    mask = choices.sectors(sequence, count)
    if mask == (1 << count) - 1:
        return [(position, payload)]
    pieces = []
    for sector in range(count):
        if mask >> sector & 1:
            start = max(position, (first + sector) * SECTOR_BYTES)
            end = (first + sector + 1) * SECTOR_BYTES
            pieces.append((start, payload[start - position : end - position]))
    return pieces
