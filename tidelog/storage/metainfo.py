"""Metainfo: what a replica must remember of one log and no other replica can give back, in two copies on the same disk
(`two_copies`): which incarnation of the replica this is, how far its log was known durable, which offsets it has
deleted.

A copy names its log, and its checksum is seeded with that name, so that a copy of another log does not pass for this
one's. If both copies belong to another log, so does the directory (`strangers`).
"""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec
from crc32c import crc32c
from msgspec import structs

from tidelog.model.ids import PartitionId, TopicId
from tidelog.model.ports import Files
from tidelog.storage.two_copies import LoadedCopies, TwoCopyStore

NAMES = ("metainfo.0", "metainfo.1")
MAGIC = 0x7D11
_NAME = re.compile(rb'"log":"([0-9a-f]{32})/([0-9]{1,9})"')


class Metainfo(msgspec.Struct, frozen=True, kw_only=True):
    """The stored metainfo of one log. Sequences and offsets are exclusive ends."""

    incarnation: str
    """Id that was drawn when the log was created on this disk: a wiped and recreated log is another incarnation."""
    durable_sequence: int = 0
    """Catalog rows of a lower sequence were durable when this was written."""
    end_offset: int = 0
    """The log end offset as of `durable_sequence`."""
    epoch: int = 0
    """The newest leader epoch in the log."""
    high_watermark: int = 0
    log_start_offset: int = 0
    sequences_used: int | msgspec.UnsetType = msgspec.UNSET
    """Row sequences below this may have been used by rows that a truncation dropped: no new row gets one of them.
    Absent from a log that was never truncated."""
    restarts: bool | msgspec.UnsetType = msgspec.UNSET
    """True while all files are being dropped: remaining files are no part of the log, which is empty, and begins and
    ends at `end_offset`. Else absent."""
    stands_in_since: int | msgspec.UnsetType = msgspec.UNSET
    """Present in a log that was begun in place of a lost one: the metadata log position since which this disk should
    have held the lost log (`PartitionInfo.since`)."""
    log: str | msgspec.UnsetType = msgspec.UNSET
    """Name of the log that this copy belongs to. The store adds it when it writes, and removes it when it loads."""
    replica: bytes | msgspec.UnsetType = msgspec.UNSET
    """Bytes that a Paxos replica has to remember (`SlotStore.store_metainfo`); absent from other logs."""


class MetainfoStore(TwoCopyStore[Metainfo]):
    """Reads and writes the two metainfo copies of one log."""

    def __init__(self, files: Files, directory: str, identity: PartitionId) -> None:
        # Seeded like the rows of this log: metainfo that was copied or swapped from another one does not pass for ours.
        seed = crc32c(bytes.fromhex(identity.topic_id) + identity.partition.to_bytes(4, "little"))
        super().__init__(files, directory, NAMES, Metainfo, magic=MAGIC, seed=seed)
        self._identity = identity

    def load(self) -> LoadedCopies[Metainfo] | None:
        """Loads the newest sound copy without its `log` field; None if there is none. Raises `Overloaded` or
        `PermissionError` if a copy cannot be opened for these reasons, which do not mean that it is lost."""
        loaded = super().load()
        # The checksum has said whose it is. Dropped, so that equal metainfo compares equal.
        return loaded and replace(loaded, info=structs.replace(loaded.info, log=msgspec.UNSET))

    def store(self, info: Metainfo) -> None:
        """Stores both copies, one after the other, each with the name of its log. Raises `OSError`."""
        super().store(structs.replace(info, log=str(self._identity)))

    def begin(self, info: Metainfo) -> None:
        """Writes the first two copies of a new log. Raises `OSError`."""
        super().begin(structs.replace(info, log=str(self._identity)))

    def is_of_another(self) -> bool:
        """Returns True if a copy is sound, and belongs to another log. Raises `Overloaded` or `PermissionError` if a
        copy cannot be opened for these reasons."""
        return any(self._is_of_another(raw) for raw in map(self._read_raw, self._paths))

    def _is_of_another(self, raw: bytes) -> bool:
        named = _NAME.search(raw)
        if named is None:
            return False
        # The name alone could be a bit that flipped in ours: only a copy that is sound under the other name is
        # another's.
        owner = PartitionId(TopicId(named[1].decode()), int(named[2]))
        return owner != self._identity and MetainfoStore(self._files, self._directory, owner)._decode(raw) is not None
