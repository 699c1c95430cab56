"""A decision about a classic group: made on a copy, with the records to be written and the answers to be given.

The answers are told when the records, and all that was decided before, are committed. If the records are not taken,
the turn is forgotten, and nothing has happened.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from tidelog.groups.classic.state import ClassicGroup, Member
from tidelog.groups.records import GroupLogRecord
from tidelog.groups.settings import GroupSettings, Now
from tidelog.model.classic_groups import JoinAnswer, SyncAnswer
from tidelog.model.errors import TidelogError

Told: TypeAlias = JoinAnswer | SyncAnswer | TidelogError


class Tell(NamedTuple):
    """An answer, to the request that has this number."""

    wait: int
    what: Told


@dataclass(slots=True)
class Turn:
    """A decision under way. `group` is the copy that becomes the group if the records are taken."""

    group: ClassicGroup
    settings: GroupSettings
    now: Now
    records: list[GroupLogRecord] = field(default_factory=list)
    tells: list[Tell] = field(default_factory=list)
    heard: dict[str, None] = field(default_factory=dict)
    """Members, and ids that were given away, whose sessions begin anew."""

    def tell(self, wait: int | None, what: Told) -> None:
        """Answers a request, if there is one."""
        if wait is not None:
            self.tells.append(Tell(wait, what))

    def change(self, member: Member, **changes: object) -> Member:
        """Changes fields of a member; returns the changed one."""
        changed: Member = replace(member, **changes)  # type: ignore[arg-type]  # of whatever fields it has
        self.group.put(changed)
        return changed

    def expel(self, member_id: str, why: TidelogError) -> None:
        """Takes a member out; its requests that wait are answered with `why`."""
        member = self.group.drop(member_id)
        # Both are answered: a client without an answer waits until its own timeout.
        self.tell(member.join_wait, why)
        self.tell(member.sync_wait, why)
