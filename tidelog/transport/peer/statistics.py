"""Counts of what a `PeerNode` did, since it was made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

UNREADABLE: Final = "unreadable"
"""No message of this protocol, or with a number that its field cannot hold."""
SENDER: Final = "sender"
"""In another broker's name, or under an epoch or id that is not the sender's."""
NUMBER: Final = "number"
"""A ballot or position that nobody can have come to."""
UNREGISTERED: Final = "unregistered"
"""From a process that the metadata do not name, or not yet."""
REASONS: Final = (UNREADABLE, SENDER, NUMBER, UNREGISTERED)


@dataclass(slots=True)
class PeerStatistics:
    """Counters only go up."""

    connects: int = 0
    """Connections to peers that got as far as both hellos."""
    failed_connects: int = 0
    accepts: int = 0
    """Connections of peers that got as far."""
    requests: int = 0
    timeouts: int = 0
    given_up: int = 0
    """Requests whose caller was cancelled or ran out of time."""
    lost: int = 0
    """Requests whose connection died under them."""
    late_answers: int = 0
    """Answers to requests that nobody waits for any more."""
    notifications_dropped: int = 0
    served: int = 0
    """Requests of others that came to an answer or an error."""
    overloads: int = 0
    """Requests of others that were refused because of a bound."""
    refusals: int = 0
    """Connections, in either direction, that this end would not have, for whatever reason."""
    unproved: int = 0
    """Refusals of ends that did not prove that they know the cluster's secret."""
    refused: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    """Messages of others that no correct broker could have sent, or not this one, or not now, by the reason."""
