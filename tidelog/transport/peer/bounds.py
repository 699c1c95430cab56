"""Bounds on the resources that one broker may use at another: sizes, counts and times."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Lane(enum.IntEnum):
    """The connections to each peer broker. They are separate so that a heartbeat never waits behind a batch.
    There may be further lanes for batches, with the numbers behind `DATA` (`PeerBounds.data_lanes`)."""

    CONTROL = 0
    """Elections, the metadata log, and commands to the controller: small, urgent messages."""
    DATA = 1
    """Batches: forwarded produce and fetch requests."""


@dataclass(frozen=True, slots=True)
class PeerBounds:
    """Bounds of a `PeerNode`. Exceeding one raises `Overloaded`, drops a notification, or closes the connection."""

    frame_bytes_max: int = 64 << 20
    """Maximum bytes of a frame, including its payload."""
    hello_bytes_max: int = 4096
    """Maximum bytes of a hello, which is the only frame accepted from a broker that has not identified itself."""
    requests_max: int = 1024
    """Maximum unanswered requests per connection, at the calling and at the answering end."""
    queued_bytes_max: int = 64 << 20
    """Maximum bytes that wait to be sent to a slow peer, per connection; beyond it, requests and responses are
    rejected."""
    notify_bytes_max: int = 4 << 20
    """Maximum bytes that wait to be sent, per connection, for a notification to be accepted; beyond it, notifications
    are dropped."""
    data_lanes: int = 1
    """Connections to each peer for batches: `Lane.DATA` and those behind it."""
    connections_max: int = 512
    """Maximum accepted connections if peers have one lane for batches; see `accepted_max`."""
    strangers_max: int = 64
    """Maximum accepted connections without a hello yet; the same maximum applies separately to connections of nodes
    that this broker does not know."""
    connect_s_max: float = 3.0
    """Seconds for opening a TCP connection."""
    handshake_s_max: float = 3.0
    """Seconds for the exchange of hellos on a new connection."""
    quiet_s: float = 0.4
    """Seconds without any response, while one is overdue, after which the peer is pinged."""
    backoff_s_min: float = 0.02
    """Seconds before the second attempt to connect; doubles with each failed attempt, with jitter."""
    backoff_s_max: float = 1.0
    close_s_max: float = 2.0
    """Seconds within which all tasks and connections have to end when the node is closed."""

    @property
    def accepted_max(self) -> int:
        """Maximum accepted connections: as many peers as with one lane for batches."""
        return self.connections_max * (1 + self.data_lanes) // 2
