"""A replica's word about a batch that another one has lost (CTRL's have, dontHave, haveFaulty, FAST '18)."""

from __future__ import annotations

from enum import Enum


class Holding(Enum):
    """The state of a batch at the replica that is asked. The batch is named by its offset, its leader epoch and its
    digest."""

    HAVE = "have"
    """Whole: here it is."""
    HAVE_FAULTY = "have_faulty"
    """It was here, and is damaged here, too: its row is sound, and names the very same batch. If the question names no
    batch: what is here at that offset is damaged."""
    DONT_HAVE = "dont_have"
    """This log, which is sound in that place, ends before it, or has another batch there: it never acknowledged it."""
    DELETED = "deleted"
    """This log begins behind it: it was committed, and its records were deleted since."""
    UNKNOWN = "unknown"
    """Nothing can be said: no such log here, or one that is being changed, or whose row is lost as well."""
