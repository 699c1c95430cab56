"""Errors between brokers, and their encoding in frames.

An error is sent as its code, its message, Kafka's error code, which distinguishes variants of a code, and its integer
attributes (such as an offset range or a leader epoch). So the caller raises the same exception as the answering broker.
A code that this version does not know becomes the closest exception with the same HTTP status, so that definite errors
stay definite (`tidelog.transport.errors`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidelog.model.errors import TidelogError
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.wire_numbers import Int64
from tidelog.transport.errors import error_from_code


class PeerUnreachable(TidelogError, code=50383, kafka=KafkaCode.LEADER_NOT_AVAILABLE, retriable=True):
    """There is no connection to the broker: the request was certainly not sent. Retry, or ask another broker."""


class PeerLost(TidelogError, code=50483, kafka=KafkaCode.REQUEST_TIMED_OUT, retriable=True):
    """The connection was lost after the request was handed to it: its outcome is unknown."""


class PeerRefused(PeerUnreachable, code=50384):
    """The connection was rejected: the other broker is of another cluster, protocol or node than expected, or an
    earlier process of its node."""


class PeerBusy(PeerRefused, code=50385):
    """The other broker accepts no connection now: it is at its limit, is shutting down, or was too slow to answer.
    Retry."""


_KAFKA: Final = "kafka"


class Fault(msgspec.Struct, frozen=True):
    """An encoded `TidelogError`."""

    code: Int64
    message: str
    details: dict[str, Int64] = {}

    @classmethod
    def of(cls, error: TidelogError) -> Fault:
        """Returns the encoded form of an error: code, message, and integer attributes."""
        details = {name: value for name, value in vars(error).items() if type(value) is int}
        if error.kafka is not None:  # it tells finer kinds of a code apart; an older broker passes it over
            details[_KAFKA] = int(error.kafka)
        return cls(error.code, error.message, details)

    def to_refusal(self) -> PeerRefused:
        """Returns the `PeerRefused` or `PeerBusy` with which the peer ends a connection; `PeerRefused` from an older
        version, which does not distinguish them."""
        return PeerBusy(self.message) if self.code == PeerBusy.code else PeerRefused(self.message)

    def to_error(self) -> TidelogError:
        """Returns the exception that the calling broker raises."""
        error = PeerRefused(self.message) if self.code == PeerRefused.code else error_from_code(self.code, self.message)
        for kind in type(error).__subclasses__():
            if kind.code == error.code and kind.kafka == self.details.get(_KAFKA) != error.kafka:
                error = kind(self.message)
        for name, value in self.details.items():
            if isinstance(vars(error).get(name, ""), int | None):  # else whoever sends it could change its code
                setattr(error, name, value)
        return error
