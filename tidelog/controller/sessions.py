"""The sessions of brokers: when the active controller last heard of each one. Pure: each method is given the time.

A session belongs to a registration (a broker epoch). It is kept in memory only: a new controller gives every live
broker a whole session from its election on, since it cannot know when its predecessor last heard of them.
It knows a time since which no predecessor can have answered a heartbeat: the leases of brokers that have sent it no
heartbeat yet count from then.

A session ends early if `WITNESSES` live brokers, perhaps the controller among them, report that the broker hangs or is
cut off: it owes them answers and sends no sign of life. But it does not end before the broker's lease has run out
(`broker/runtime/lease.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median

from tidelog.model.cluster import ClusterImage
from tidelog.model.ids import NodeId


@dataclass(frozen=True, slots=True)
class Session:
    """The last report of a broker process to the controller."""

    broker_epoch: int
    heard_s: float
    """The time of the last report; before the first report, the beginning of the session."""
    is_heard: bool = True
    """True if this process has sent this controller a report."""
    position: int = 0
    """The position up to which the broker has applied the metadata log."""
    snapshot_position: int = 0
    snapshot_hash: str = ""
    stamp: int = 0
    """The time mark in the broker's data directory: a regularly growing counter, which shows how recent the directory
    is."""
    clock_ms: int | None = None
    """Milliseconds by which the broker's wall clock was ahead of the controller's monotonic clock when the report
    arrived. The monotonic clock is never set, so reports of different times can be compared."""


WITNESSES = 2
WITNESS_S = 2.0
"""Seconds for which a witness's report counts; witnesses repeat it while the broker is silent."""


class Sessions:
    """The sessions of all registered brokers, live or fenced."""

    def __init__(self, timeout_ms: int, lease_ms: int) -> None:
        """`timeout_ms` is the time without a heartbeat after which a broker is fenced. `lease_ms` is the time after an
        answered heartbeat for which a broker may serve as a leader."""
        self._timeout_s = timeout_ms / 1000
        self._lease_s = lease_ms / 1000
        self._silences: dict[tuple[NodeId, int], dict[NodeId, float]] = {}
        """For each silent broker, by node id and broker epoch: the time of the last report of each witness."""
        self._sessions: dict[NodeId, Session] = {}
        self._begun_s = 0.0
        self._unanswered_s = 0.0
        """A time, in seconds, since which no earlier controller can have answered a heartbeat."""

    def begin(self, image: ClusterImage, now_s: float) -> None:
        """Begins a session for every registered broker, when the controller is elected."""
        # Its predecessor may have heard each of them a moment ago, and nothing of that is in the log. To count from
        # anything earlier would fence brokers that live.
        self._begun_s = self._unanswered_s = now_s
        self._silences = {}
        self._sessions = {node: Session(broker.epoch, now_s, is_heard=False) for node, broker in image.brokers.items()}

    def alone_since(self, since_s: float) -> None:
        """Records a time since which no earlier controller can have answered heartbeats."""
        self._unanswered_s = min(self._unanswered_s, since_s)

    def follow(self, image: ClusterImage, now_s: float) -> None:
        """Follows the registrations of an image: begins a session for each new registration, and ends those of removed
        brokers."""
        # A new registration is another process: it gets a whole session, and nothing that was heard of the last
        # one.
        self._sessions = {
            node: self._sessions[node] if self._is_of(node, broker.epoch) else Session(broker.epoch, now_s)
            for node, broker in image.brokers.items()
        }
        self._silences = {
            (node, epoch): words for (node, epoch), words in self._silences.items() if self._is_of(node, epoch)
        }

    def _is_of(self, node: NodeId, broker_epoch: int) -> bool:
        session = self._sessions.get(node)
        return session is not None and session.broker_epoch == broker_epoch

    def witnessed(self, silent_node: int, silent_epoch: int, witness: int, now_s: float) -> None:
        """Records a witness's report that another broker is silent."""
        # A word about an earlier process says nothing about the one that has registered since.
        if self._is_of(NodeId(silent_node), silent_epoch):
            self._silences.setdefault((NodeId(silent_node), silent_epoch), {})[NodeId(witness)] = now_s

    def heard(
        self,
        node_id: int,
        broker_epoch: int,
        now_s: float,
        *,
        position: int,
        snapshot: tuple[int, str] | None = None,
        stamp: int = 0,
        clock_ms: int | None = None,
    ) -> None:
        """Records a broker's report about itself; a report with another broker epoch than the session's is ignored."""
        session = self._sessions.get(NodeId(node_id))
        # A late heartbeat of a dead process must not keep its successor's session alive.
        if session is None or session.broker_epoch != broker_epoch:
            return
        # A late report takes nothing back: positions, marks and snapshots of one process only grow.
        session = replace(session, heard_s=now_s, is_heard=True, position=max(session.position, position))
        session = replace(session, stamp=max(session.stamp, stamp))
        if clock_ms is not None:
            session = replace(session, clock_ms=clock_ms)
        if snapshot is not None and snapshot[0] >= session.snapshot_position:
            session = replace(session, snapshot_position=snapshot[0], snapshot_hash=snapshot[1])
        self._sessions[NodeId(node_id)] = session

    def of(self, node_id: int) -> Session | None:
        """Returns a broker's session; None if the broker is not registered."""
        return self._sessions.get(NodeId(node_id))

    def silent_ms(self, node_id: int, now_s: float) -> float:
        """Returns the milliseconds since this controller last heard of the broker."""
        session = self._sessions.get(NodeId(node_id))
        # A voter that has never registered has no session; it counts as heard when this term began.
        return (now_s - (self._begun_s if session is None else session.heard_s)) * 1000

    def clock_offset_ms(self, image: ClusterImage, node_id: int) -> int | None:
        """Returns the milliseconds by which a broker's wall clock is ahead of the median of the live brokers' clocks;
        None if the broker has not reported its time."""
        own = self.of(node_id)
        live = [session.clock_ms for node, session in self._sessions.items() if image.is_live(node)]
        clocks = [clock_ms for clock_ms in live if clock_ms is not None]
        if own is None or own.clock_ms is None or not clocks:
            return None
        # The median, as one clock that is far off does not move it, as it would the mean.
        return int(own.clock_ms - median(clocks))

    def expired(self, image: ClusterImage, now_s: float) -> list[tuple[NodeId, int]]:
        """Returns the live brokers, with their epochs, whose session has expired, or that enough witnesses report as
        silent."""
        return [
            (node, session.broker_epoch)
            for node, session in self._sessions.items()
            if image.is_live(node)
            and (
                now_s - session.heard_s >= self._timeout_s
                # Even witnesses cannot end a session within the lease: until it runs out the broker may answer reads
                # as a leader, and a successor elected earlier would be a second one.
                or (self._is_silent(image, node, now_s) and now_s - self._answered_s(session) >= self._lease_s)
            )
        ]

    def _answered_s(self, session: Session) -> float:
        """Returns a time since which no controller has answered a heartbeat of this session's broker."""
        return session.heard_s if session.is_heard else self._unanswered_s

    def _is_silent(self, image: ClusterImage, node: NodeId, now_s: float) -> bool:
        session = self._sessions[node]
        words = self._silences.get((node, session.broker_epoch), {})
        # The heartbeat refutes whatever was said before it.
        recent = [witness for witness, said_s in words.items() if max(now_s - WITNESS_S, session.heard_s) <= said_s]
        # One witness is not enough: it may be the one that is cut off; and a fenced one probably is.
        return sum(witness != node and image.is_live(witness) for witness in recent) >= WITNESSES
