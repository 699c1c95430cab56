"""The bounds of what one broker may cost another: sizes, counts and times."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Lane(enum.IntEnum):
    """A lane: one of the two connections to a peer. They are apart so that a heartbeat never waits behind a batch."""

    CONTROL = 0
    """Elections, the metadata log, commands to the controller: small and urgent."""
    DATA = 1
    """Batches: forwarded produce and fetch requests."""


@dataclass(frozen=True, slots=True)
class PeerBounds:
    """Bounds of a `PeerNode`. Who hits one gets `Overloaded`, a dropped notification or a closed connection."""

    frame_bytes_max: int = 64 << 20
    """A message with its payload."""
    hello_bytes_max: int = 4096
    """The only frame that is taken from somebody who has not said yet who they are."""
    requests_max: int = 1024
    """Unanswered requests per connection, on either side of it."""
    queued_bytes_max: int = 64 << 20
    """Bytes that wait for a slow peer, per connection: beyond it, requests and answers are refused."""
    notify_bytes_max: int = 4 << 20
    """The same for notifications: beyond it, they are dropped."""
    connections_max: int = 512
    """Connections taken from others."""
    strangers_max: int = 64
    """Connections of these that have not said hello; and as many of nodes that this broker does not know."""
    connect_s_max: float = 3.0
    """For the system to open a connection."""
    handshake_s_max: float = 3.0
    """For both sides to have greeted each other."""
    quiet_s: float = 0.4
    """For how long an answer may be overdue, and none come at all, before the peer is asked whether it is there."""
    backoff_s_min: float = 0.02
    """After the first failed attempt to connect; doubles with each, and is jittered."""
    backoff_s_max: float = 1.0
    close_s_max: float = 2.0
    """For all tasks and connections to end when the node is closed."""
