"""Fetches from a partition by Kafka's Fetch request, with the same results as over HTTP.

If the broker has no usable Kafka listener or is not the leader, the fetch uses HTTP, where brokers forward.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidelog.consumer.options import FetchAnswer
from tidelog.model.errors import NotLeader, OffsetOutOfRange, TidelogError
from tidelog.model.kafka_wire import Malformed
from tidelog.model.receipt_tags import FetchedTag, decode_fetched
from tidelog.transport.errors import NoAnswer, error_from_code, lost_from_answer
from tidelog.transport.frames import codec
from tidelog.transport.frames.codec import Fetched, FetchQuery
from tidelog.transport.frames.errors import error_of, nonsense
from tidelog.transport.frames.session import RecordSession

INT32_MAX: Final = (1 << 31) - 1


async def fetch_in_frames(session: RecordSession, address: str, query: FetchQuery) -> FetchAnswer | None:
    """Fetches from one partition by Kafka's protocol. Returns None if HTTP has to be used instead: the broker has no
    usable Kafka listener, or is not the leader. Raises the error in the broker's response, `NoAnswer` or
    `ConnectFailed`."""
    if not session.has_frames(address):
        return None
    bytes_max = min(query.bytes_max, INT32_MAX)
    query = query._replace(bytes_max=bytes_max, bytes_min=min(query.bytes_min, bytes_max))
    wait_s = query.wait_ms / 1000
    request = codec.fetch(session.client_id, query)
    frame = await session.attempt_in_frames(
        address, request, timeout_s=session.request_timeout_s + wait_s, expects_s=wait_s
    )
    if frame is None:
        session.no_frames(address)
        return None
    try:
        fetched = codec.read_fetched(frame, query)
    except Malformed as error:
        raise nonsense(error) from error
    outcome = parse_fetched(fetched)
    if isinstance(outcome, FetchAnswer):
        session.succeeded()
        return outcome
    if isinstance(outcome, NotLeader) and session.transport != "kafka":
        return None
    raise outcome


def parse_fetched(fetched: Fetched) -> FetchAnswer | TidelogError:
    """Returns the records of a Fetch response, or its error."""
    result = fetched.status
    if result.tag is None:
        return (
            error_of(result)
            if result.code
            else NoAnswer("the answer does not tell what is lost; is this a tidelog broker?")
        )
    try:
        tag = decode_fetched(result.tag)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # msgspec lets the second one through
        return NoAnswer(f"the answer makes no sense ({error}); is this a tidelog broker?")
    if tag.error_code is not None:
        return _error(tag.error_code, tag)
    if result.code:
        return error_of(result)
    return FetchAnswer(fetched.records, lost_from_answer(tag.lost), fetched.high_watermark, tag.leader_epoch)


def _error(code: int, tag: FetchedTag) -> TidelogError:
    if code == OffsetOutOfRange.code:
        return OffsetOutOfRange(tag.message, tag.log_start_offset, tag.log_end_offset)
    return error_from_code(code, tag.message)
