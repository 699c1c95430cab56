"""Errors of consumers in groups. They arise in the client and are never sent over the network."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.model.errors import TidelogError
from tidelog.model.ids import TopicPartition


class CommitFailed(TidelogError, code=40981):
    """Some partitions' offsets were not committed; `refused` has the partitions and reasons. The other offsets were
    committed.

    A partition that this consumer no longer owns is read by another one from the last committed offset: records
    returned since then are read twice.
    """

    def __init__(self, refused: Mapping[TopicPartition, str]) -> None:
        super().__init__("not committed: " + "; ".join(f"{at}: {reason}" for at, reason in sorted(refused.items())))
        self.refused = dict(refused)


class PollIntervalExceeded(TidelogError, code=40982):
    """The consumer was not called for `max_poll_interval_ms`, so it left its group and lost its partitions. The next
    call joins again."""


class GroupNeeded(TidelogError, code=40983):
    """The call needs a consumer with a `group_id`."""
