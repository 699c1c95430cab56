"""The requests to replicas of a log by itself, from each other and from programs.

Frames of engines and elections, and the question what a replica knows (`DescribeQuorum`), are the metadata log's.
"""

from __future__ import annotations

import msgspec

from tidelog.broker.consensus.messages import QUORUM_MESSAGES
from tidelog.standalone.entries import LogEntry
from tidelog.standalone.own_state import OwnState


class AppendToLog(msgspec.Struct, frozen=True, tag=True):
    """Asks the leader to append the payload that follows. Answered by `Appended`, when it is agreed on; raises
    `NotController` (surely not appended) or `ControllerLost` (unknown)."""


class Appended(msgspec.Struct, frozen=True, tag=True):
    """The entry is in the log, for good."""

    position: int


class TruncateLog(msgspec.Struct, frozen=True, tag=True):
    """Asks the leader to have the log begin at a position. Answered by `Truncated`; raises `InvalidRequest`,
    `NotEnoughReplicas`, `NotController` (surely not truncated) or `ControllerLost` (unknown)."""

    begin: int


class Truncated(msgspec.Struct, frozen=True, tag=True):
    """The log begins here, at the leader and soon everywhere."""

    begin: int


class AskDurable(msgspec.Struct, frozen=True, tag=True):
    """Asks a voter whether all below a position is learned there, on disk. Answered by `LearnedDurably`."""

    end: int


class LearnedDurably(msgspec.Struct, frozen=True, tag=True):
    """How far the voter has the log: on its disk, if that is as far as it was asked for."""

    end: int


class AskOwnState(msgspec.Struct, frozen=True, tag=True):
    """Asks any replica for the log's own state where its journal begins. Answered by `OwnStateAt`."""


class OwnStateAt(msgspec.Struct, frozen=True, tag=True):
    """The log's own state at a position."""

    position: int
    state: OwnState


class ReadLog(msgspec.Struct, frozen=True, tag=True):
    """Asks any replica for entries from a position on, as far as it has learned them. Answered by `LogPart`."""

    position: int
    bytes_max: int
    """The size limit of the payloads, in bytes; one entry comes at least."""


class LogPart(msgspec.Struct, frozen=True, tag=True):
    """Entries in their order, without gaps; their payloads follow. None where the log begins later or ends before."""

    begin: int
    end: int
    """How far this replica has learned the log; it may go on."""
    entries: tuple[LogEntry, ...]


class JoinLog(msgspec.Struct, frozen=True, tag=True):
    """A replica whose disk has no vote asks the leader for one, again and again. Answered by `JoinNoted`."""

    incarnation: str
    voting_id: int
    """Under which it could vote now; 0 if it has no id."""
    applied: int
    """How far it has come."""


class JoinNoted(msgspec.Struct, frozen=True, tag=True):
    """The next step is done, or this is not the time for it. What the log says counts, not this."""


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
"""All messages of such a log: a peer node has to know them."""
