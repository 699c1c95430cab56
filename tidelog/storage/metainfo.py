"""Metainfo: a replica's own facts about one log, in two copies on the same disk.

Nobody else can give these back: which incarnation of the replica this is, how far its log was known durable, which
offsets it has deleted. So there are two files, written one after the other, each made durable before the next is
touched, and the worse one first: whatever moment a crash picks, one whole copy is left, and if both are whole, one of
them may rot. The higher sequence wins.

A copy is a header (magic, version, sequence, length, CRC32C seeded with the log's identity) and a JSON object, so that
later versions can add facts.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import msgspec
from crc32c import crc32c

from tidelog.model.ids import PartitionId
from tidelog.model.ports import Files
from tidelog.storage.open_files import open_file

NAMES = ("metainfo.0", "metainfo.1")
MAGIC = 0x7D11
VERSION = 1
COPY_BYTES = 512
"""A copy is a multiple of this, and nearly always just this."""
COPY_BYTES_MAX = 4096
_HEAD = struct.Struct("<HHQHI")  # magic, version, sequence, length, crc


class Metainfo(msgspec.Struct, frozen=True, kw_only=True):
    """The facts. Sequences and offsets are exclusive ends."""

    incarnation: str
    """Drawn when the log was created on this disk: a wiped and recreated log is another incarnation."""
    durable_sequence: int = 0
    """Rows below were durable when this was written."""
    end_offset: int = 0
    """The log end offset that belongs to `durable_sequence`."""
    epoch: int = 0
    """The newest leader epoch in the log."""
    high_watermark: int = 0
    log_start_offset: int = 0
    sequences_used: int | msgspec.UnsetType = msgspec.UNSET
    """Row sequences below it may have been those of rows that a truncation dropped: no new row takes one of them.
    Absent from a log that was never truncated."""
    restarts: bool | msgspec.UnsetType = msgspec.UNSET
    """True while all files are being dropped: what is left of them is no part of the log, which is empty, and begins
    and ends at `end_offset`. Else absent."""
    replica: bytes | msgspec.UnsetType = msgspec.UNSET
    """What a Paxos replica has to remember besides (`SlotStore.store_facts`); absent from other logs."""


@dataclass(slots=True)
class LoadedMetainfo:
    info: Metainfo
    sequence: int
    bad_copies: int
    """How many of the two could not be used: 1 is repaired by the next write, 2 means that nothing was there."""


class MetainfoStore:
    """Reads and writes the two copies of one log."""

    def __init__(self, files: Files, directory: str, identity: PartitionId) -> None:
        self._files = files
        self._paths = [f"{directory}/{name}" for name in NAMES]  # the one to write first comes first
        self._directory = directory
        self._seed = crc32c(bytes.fromhex(identity.topic_id) + identity.partition.to_bytes(4, "little"))
        self._sequence = 0

    def load(self) -> LoadedMetainfo | None:
        """The newest sound copy; None if there is none (a new log, or both are lost).

        Raises `Overloaded` or `PermissionError` if that cannot be told: a copy out of reach is not a lost one.
        """
        copies = {path: self._read(path) for path in self._paths}
        found = {path: copy for path, copy in copies.items() if copy is not None}
        self._paths.sort(key=lambda path: found[path][0] if path in found else -1)
        if not found:
            return None
        self._sequence, info = found[self._paths[-1]]
        good = sum(1 for sequence, _ in found.values() if sequence == self._sequence)
        return LoadedMetainfo(info, self._sequence, len(NAMES) - good)

    def store(self, info: Metainfo) -> None:
        """Writes both copies, each durable before the next. Blocking. Raises `OSError`; one copy may then be new."""
        self._sequence += 1
        block = self._encode(self._sequence, info)
        for path in list(self._paths):
            self._write(path, block)
            self._paths.remove(path)
            self._paths.append(path)  # should the next write fail, it is the other copy's turn again

    def write_again(self) -> None:
        """Writes the same bytes onto each sound copy, and syncs it: what was read may be in the page cache alone, as of
        a process that died between a write and its fsync. A write that fails half-way does no harm. Blocking. Raises
        `OSError`."""
        for path in self._paths:
            raw = self._read_raw(path)
            if self._decode(raw) is not None:
                self._write(path, raw)

    def _write(self, path: str, block: bytes) -> None:
        is_new = not self._files.exists(path)
        file = self._files.open(path, create=True)
        try:
            file.pwritev([block], 0)
            file.sync()
        finally:
            file.close()
        if is_new:
            self._files.sync_dir(self._directory)

    def _encode(self, sequence: int, info: Metainfo) -> bytes:
        payload = msgspec.json.encode(info)
        head = (MAGIC, VERSION, sequence, len(payload))
        crc = crc32c(payload, crc32c(_HEAD.pack(*head, 0), self._seed))
        block = _HEAD.pack(*head, crc) + payload
        assert len(block) <= COPY_BYTES_MAX
        return block.ljust(-(-len(block) // COPY_BYTES) * COPY_BYTES, b"\0")

    def _read(self, path: str) -> tuple[int, Metainfo] | None:
        return self._decode(self._read_raw(path))

    def _read_raw(self, path: str) -> bytes:
        """A copy's bytes; none if they cannot be read."""
        try:
            file = open_file(self._files, path)
        except PermissionError:
            raise
        except OSError:
            return b""
        try:
            return file.pread(COPY_BYTES_MAX, 0)
        except OSError:
            return b""
        finally:
            file.close()

    def _decode(self, raw: bytes) -> tuple[int, Metainfo] | None:
        if len(raw) < _HEAD.size:
            return None
        magic, version, sequence, length, crc = _HEAD.unpack_from(raw)
        payload = raw[_HEAD.size : _HEAD.size + length]
        if (magic, version) != (MAGIC, VERSION) or len(payload) != length:
            return None
        if crc != crc32c(payload, crc32c(_HEAD.pack(magic, version, sequence, length, 0), self._seed)):
            return None
        try:
            return sequence, msgspec.json.decode(payload, type=Metainfo)
        except msgspec.DecodeError:
            return None
