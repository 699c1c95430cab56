"""Translates Kafka's error codes to tidelog's exceptions, where a response lacks tidelog's own error field."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tidelog.model import errors
from tidelog.model.errors import TidelogError, TimedOutAfterAppend
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.kafka_wire import Malformed
from tidelog.transport.errors import NoAnswer
from tidelog.transport.frames.codec import PartitionStatus

_BY_KAFKA: Final[Mapping[int, type[TidelogError]]] = MappingProxyType(
    {
        int(kind.kafka): kind
        for kind in reversed(vars(errors).values())
        if isinstance(kind, type) and issubclass(kind, TidelogError) and kind.kafka is not None
    }
    | {int(KafkaCode.REQUEST_TIMED_OUT): TimedOutAfterAppend}
)


def error_of(status: PartitionStatus) -> TidelogError:
    """Returns the exception for a Kafka error code; `NoAnswer` (outcome unknown) for an unknown code."""
    kind = _BY_KAFKA.get(status.code)
    text = status.message or f"Kafka's error {status.code}"
    return NoAnswer(text) if kind is None else kind(text)


def nonsense(error: Malformed) -> NoAnswer:
    """Returns the error for a response that cannot be parsed: `NoAnswer`, since the broker may have executed the
    request."""
    return NoAnswer(f"the answer makes no sense ({error.message}); is this a tidelog broker?")
