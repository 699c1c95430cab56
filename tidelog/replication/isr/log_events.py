"""Events of a replica's own log, as a core of in-sync replicas is told them, and what a leader's core does to that log.

A core decides which offsets a batch gets and how far the log is committed. It holds offsets and epochs, never
payloads; it never reads a clock, opens a file or awaits. The partition's runtime executes the effects in list order and
reports back as events; the simulator drives the same objects. (Paxos logs have events of their own,
`replication.paxos.events`; all that the two protocols share is the broker's contract, `broker.partitions.roles`.)
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Propose:
    """A client's batch needs `offsets` consecutive offsets."""

    offsets: int


@dataclass(frozen=True, slots=True)
class Appended:
    """The local log holds everything below `end`, in memory."""

    end: int


@dataclass(frozen=True, slots=True)
class AppendRefused:
    """The local log refused everything from `base` on; none of it was written."""

    base: int


@dataclass(frozen=True, slots=True)
class Flushed:
    """The local log holds everything below `end`, durably."""

    end: int


Event = Propose | Appended | AppendRefused | Flushed


@dataclass(frozen=True, slots=True)
class Append:
    """Write the proposed batch at `base_offset`, under `leader_epoch`."""

    base_offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class AdvanceHighWatermark:
    """Everything below `to` is committed: acknowledge it, show it to consumers."""

    to: int


Effect = Append | AdvanceHighWatermark
