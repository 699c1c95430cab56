"""A replica's answer about a batch that another replica has lost (CTRL's have, dontHave, haveFaulty, FAST '18)."""

from __future__ import annotations

from enum import Enum


class Holding(Enum):
    """The state of a batch at the replica that is asked. The question names the batch by its offset, leader epoch and
    digest."""

    HAVE = "have"
    """The replica has the batch intact; the answer contains it."""
    HAVE_FAULTY = "have_faulty"
    """The replica had the batch, and its copy is damaged, too: the row in its catalog (index file) is intact and names
    the same batch. If the question names no batch: the batch at that offset is damaged."""
    DONT_HAVE = "dont_have"
    """The replica's log is intact there, and ends before the batch or has another one: the replica never acknowledged
    this batch."""
    DELETED = "deleted"
    """The replica's log begins after the batch: the batch was committed, and its records have been deleted since."""
    UNKNOWN = "unknown"
    """The replica cannot tell: it has no such log, the log is being changed, or the batch's row is lost, too."""
