"""Metainfo: a replica's own facts about one log, in two copies on the same disk (`two_copies`).

Nobody else can give these back: which incarnation of the replica this is, how far its log was known durable, which
offsets it has deleted.

A copy says which log it is about. Its checksum is seeded with that, too, so a stranger's copy is no copy of ours. If
both are a stranger's, so is the directory (`strangers`).
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
    stands_in_since: int | msgspec.UnsetType = msgspec.UNSET
    """Present in a log that was begun in place of one that is lost: since when, by the cluster's metadata, this disk
    should have held that one (`PartitionInfo.since`)."""
    log: str | msgspec.UnsetType = msgspec.UNSET
    """The log that this copy is about. The store writes it, and drops it from what it loads."""
    replica: bytes | msgspec.UnsetType = msgspec.UNSET
    """Bytes that a Paxos replica has to remember besides (`SlotStore.store_metainfo`); absent from other logs."""


class MetainfoStore(TwoCopyStore[Metainfo]):
    """Reads and writes the two copies of one log."""

    def __init__(self, files: Files, directory: str, identity: PartitionId) -> None:
        # Seeded like the rows of this log: metainfo that was copied or swapped from another one does not pass for ours.
        seed = crc32c(bytes.fromhex(identity.topic_id) + identity.partition.to_bytes(4, "little"))
        super().__init__(files, directory, NAMES, Metainfo, magic=MAGIC, seed=seed)
        self._identity = identity

    def load(self) -> LoadedCopies[Metainfo] | None:
        """Loads the newest sound copy, as `TwoCopyStore.load` does, and drops `log` from it."""
        loaded = super().load()
        # The checksum has said whose it is. Dropped, so that equal metainfo compares equal.
        return loaded and replace(loaded, info=structs.replace(loaded.info, log=msgspec.UNSET))

    def store(self, info: Metainfo) -> None:
        """Stores both copies, as `TwoCopyStore.store` does, each with the log that it is about."""
        super().store(structs.replace(info, log=str(self._identity)))

    def begin(self, info: Metainfo) -> None:
        """Writes both copies, as `TwoCopyStore.begin` does."""
        super().begin(structs.replace(info, log=str(self._identity)))

    def is_of_another(self) -> bool:
        """Returns True if a copy is sound, and about another log. Raises as `load`."""
        return any(self._is_of_another(raw) for raw in map(self._read_raw, self._paths))

    def _is_of_another(self, raw: bytes) -> bool:
        named = _NAME.search(raw)
        if named is None:
            return False
        # The name alone could be a bit that flipped in ours: only a copy that is sound under the other name is
        # another's.
        owner = PartitionId(TopicId(named[1].decode()), int(named[2]))
        return owner != self._identity and MetainfoStore(self._files, self._directory, owner)._decode(raw) is not None
