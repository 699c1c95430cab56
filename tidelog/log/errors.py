"""Errors that only the writer of a log can meet. All others are in `tidelog.model.errors` and
`tidelog.transport.errors`."""

from __future__ import annotations

from tidelog.model.errors import TidelogError


class WriterFenced(TidelogError):
    """Another writer has claimed the log since: surely nothing was appended, and this writer appends no more.

    Mesos answers "none" then: the writer has lost its promise, and may `start` again to win it back.
    """

    code = 41281
