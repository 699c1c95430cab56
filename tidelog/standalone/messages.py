"""The requests to replicas of a standalone log, from each other and from clients.

Paxos and election frames, and the request for what a replica knows (`DescribeQuorum`), are the metadata log's.
"""

from __future__ import annotations

import msgspec

from tidelog.broker.consensus.messages import QUORUM_MESSAGES
from tidelog.standalone.entries import LogEntry
from tidelog.standalone.own_state import OwnState


class AppendToLog(msgspec.Struct, frozen=True, tag=True):
    """Asks the leader to append the payload that follows. Answered by `Appended` when it is chosen; raises
    `NotController` (surely not appended) or `ControllerLost` (unknown)."""


class Appended(msgspec.Struct, frozen=True, tag=True):
    """The answer to `AppendToLog`: the entry is in the log, durably, at this position."""

    position: int


class TruncateLog(msgspec.Struct, frozen=True, tag=True):
    """Asks the leader to delete the entries below a position. Answered by `Truncated`; raises `InvalidRequest`,
    `NotEnoughReplicas`, `NotController` (surely not truncated) or `ControllerLost` (unknown)."""

    begin: int


class Truncated(msgspec.Struct, frozen=True, tag=True):
    """The answer to `TruncateLog`: the first position of the log, at the leader and soon at all replicas."""

    begin: int


class AskDurable(msgspec.Struct, frozen=True, tag=True):
    """Asks a voter whether it has learned all entries below a position, on its disk. Answered by `LearnedDurably`."""

    end: int


class LearnedDurably(msgspec.Struct, frozen=True, tag=True):
    """The answer to `AskDurable`: the end of the voter's learned entries; on its disk if it reaches the requested
    position."""

    end: int


class AskOwnState(msgspec.Struct, frozen=True, tag=True):
    """Asks any replica for the log's voters and voter ids as of its first position. Answered by `OwnStateAt`."""


class OwnStateAt(msgspec.Struct, frozen=True, tag=True):
    """The log's voters and voter ids as of a position."""

    position: int
    state: OwnState


class ReadLog(msgspec.Struct, frozen=True, tag=True):
    """Asks any replica for the learned entries from a position on. Answered by `LogPart`."""

    position: int
    bytes_max: int
    """Maximum size of the payloads in the answer, in bytes; one entry is returned in any case."""


class LogPart(msgspec.Struct, frozen=True, tag=True):
    """Consecutive entries, followed by their payloads; none where the log begins later or ends before."""

    begin: int
    end: int
    """The end of what this replica has learned."""
    entries: tuple[LogEntry, ...]


class JoinLog(msgspec.Struct, frozen=True, tag=True):
    """Asks the leader to make the sending replica's new disk a voter; repeated until it is one. Answered by
    `JoinNoted`."""

    incarnation: str
    voting_id: int
    """Id under which the replica could vote now; 0 if it has none."""
    applied: int
    """Position up to which the replica has applied the log."""


class JoinNoted(msgspec.Struct, frozen=True, tag=True):
    """The answer to `JoinLog`: the next step is done, or cannot be done now. The log shows which."""


STANDALONE_MESSAGES = (
    *QUORUM_MESSAGES,
    AppendToLog,
    Appended,
    TruncateLog,
    Truncated,
    AskDurable,
    LearnedDurably,
    AskOwnState,
    OwnStateAt,
    ReadLog,
    LogPart,
    JoinLog,
    JoinNoted,
)
"""All messages of a standalone log, which a peer node has to know."""
