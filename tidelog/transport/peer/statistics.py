"""Counters of a `PeerNode`, the connections between brokers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

UNREADABLE: Final = "unreadable"
"""Reason for rejection: the message cannot be decoded, or a number is outside its field's range."""
SENDER: Final = "sender"
"""Reason for rejection: the message claims the node id, epoch or id of another broker than its sender."""
NUMBER: Final = "number"
"""Reason for rejection: a ballot or position that cannot have been reached."""
UNREGISTERED: Final = "unregistered"
"""Reason for rejection: the sender's process is not registered in the metadata, or not yet."""
REASONS: Final = (UNREADABLE, SENDER, NUMBER, UNREGISTERED)


@dataclass(slots=True)
class PeerStatistics:
    """Counters of a `PeerNode`, monotonic since its start."""

    connects: int = 0
    """Opened connections on which both hellos were exchanged."""
    failed_connects: int = 0
    accepts: int = 0
    """Accepted connections on which both hellos were exchanged."""
    requests: int = 0
    timeouts: int = 0
    given_up: int = 0
    """Requests whose caller was cancelled or timed out."""
    lost: int = 0
    """Requests whose connection was lost before the response."""
    late_answers: int = 0
    """Responses to requests that are no longer awaited."""
    notified: dict[int, int] = field(default_factory=dict)
    """Notifications that were sent, by lane."""
    notifications_dropped: int = 0
    served: int = 0
    """Requests of other brokers that were answered with a result or an error."""
    overloads: int = 0
    """Requests of other brokers that were rejected because of a bound."""
    refusals: int = 0
    """Connections, opened or accepted, that this end rejected for any reason."""
    unproved: int = 0
    """Connections rejected for a missing or invalid proof of the cluster's secret."""
    refused: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    """Rejected messages of other brokers, by the reason (`REASONS`)."""
