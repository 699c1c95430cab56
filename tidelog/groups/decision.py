"""A decision: the records to write, and the answer to give once they are committed."""

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
    """Records to write, and the answer to give when they, and all records decided earlier, are committed."""

    records: tuple[GroupLogRecord, ...]
    answer: GroupAnswer
