"""Metainfo: a replica's own facts about one log, in two copies on the same disk (`two_copies`).

Nobody else can give these back: which incarnation of the replica this is, how far its log was known durable, which
offsets it has deleted.
"""

from __future__ import annotations

import msgspec
from crc32c import crc32c

from tidelog.model.ids import PartitionId
from tidelog.model.ports import Files
from tidelog.storage.two_copies import TwoCopyStore

NAMES = ("metainfo.0", "metainfo.1")
MAGIC = 0x7D11


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
    replica: bytes | msgspec.UnsetType = msgspec.UNSET
    """What a Paxos replica has to remember besides (`SlotStore.store_facts`); absent from other logs."""


class MetainfoStore(TwoCopyStore[Metainfo]):
    """Reads and writes the two copies of one log."""

    def __init__(self, files: Files, directory: str, identity: PartitionId) -> None:
        seed = crc32c(bytes.fromhex(identity.topic_id) + identity.partition.to_bytes(4, "little"))
        super().__init__(files, directory, NAMES, Metainfo, magic=MAGIC, seed=seed)
