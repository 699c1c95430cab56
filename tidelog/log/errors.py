"""Errors of the writer of a log. All others are in `tidelog.model.errors` and `tidelog.transport.errors`."""

from __future__ import annotations

from tidelog.model.errors import TidelogError


class WriterFenced(TidelogError, code=41281):
    """Another writer has claimed the log. The entry was not appended, and this writer can append no more.

    In Mesos, `append` returns "none" in this case. The writer may call `start` again to become the writer.
    """
