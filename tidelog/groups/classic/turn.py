"""`Turn`: a decision about a classic group, made on a copy, with the records to write and the answers to give.

The answers are given when the records, and all earlier ones, are committed. If the records are not accepted, the turn
is dropped and nothing has happened.
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
    """An answer, with the number of the waiting request that it is for."""

    wait: int
    what: Told


@dataclass(slots=True)
class Turn:
    """A decision in progress. `group` is the copy that replaces the group if the records are accepted."""

    group: ClassicGroup
    settings: GroupSettings
    now: Now
    records: list[GroupLogRecord] = field(default_factory=list)
    tells: list[Tell] = field(default_factory=list)
    heard: dict[str, None] = field(default_factory=dict)
    """Members and handed-out member ids whose sessions are restarted."""

    def tell(self, wait: int | None, what: Told) -> None:
        """Adds an answer to the waiting request with this number; does nothing for None."""
        if wait is not None:
            self.tells.append(Tell(wait, what))

    def change(self, member: Member, **changes: object) -> Member:
        """Changes fields of a member; returns the changed member."""
        changed: Member = replace(member, **changes)  # type: ignore[arg-type]  # of whatever fields it has
        self.group.put(changed)
        return changed

    def expel(self, member_id: str, why: TidelogError) -> None:
        """Removes a member; its waiting requests are answered with the error `why`."""
        member = self.group.drop(member_id)
        # Both are answered: a client without an answer waits until its own timeout.
        self.tell(member.join_wait, why)
        self.tell(member.sync_wait, why)
