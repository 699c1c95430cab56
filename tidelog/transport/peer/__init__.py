"""Communication between brokers: frames on a few long-lived connections (docs/peer-protocol.md)."""

from tidelog.transport.peer.bounds import Lane, PeerBounds
from tidelog.transport.peer.calling import CallingEnd
from tidelog.transport.peer.errors import PeerBusy, PeerLost, PeerRefused, PeerUnreachable
from tidelog.transport.peer.handler import Answer, PeerHandler
from tidelog.transport.peer.hello import Hello
from tidelog.transport.peer.node import PeerNode
from tidelog.transport.peer.proof import ClusterSecret
from tidelog.transport.peer.statistics import PeerStatistics

__all__ = [
    "Answer",
    "CallingEnd",
    "ClusterSecret",
    "Hello",
    "Lane",
    "PeerBounds",
    "PeerBusy",
    "PeerHandler",
    "PeerLost",
    "PeerNode",
    "PeerRefused",
    "PeerStatistics",
    "PeerUnreachable",
]
