"""Produce requests by Kafka's protocol, with the same receipts as over HTTP.

With acks=0, HTTP reports rejected batches and Kafka's protocol closes the connection, so those requests use HTTP. An
error with a Kafka code only, without tidelog's field, becomes the closest exception of tidelog; an unknown code means
an unknown outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from tidelog.model.errors import NotLeader, TidelogError
from tidelog.model.kafka_codes import OLD_REPEAT
from tidelog.model.kafka_wire import Malformed
from tidelog.model.receipt_tags import decode_produced
from tidelog.producer.accumulator import BatchReceipt
from tidelog.producer.options import ProducerOptions
from tidelog.producer.parcels import STRAY, Outcome, Parcel
from tidelog.transport.errors import NoAnswer, error_from_code
from tidelog.transport.frames import codec
from tidelog.transport.frames.codec import PartitionStatus, Sent
from tidelog.transport.frames.errors import error_of, nonsense
from tidelog.transport.frames.session import RecordSession
from tidelog.transport.session import verdict_ms

ACKS: Final = MappingProxyType({"all": -1, "1": 1})


class ProduceFrames:
    """Sends parcels (batches of one partition for one attempt) as Produce requests to the Kafka listeners of
    brokers."""

    def __init__(self, session: RecordSession, options: ProducerOptions) -> None:
        self._session = session
        self._options = options

    def may_carry(self, address: str, parcels: list[Parcel]) -> bool:
        """Returns True if these parcels (batches of one partition for one attempt) may be sent to this broker by
        Kafka's protocol: it has a usable Kafka listener, and neither `acks` nor a parcel that needs a request of its
        own requires HTTP."""
        is_usual = not parcels[0].travels_alone or self._session.transport == "kafka"
        return is_usual and self._options.acks in ACKS and self._session.has_frames(address)

    async def send(self, address: str, parcels: list[Parcel]) -> list[Outcome]:
        """Returns an outcome for each parcel, possibly `STRAY`. Raises `NoAnswer`, `ConnectFailed`."""
        timeout_s = max(0.001, min(parcel.deadline_s for parcel in parcels) - asyncio.get_running_loop().time())
        sent = [Sent(*parcel.partition, parcel.batches, parcel.size) for parcel in parcels]
        request = codec.produce(self._session.client_id, ACKS[self._options.acks], verdict_ms(timeout_s), sent)
        expects_s = 0.0 if self._options.is_idempotent else None
        frame = await self._session.attempt_in_frames(address, request, timeout_s=timeout_s, expects_s=expects_s)
        if frame is None:
            self._session.no_frames(address)
            return [STRAY] * len(parcels)
        try:
            results = codec.read_produced(frame, sent)
        except Malformed as error:
            raise nonsense(error) from error
        outcomes = [self._outcome(result, len(parcel.batches)) for result, parcel in zip(results, parcels, strict=True)]
        if any(outcome.receipts for outcome in outcomes):
            self._session.succeeded()
        return outcomes

    def _outcome(self, result: PartitionStatus, batch_count: int) -> Outcome:
        receipts = parse_result(result, batch_count)
        if isinstance(receipts, NotLeader) and self._session.transport != "kafka":
            return STRAY
        return Outcome(error=receipts, is_own=True) if isinstance(receipts, TidelogError) else Outcome(receipts)


def parse_result(result: PartitionStatus, batch_count: int) -> Sequence[BatchReceipt] | TidelogError:
    """Returns the receipts of a partition's batches, or the partition's error."""
    if result.tag is None:
        return _in_kafkas_words(result, batch_count)
    try:
        tag = decode_produced(result.tag)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # msgspec lets the second one through
        return NoAnswer(f"the receipt makes no sense ({error}); is this a tidelog broker?")
    if tag.error_code is not None:
        return error_from_code(tag.error_code, tag.message)
    if len(tag.base_offsets) != batch_count:
        return NoAnswer(f"the receipt names {len(tag.base_offsets)} batches, {batch_count} were sent")
    acked_by = tuple(tag.acked_by)
    return [BatchReceipt(offset, tag.leader_epoch, acked_by, tag.durability) for offset in tag.base_offsets]


def _in_kafkas_words(result: PartitionStatus, batch_count: int) -> Sequence[BatchReceipt] | TidelogError:
    if result.code in (0, OLD_REPEAT):
        return NoAnswer(f"the answer has no receipt of {batch_count} batches; is this a tidelog broker?")
    return error_of(result)
