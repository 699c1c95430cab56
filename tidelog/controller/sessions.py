"""Who was heard when: the sessions of live brokers, as the active controller keeps them. Pure; time comes in.

A session belongs to a registration (a broker epoch). It is kept in memory only: a new controller gives every live
broker a whole session from its election on, since it cannot know when its predecessor heard them last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidelog.model.cluster import ClusterImage
from tidelog.model.ids import NodeId


@dataclass(frozen=True, slots=True)
class Session:
    """What a broker's process last said of itself."""

    broker_epoch: int
    heard_s: float
    position: int = 0
    """How far it has applied the metadata log."""
    snapshot_position: int = 0
    snapshot_hash: str = ""
    stamp: int = 0
    """The last time mark in its data directory."""


class Sessions:
    """Of all brokers that registered, live or fenced."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_s = timeout_ms / 1000
        self._sessions: dict[NodeId, Session] = {}
        self._begun_s = 0.0

    def begin(self, image: ClusterImage, now_s: float) -> None:
        """A reign begins: everybody was heard just now."""
        self._begun_s = now_s
        self._sessions = {node: Session(broker.epoch, now_s) for node, broker in image.brokers.items()}

    def follow(self, image: ClusterImage, now_s: float) -> None:
        """Registrations come and go: each new one begins a session."""
        followed = {}
        for node, broker in image.brokers.items():
            session = self._sessions.get(node)
            is_known = session is not None and session.broker_epoch == broker.epoch
            followed[node] = session if session is not None and is_known else Session(broker.epoch, now_s)
        self._sessions = followed

    def heard(
        self,
        node_id: int,
        broker_epoch: int,
        now_s: float,
        *,
        position: int,
        snapshot: tuple[int, str] | None = None,
        stamp: int = 0,
    ) -> None:
        """A broker has spoken. Positions only grow; what comes late from the network takes nothing back."""
        session = self._sessions.get(NodeId(node_id))
        if session is None or session.broker_epoch != broker_epoch:
            return
        session = replace(session, heard_s=now_s, position=max(session.position, position))
        session = replace(session, stamp=max(session.stamp, stamp))
        if snapshot is not None and snapshot[0] >= session.snapshot_position:
            session = replace(session, snapshot_position=snapshot[0], snapshot_hash=snapshot[1])
        self._sessions[NodeId(node_id)] = session

    def of(self, node_id: int) -> Session | None:
        """None if the broker is not registered."""
        return self._sessions.get(NodeId(node_id))

    def silent_ms(self, node_id: int, now_s: float) -> float:
        """For how long the broker was not heard of, as far as this controller knows."""
        session = self._sessions.get(NodeId(node_id))
        return (now_s - (self._begun_s if session is None else session.heard_s)) * 1000

    def expired(self, image: ClusterImage, now_s: float) -> list[tuple[NodeId, int]]:
        """The live brokers that were not heard of for a session's time, with their epochs."""
        return [
            (node, session.broker_epoch)
            for node, session in self._sessions.items()
            if image.is_live(node) and now_s - session.heard_s >= self._timeout_s
        ]
