"""Fetches from one leader: all partitions that this broker follows from it, one fetch at a time (Kafka's
ReplicaFetcherThread).

While one fetch waits at the leader, the data of the last one is flushed here, and the leader gets a report of that at
once: so the leader's high watermark never waits for a fetch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import structlog

from tidelog.broker.isr.follower import Follower
from tidelog.broker.isr.replica_messages import FetchReplicas, FollowerState, ReplicasFetched, ReplicasFlushed
from tidelog.broker.partitions.throttle import Throttle
from tidelog.model.errors import TidelogError
from tidelog.model.ids import PartitionId, TopicId
from tidelog.model.ports import Clock, Entropy
from tidelog.transport.peer import Answer, Lane

WAIT_MS = 500
FETCH_BYTES_MAX = 8 << 20
ANSWER_S_MAX = 5.0
PAUSE_S = 0.05
PAUSE_S_MAX = 1.0
CHANGED_MAX = 10_000

logger = structlog.get_logger("tidelog.replication")


class Peers(Protocol):
    """The methods of `PeerNode` (the connections to other brokers) that fetching uses."""

    async def request(
        self, node_id: int, message: msgspec.Struct, *, deadline_s: float, lane: Lane = Lane.CONTROL
    ) -> Answer: ...

    def notify(
        self, node_id: int, message: msgspec.Struct, payload: Sequence[bytes] = (), *, lane: Lane = Lane.CONTROL
    ) -> bool: ...


class Fetcher:
    """The fetcher of one leader: fetches all partitions that this broker follows from it. `run` is its task."""

    def __init__(
        self,
        node_id: int,
        leader: int,
        broker_epoch: Callable[[], int],
        peers: Peers,
        clock: Clock,
        entropy: Entropy,
        throttle: Throttle,
    ) -> None:
        """`broker_epoch` returns the epoch of this broker's present registration."""
        self.followers: dict[PartitionId, Follower] = {}
        self._node_id = node_id
        self._leader = leader
        self._broker_epoch = broker_epoch
        self._peers = peers
        self._clock = clock
        self._entropy = entropy
        self._throttle = throttle
        self._due: dict[PartitionId, None] = {}
        self._forgotten: dict[PartitionId, None] = {}
        self._wake = asyncio.Event()
        self._synced: dict[PartitionId, FollowerState] = {}
        self._is_sending = False
        self._is_waiting = False
        """True while a fetch waits at the leader."""
        self._has_questions = False

    # -- whom it fetches for -----------------------------------------------------------------------------------------

    def add(self, follower: Follower) -> None:
        """Begins to fetch a partition from this leader."""
        self.followers[follower.partition_id] = follower
        follower.on_change = self._ask_again
        follower.report_flushed = self._report
        # Followed again before the leader was told that it is not: it must not be told now.
        self._forgotten.pop(follower.partition_id, None)
        self._ask_again(follower)

    def remove(self, partition_id: PartitionId) -> None:
        """Stops fetching a partition from this leader."""
        if self.followers.pop(partition_id, None) is not None:
            self._due.pop(partition_id, None)
            self._synced.pop(partition_id, None)
            self._forgotten[partition_id] = None

    def _ask_again(self, follower: Follower) -> None:
        self._due[follower.partition_id] = None
        self._wake.set()
        # The fetch that waits at the leader does not carry this question; the report asks for it to be answered now.
        if self._is_waiting and follower.not_before_s <= self._clock.monotonic_s():
            self._has_questions = True
            self._send_soon()

    def _report(self, state: FollowerState) -> None:
        self._synced[PartitionId(TopicId(state.topic_id), state.partition)] = state
        self._send_soon()

    def _send_soon(self) -> None:
        """Schedules one message for all flushes that end in this turn of the event loop."""
        if not self._is_sending:
            self._is_sending = True
            asyncio.get_running_loop().call_soon(self._send_reports)

    def _send_reports(self) -> None:
        """Reports newly flushed offsets to the leader. The next fetch repeats them, in case the report is lost."""
        # Sent without an answer, the report may be lost with a connection, and nobody would notice: the fetch says it
        # again.
        self._due.update((partition_id, None) for partition_id in self._synced if partition_id in self.followers)
        states, self._synced = tuple(self._synced.values()), {}
        has_questions, self._has_questions, self._is_sending = self._has_questions, False, False
        report = ReplicasFlushed(self._node_id, self._broker_epoch(), states, has_questions)
        self._peers.notify(self._leader, report, lane=Lane.DATA)

    # -- fetching ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Fetches in one session after another until cancelled, with a growing pause after an error."""
        pause_s = PAUSE_S
        while True:
            try:
                await self._session()
                pause_s = PAUSE_S
            except (TidelogError, TimeoutError) as error:
                # Whatever fails is asked again in a new session. Nothing is lost by it, since a question names all that
                # its answer depends on.
                logger.info("fetching from a leader failed", leader=self._leader, reason=str(error))
                await asyncio.sleep(pause_s * self._entropy.uniform(1, 2))
                pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _session(self) -> None:
        """Fetches until the leader has lost the session. Raises the `TidelogError` that the leader answers,
        `PeerUnreachable` or `Overloaded` if it was not asked, `PeerLost` or `TimeoutError` if it has not answered."""
        # A new name for each session: after whatever went wrong, all questions are asked anew, and nothing old counts.
        name, number = self._entropy.token_hex(8), 0
        self._due = dict.fromkeys(self.followers)
        self._forgotten.clear()
        while True:
            await self._wait_for_followers()
            changed = self._questions()
            forgotten = tuple((gone.topic_id, gone.partition) for gone in self._forgotten)
            self._forgotten.clear()
            request = FetchReplicas(
                self._node_id,
                self._broker_epoch(),
                name,
                number,
                changed,
                forgotten,
                self._wait_ms(),
                FETCH_BYTES_MAX,
                self._throttle.receiving.allowance(),
            )
            self._is_waiting = True
            try:
                answer = await self._peers.request(self._leader, request, deadline_s=ANSWER_S_MAX, lane=Lane.DATA)
            finally:
                self._is_waiting = False
            fetched = answer.message
            assert isinstance(fetched, ReplicasFetched)
            if fetched.is_session_lost:
                return
            # The leader refuses a fetch out of turn, so a repeated one cannot be answered twice.
            number += 1
            if self._take(fetched, answer.body):
                await asyncio.sleep(0)  # an fsync that somebody waits for begins before more is asked for

    async def _wait_for_followers(self) -> None:
        while not self.followers:
            self._wake.clear()
            await self._wake.wait()

    def _questions(self) -> tuple[FollowerState, ...]:
        now_s = self._clock.monotonic_s()
        states: list[FollowerState] = []
        for partition_id in list(self._due)[:CHANGED_MAX]:
            follower = self.followers[partition_id]
            # It stays due, and `_wait_ms` has the fetch answered in time for it.
            if follower.not_before_s > now_s:
                continue
            del self._due[partition_id]
            state = follower.ask()
            if state is not None:
                states.append(state)
        return tuple(states)

    def _wait_ms(self) -> int:
        """Returns the milliseconds for which the leader may hold the fetch: less than usual if a partition is to be
        fetched again soon."""
        now_s = self._clock.monotonic_s()
        waits = [self.followers[partition_id].not_before_s - now_s for partition_id in self._due]
        if self._throttle.is_active and (ready_in_s := self._throttle.receiving.ready_in_s()) > 0:
            waits.append(ready_in_s)
        return WAIT_MS if not waits else max(1, min(WAIT_MS, int(min(waits) * 1000) + 1))

    def _take(self, fetched: ReplicasFetched, body: memoryview) -> bool:
        """Passes the answers to the followers; returns True if the leader waits for the received data to be flushed
        here."""
        position, is_awaited = 0, False
        for entry in fetched.partitions:
            data = body[position : position + entry.size]
            position += entry.size
            partition_id = PartitionId(TopicId(entry.topic_id), entry.partition)
            if self._throttle.is_held(partition_id, self._node_id):
                self._throttle.received(entry.size)
            follower = self.followers.get(partition_id)
            # An answer may be about a partition that was given up while the fetch was under way.
            if follower is not None:
                follower.answered(entry, data)
                is_awaited = is_awaited or (entry.size > 0 and follower.is_fsynced)
        return is_awaited
