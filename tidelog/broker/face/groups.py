"""Consumer groups, as a listener sees them: requests to coordinators, wherever those are, and summaries of groups."""

from __future__ import annotations

from tidelog.broker.groups.asking import PATIENCE_S, GroupHost, Lag, committed_of, described, lags_of
from tidelog.model.groups import CommittedOffset, GroupDescription

__all__ = ["PATIENCE_S", "ConsumerGroups", "Lag"]


class ConsumerGroups:
    """The consumer groups of the cluster. Deadlines are in loop time."""

    def __init__(self, host: GroupHost) -> None:
        self._host = host
        self.ask = host.groups.ask
        """Asks a group's coordinator; see `broker.groups.facade.Groups.ask`."""
        self.list_groups = host.groups.list_groups
        """Lists all groups; see `broker.groups.facade.Groups.list_groups`."""

    async def describe(self, group: str, deadline_s: float) -> GroupDescription:
        """Raises `UnknownGroup`, `CoordinatorNotAvailable`."""
        return await described(self._host, group, deadline_s)

    async def committed_offsets(self, group: str, deadline_s: float) -> list[CommittedOffset]:
        """Returns all committed offsets of a group, by topic and partition. Raises `CoordinatorNotAvailable`."""
        return await committed_of(self._host, group, deadline_s)

    async def lags(self, group: str, deadline_s: float) -> list[Lag]:
        """Returns the lag of every partition of which the group has a committed offset, by topic and partition. Raises
        `UnknownGroup`, `CoordinatorNotAvailable`."""
        return await lags_of(self._host, group, deadline_s)
