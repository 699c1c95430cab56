"""Errors that only a member of a group can meet. None of them crosses the wire."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.model.errors import TidelogError
from tidelog.model.ids import TopicPartition


class CommitFailed(TidelogError):
    """The committed offsets of some partitions were not kept; `refused` says of which, and why. The others' are.

    A partition that this consumer does not own any more is read by another one, from the last committed offset that was
    kept: what was handed out since then comes twice.
    """

    code = 40981

    def __init__(self, refused: Mapping[TopicPartition, str]) -> None:
        super().__init__("not committed: " + "; ".join(f"{at}: {reason}" for at, reason in sorted(refused.items())))
        self.refused = dict(refused)


class PollIntervalExceeded(TidelogError):
    """Nothing was asked of the consumer for `max_poll_interval_ms`, so it has left its group, and its partitions are
    others'. The next call joins again."""

    code = 40982


class GroupNeeded(TidelogError):
    """Only a consumer that was given a `group` can do this."""

    code = 40983
