"""Repeated frames: which frames may arrive twice, and in what form.

TCP delivers nothing twice, but a request can reach a broker twice all the same: its sender lost the connection and
tried again, or it waited in the socket of a process that was paused. So only requests and notifications are repeated,
with a correlation id that no caller waits for: the answer is dropped, as that for a caller that has given up. Senders
do not retry batches that the leader would not recognise, so those are not repeated.
"""

from __future__ import annotations

import msgspec

from tidelog.broker.routing.forwarding_messages import ForwardProduce
from tidelog.model.batch_header import iter_batches
from tidelog.transport.peer.frames import BadFrame, Frame, Kind, pack, unpack

FIRST_ID = 1 << 63
"""First correlation id of repeated frames, larger than any that a caller uses."""


def replay_of(frame: bytes, number: int) -> bytes | None:
    """Returns the frame as it arrives the second time; None if it is of a kind that is never repeated."""
    try:
        parts = unpack(memoryview(frame))
    except BadFrame:
        return None
    if parts.kind not in (Kind.REQUEST, Kind.NOTIFY) or _is_sent_once(parts):
        return None
    correlation = FIRST_ID + number if parts.kind is Kind.REQUEST else 0
    buffers = pack(
        parts.kind, bytes(parts.header), [parts.payload], correlation=correlation, timeout_ms=parts.timeout_ms
    )
    return b"".join(buffers)


def _is_sent_once(parts: Frame) -> bool:
    message = msgspec.msgpack.decode(parts.header) if parts.header else None
    if not isinstance(message, dict) or message.get("type") != ForwardProduce.__name__ or message["idempotency"]:
        return False
    return any(batch.header.producer_id < 0 for batch in iter_batches(parts.payload))
