"""The leaders of a partition on one replica: the present one, and earlier ones whose values may still be chosen.

The metadata name a leader for each leader epoch. As long as they name this broker, the epoch has a `PaxosPartition`
here. When the epoch ends, values that it proposed may still be chosen: the log tells. So an earlier leader is kept, and
hears what is in the log, until no client waits for one of its values any more.
"""

from __future__ import annotations

from tidelog.broker.paxos.partition import PaxosPartition
from tidelog.replication.paxos.events import Applied


class Leaders:
    """The present and the earlier leaders of one partition on one replica."""

    def __init__(self) -> None:
        self.current: PaxosPartition | None = None
        """The leader, while the metadata name this broker; else None."""
        self._former: list[PaxosPartition] = []
        """Earlier leaders, for whose proposed values a client still waits."""

    def step_down(self) -> None:
        """Ends the present leader, if there is one, as its leader epoch is over."""
        if self.current is not None:
            self.current.close(is_deposed=True)
            # Its values may still be chosen: the log tells, and its clients are answered by that.
            self._former.append(self.current)
            self.current = None

    def hold(self) -> None:
        """Makes requests wait, since the leader will be elected again in a moment."""
        if self.current is not None:
            self.current.hold()

    def stop(self) -> None:
        """Makes the leader refuse requests, since its term is over."""
        if self.current is not None:
            self.current.stop()

    def applied(self, applied: Applied) -> None:
        """Notifies the present leader, and earlier ones, that the value at the next position is in the log."""
        if self.current is not None:
            self.current.applied(applied)
        # Earlier leaders here may have clients whose values are decided only now.
        for partition in self._former:
            partition.applied(applied)
        self._former = [partition for partition in self._former if partition.is_awaited]

    def close(self) -> None:
        """Closes all leaders, as this replica stops."""
        for partition in [*self._former, *([self.current] if self.current else [])]:
            partition.close()
        self.current = None
