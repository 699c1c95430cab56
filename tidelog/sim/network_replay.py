"""Which frames may arrive twice, and in which form.

TCP delivers nothing twice, but a request can reach a broker twice all the same: its sender lost the connection and
tried again, or it waited in the socket of a process that was paused. So what is repeated is a request or a
notification, with a correlation id that nobody waits for: its answer is dropped, as that of a caller who has given up.
"""

from __future__ import annotations

from tidelog.transport.peer.frames import BadFrame, Kind, pack, unpack

FIRST_ID = 1 << 63
"""No caller counts as far."""


def replay_of(frame: bytes, number: int) -> bytes | None:
    """The frame as it arrives the second time; None if it is of a kind that never does."""
    try:
        parts = unpack(memoryview(frame))
    except BadFrame:
        return None
    if parts.kind not in (Kind.REQUEST, Kind.NOTIFY):
        return None
    correlation = FIRST_ID + number if parts.kind is Kind.REQUEST else 0
    buffers = pack(
        parts.kind, bytes(parts.header), [parts.payload], correlation=correlation, timeout_ms=parts.timeout_ms
    )
    return b"".join(buffers)
