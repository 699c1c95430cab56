"""Events of a replica's own log, which are given to the state machines of in-sync replicas, and the effects of a leader
on that log.

A state machine decides which offsets a batch gets and how far the log is committed. It holds offsets and epochs, never
payloads; it never reads a clock, opens a file or awaits. The partition's runtime executes the effects in list order and
reports the results as events; the simulator drives the same objects. (Paxos logs have events of their own,
`replication.paxos.events`; the two protocols share only the broker's interface to a replica,
`broker.partitions.roles`.)
"""

from __future__ import annotations

import msgspec


class Propose(msgspec.Struct, frozen=True):
    """Event: clients' batches that are appended together need `offsets` consecutive offsets, 0 for duplicates."""

    offsets: int


class Appended(msgspec.Struct, frozen=True):
    """Event: the local log holds everything below `end`, in memory."""

    end: int


class AppendRefused(msgspec.Struct, frozen=True):
    """Event: the local log refused everything from `base` on; none of it was written."""

    base: int


class Flushed(msgspec.Struct, frozen=True):
    """Event: the local log holds everything below `end` durably."""

    end: int


Event = Propose | Appended | AppendRefused | Flushed


class Append(msgspec.Struct, frozen=True):
    """Effect: write the proposed batch at `base_offset`, under `leader_epoch`."""

    base_offset: int
    leader_epoch: int


class AdvanceHighWatermark(msgspec.Struct, frozen=True):
    """Effect: everything below `to` is committed; acknowledge it to producers and make it visible to consumers."""

    to: int


Effect = Append | AdvanceHighWatermark
