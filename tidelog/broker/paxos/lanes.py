"""`Lanes`: which of several connections to a broker carries a frame of a Paxos partition (`paxos.peer.lanes`).

A connection delivers in order, so a packet that is lost holds up all that was sent behind it; on other connections
things go on. Paxos takes messages in any order. So a frame goes by the lane with the fewest bytes in frames that are
not answered. What has to be sent again goes by another lane than before, which is avoided for a while then.

A write is answered by its acceptance, and that by the notice that the value is chosen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.broker.paxos.messages import PartitionFrame
from tidelog.broker.runtime.stats import Stats
from tidelog.model.ports import Clock
from tidelog.replication.paxos.messages import Learned, WriteRequest, WriteResponse

FRAME_BYTES: Final = 1 << 10
"""Bytes that a frame counts for besides its payloads."""
UNANSWERED_MAX: Final = 4_096
"""Maximum number of frames that are remembered; the oldest are forgotten first."""
LATE_S: Final = 0.1
"""Seconds after which a frame that is sent again counts as held up by its lane. (A proposer repeats all that is not
answered at its timer, however young.)"""
AVOIDED_S: Final = 2.0
"""Seconds for which a lane is avoided that has held up a frame, if there are others."""

_Key = tuple[int, str, int, int, type]


class _Sent(NamedTuple):
    lane: int
    size: int
    moment_s: float


class Lanes:
    """The lanes to all other brokers, with the writes and answers that were sent by them."""

    def __init__(self, clock: Clock, stats: Stats) -> None:
        self._clock = clock
        self._stats = stats
        self._sent: dict[_Key, _Sent] = {}
        self._bytes = Counter[tuple[int, int]]()
        """Bytes of the frames in `_sent`, by node id and lane."""
        self._avoided_to_s: dict[tuple[int, int], float] = {}

    def choose(self, node_id: int, message: PartitionFrame, lanes: Sequence[int]) -> int:
        """Returns the lane for a frame to a broker, one of `lanes`, whose connections are open."""
        now_s, inner = self._clock.monotonic_s(), message.frame.message
        if not isinstance(inner, WriteRequest | WriteResponse):
            return self._best(node_id, lanes, now_s)
        key = node_id, message.topic_id, message.partition, inner.position, type(inner)
        before = self._forget(key)
        if before is not None and now_s - before.moment_s >= LATE_S:
            self._stats.paxos_late_frames += 1
            self._avoided_to_s[node_id, before.lane] = now_s + AVOIDED_S
        lane = self._best(node_id, lanes, now_s)
        self._sent[key] = sent = _Sent(lane, FRAME_BYTES + sum(message.frame.sizes), now_s)
        self._bytes[node_id, lane] += sent.size
        if len(self._sent) > UNANSWERED_MAX:
            self._forget(next(iter(self._sent)))
        return lane

    def answered(self, node_id: int, message: PartitionFrame) -> None:
        """Takes note of a broker's frame, which may be the answer to a write, or tell what is chosen."""
        inner = message.frame.message
        place = node_id, message.topic_id, message.partition
        if isinstance(inner, WriteResponse):
            self._forget((*place, inner.position, WriteRequest))
        # An acceptance that comes after the value is chosen is of no use any more, wherever it is.
        notices = (*message.frame.notices, inner) if isinstance(inner, Learned) else message.frame.notices
        for notice in notices:
            self._forget((*place, notice.position, WriteResponse))

    def _best(self, node_id: int, lanes: Sequence[int], now_s: float) -> int:
        """Returns the least busy lane, if possible of those that are not avoided; of equal ones the first, so that
        frames one after the other stay on one connection."""
        avoided_to_s, size = self._avoided_to_s, self._bytes
        return min(lanes, key=lambda lane: (avoided_to_s.get((node_id, lane), 0.0) > now_s, size[node_id, lane]))

    def _forget(self, key: _Key) -> _Sent | None:
        sent = self._sent.pop(key, None)
        if sent is not None:
            self._bytes[key[0], sent.lane] -= sent.size
        return sent
