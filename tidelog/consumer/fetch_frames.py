"""Fetches from a partition in frames: by Fetch of Kafka's protocol, with what HTTP tells in headers.

A broker that takes no frames, or does not lead the partition, has the fetch by HTTP, which forwards it.
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
from tidelog.transport.frames.codec import Fetched, Wanted
from tidelog.transport.frames.errors import error_of, told_nonsense
from tidelog.transport.frames.session import RecordSession

INT32_MAX: Final = (1 << 31) - 1


async def fetch_in_frames(session: RecordSession, address: str, wanted: Wanted) -> FetchAnswer | None:
    """Returns None where HTTP is to be asked. Raises what went wrong."""
    if not session.has_frames(address):
        return None
    bytes_max = min(wanted.bytes_max, INT32_MAX)
    wanted = wanted._replace(bytes_max=bytes_max, bytes_min=min(wanted.bytes_min, bytes_max))
    wait_s = wanted.wait_ms / 1000
    request = codec.fetch(session.client_id, wanted)
    frame = await session.attempt_in_frames(
        address, request, timeout_s=session.request_timeout_s + wait_s, expects_s=wait_s
    )
    if frame is None:
        session.no_frames(address)
        return None
    try:
        fetched = codec.read_fetched(frame, wanted)
    except Malformed as error:
        raise told_nonsense(error) from error
    found = parse_fetched(fetched)
    if isinstance(found, FetchAnswer):
        session.succeeded()
        return found
    if isinstance(found, NotLeader) and session.transport != "kafka":
        return None
    raise found


def parse_fetched(fetched: Fetched) -> FetchAnswer | TidelogError:
    """Returns the records of an answer, or the error that it tells."""
    told = fetched.told
    if told.tag is None:
        return (
            error_of(told)
            if told.code
            else NoAnswer("the answer does not tell what is lost; is this a tidelog broker?")
        )
    try:
        said = decode_fetched(told.tag)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # msgspec lets the second one through
        return NoAnswer(f"the answer makes no sense ({error}); is this a tidelog broker?")
    if said.error_code is not None:
        return _error(said.error_code, said)
    if told.code:
        return error_of(told)
    return FetchAnswer(fetched.records, lost_from_answer(said.lost), fetched.high_watermark, said.leader_epoch)


def _error(code: int, said: FetchedTag) -> TidelogError:
    if code == OffsetOutOfRange.code:
        return OffsetOutOfRange(said.message, said.log_start_offset, said.log_end_offset)
    return error_from_code(code, said.message)
