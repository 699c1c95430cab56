"""Errors between two brokers, and how a broker's error reaches the other one.

An error crosses as its code, its message, Kafka's code for it, by which finer kinds of a code are told apart, and the
whole numbers that it carries as attributes (an offset range, a leader epoch), so that the exception raised at the
caller says what the one raised at the callee said. A code that this version does not know becomes the nearest exception
of its status, which keeps what is definite definite (`tidelog.transport.errors`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidelog.model.errors import TidelogError
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.wire_numbers import Int64
from tidelog.transport.errors import error_from_code


class PeerUnreachable(TidelogError):
    """There is no connection to the broker: surely the request was not sent. Try again, or ask another broker."""

    code = 50383
    kafka = KafkaCode.LEADER_NOT_AVAILABLE
    retriable = True


class PeerLost(TidelogError):
    """The connection died after the request was handed to it: whether the peer did its work is unknown."""

    code = 50483
    kafka = KafkaCode.REQUEST_TIMED_OUT
    retriable = True


class PeerRefused(PeerUnreachable):
    """The other broker is not one to talk to: another cluster, another protocol, another node, an earlier life."""

    code = 50384


class PeerBusy(PeerRefused):
    """The other broker takes no connection now: it has no place, is stopping, or did not hear in time. Try again."""

    code = 50385


_KAFKA: Final = "kafka"


class Fault(msgspec.Struct, frozen=True):
    """A `TidelogError` on its way."""

    code: Int64
    message: str
    details: dict[str, Int64] = {}

    @classmethod
    def of(cls, error: TidelogError) -> Fault:
        """Returns the fault that tells the peer of an error: code, message, and its numbers."""
        details = {name: value for name, value in vars(error).items() if type(value) is int}
        if error.kafka is not None:  # it tells finer kinds of a code apart; an older broker passes it over
            details[_KAFKA] = int(error.kafka)
        return cls(error.code, error.message, details)

    def to_refusal(self) -> PeerRefused:
        """Returns why the peer ends the connection. An older one does not tell whether it is only busy."""
        return PeerBusy(self.message) if self.code == PeerBusy.code else PeerRefused(self.message)

    def to_error(self) -> TidelogError:
        """Returns the exception to be raised at the caller."""
        error = PeerRefused(self.message) if self.code == PeerRefused.code else error_from_code(self.code, self.message)
        for kind in type(error).__subclasses__():
            if kind.code == error.code and kind.kafka == self.details.get(_KAFKA) != error.kafka:
                error = kind(self.message)
        for name, value in self.details.items():
            if isinstance(vars(error).get(name, ""), int | None):  # else whoever sends it could change its code
                setattr(error, name, value)
        return error
