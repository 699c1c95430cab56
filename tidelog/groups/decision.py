"""A decision: records that will be true once they are in the log, and the answer to the caller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tidelog.groups.records import GroupLogRecord
from tidelog.model.groups import (
    CommitAnswer,
    GroupDescription,
    GroupDone,
    GroupsListed,
    HeartbeatAnswer,
    InstanceDescription,
    InstancesListed,
    OffsetsAnswer,
)

GroupAnswer: TypeAlias = (
    HeartbeatAnswer
    | CommitAnswer
    | OffsetsAnswer
    | GroupDescription
    | GroupsListed
    | GroupDone
    | InstanceDescription
    | InstancesListed
)


@dataclass(frozen=True, slots=True)
class Decision:
    """Not yet true. The answer may be given when the records, and all that were decided before them, are committed."""

    records: tuple[GroupLogRecord, ...]
    answer: GroupAnswer
