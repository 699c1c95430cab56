"""The sender's side of forwarding: finds the leader, sends it the request, and retries where that is certainly
harmless.

A request is repeated, until its deadline, when it reached a broker that does not lead the partition, or no broker:

    what happened                            done?     what the sender does
    ---------------------------------------  --------  ---------------------------------------------------------
    `NotLeader`, no connection, or the       no        waits for a metadata change, then asks the current leader
    leader does not know this broker yet
    connection lost, no answer in time       unknown   the same if repeating is harmless, else answers 504
    any other answer of the leader           it says   returns it unchanged

The sender also stops waiting for a leader that was replaced, if repeating is harmless: the old leader may be paused.

The wait ends as soon as this broker's metadata show a change of the partition, or after a pause that doubles each time:
a connection that broke comes back without a metadata change. A partition that has no leader is refused at once.

Harmless to repeat are reads, and appends that the partition itself deduplicates, because each batch carries a producer
id and a sequence or the request has an idempotency key. If the first try was appended, the second is answered with the
offsets of the first; if not, it is appended itself; if the first is still under way, it is recognised as a duplicate
when it arrives. But once a try may have been appended, a definite error of a later try is reported as indefinite: it
speaks for that try only, since the log may have grown meanwhile, so that the repeat looks like a sequence gap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.routing.forwarding_messages import Addressed
from tidelog.broker.routing.leader_lookup import LeaderLookup
from tidelog.broker.routing.peer_partition import PeerLeader, PeerPartition, Peers, Waits
from tidelog.model.cluster import NO_LEADER
from tidelog.model.errors import BrokerNotRegistered, LeaderNotAvailable, NotLeader, TidelogError, TimedOutAfterAppend
from tidelog.model.ids import PartitionId, TopicId
from tidelog.transport.peer import PeerLost, PeerUnreachable

T = TypeVar("T")

PAUSE_S_MIN: Final = 0.05
PAUSE_S_MAX: Final = 1.0
LeaderTarget = LedPartition | PeerPartition
NOT_DONE: Final = (NotLeader, PeerUnreachable, BrokerNotRegistered)
UNKNOWN: Final = (PeerLost, TimeoutError)


class Target(NamedTuple):
    """A partition of a topic. It includes the topic id, so that a topic that was deleted and created again is another
    one.
    """

    topic: str
    topic_id: TopicId
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Pauses:
    """The pauses between the tries of one request: each twice as long as the one before, none beyond the deadline (loop
    time).
    """

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._next_s = PAUSE_S_MIN

    @property
    def is_over(self) -> bool:
        """True once the deadline has passed, so that there is no time for another try."""
        return asyncio.get_running_loop().time() >= self._deadline_s

    def next_end_s(self) -> float:
        """Returns the loop time (s) at which the next pause ends."""
        pause_s, self._next_s = self._next_s, min(2 * self._next_s, PAUSE_S_MAX)
        return min(asyncio.get_running_loop().time() + pause_s, self._deadline_s)


class LeaderCalls:
    """Calls of one broker to partition leaders: finds the leader, and retries where repeating is certainly harmless."""

    def __init__(self, lookup: LeaderLookup, peers: Peers) -> None:
        self._lookup = lookup
        self._peers = peers
        self._waits = Waits()

    async def reach(
        self,
        target: Target,
        ask: Callable[[LeaderTarget], Awaitable[T]],
        deadline_s: float,
        *,
        appends: bool = False,
        is_repeatable: bool = True,
    ) -> T:
        """Returns what `ask` returns when it is called with the partition's leader, retrying while the leader changes.

        Raises the leader's error; `LeaderNotAvailable` if no leader could be asked by the deadline (loop time);
        `TimedOutAfterAppend` if the call `appends` and the outcome is unknown. A call with an unknown outcome is
        repeated only if `is_repeatable`.
        """
        pauses = Pauses(deadline_s)
        is_uncertain = False
        while True:
            epoch = None
            try:
                await self.until_opened([target], deadline_s)
                leader = self.locate(target, deadline_s)
                epoch = epoch_of(leader)
                if is_repeatable and isinstance(leader, PeerPartition):
                    return await self.while_it_leads(target, epoch, ask(leader))
                return await ask(leader)
            except UNKNOWN as error:
                failure: Exception = error
                is_uncertain = appends
            except TidelogError as error:
                failure = error
                if not isinstance(error, NOT_DONE):
                    # A definite error speaks only for this try. Told as it is, it would deny an append of an earlier
                    # try that is in the log, and the client would send the records a second time.
                    if is_uncertain and error.definite:
                        raise unknown(target, error) from error
                    raise
            if pauses.is_over or (is_uncertain and not is_repeatable):
                raise unknown(target, failure) if is_uncertain else not_reached(target, failure)
            tried_epoch = (
                self.epoch(target) if epoch is None else epoch
            )  # nobody was found in the epoch that it has still
            await self.wait_for_news([(target, tried_epoch)], pauses.next_end_s())

    async def until_opened(self, targets: Iterable[Target], deadline_s: float) -> None:
        """Waits until no log of these partitions is being opened on this broker, or until the deadline (loop time)."""
        await self._lookup.until_opened([(target.topic_id, target.partition) for target in targets], deadline_s)

    async def while_it_leads(self, target: Target, epoch: int, answer: Awaitable[T]) -> T:
        """Awaits `answer`. Raises `TimeoutError` as soon as the partition has another leader epoch than `epoch`: the
        old leader may be paused and never answer.
        """
        async with asyncio.timeout(None) as patience:

            def look() -> None:
                if self.epoch(target) != epoch and not patience.expired():
                    patience.reschedule(0)

            with self._lookup.alarmed(look):
                return await answer

    def locate(self, target: Target, deadline_s: float) -> LeaderTarget:
        """Returns the leader of a partition: the local partition, or the partition at another broker for calls that end
        by `deadline_s`.

        Raises `UnknownTopic`, or `LeaderNotAvailable` if there is no leader, or this broker leads and has not opened
        the log.
        """
        info = self._lookup.find_again(*target)
        if info.leader == self._lookup.node_id:
            return self._lookup.opened(target.topic, _id_of(target))
        if info.leader == NO_LEADER:
            raise no_leader(target)
        addressed = Addressed(*target, info.leader_epoch, self._lookup.position)
        return PeerPartition(PeerLeader(self._peers, info.leader, self._waits), addressed, deadline_s)

    async def wait_for_news(self, tried: Sequence[tuple[Target, int | None]], until_s: float) -> None:
        """Waits until any of these partitions has another leader epoch than the one that was tried, or a partition is
        opened on this broker that was not open before, or until `until_s` (loop time).
        """
        shut = [
            partition for partition in (_id_of(target) for target, _ in tried) if not self._lookup.is_open(partition)
        ]

        def has_changed() -> bool:
            is_led_anew = any(self.epoch(target) != epoch for target, epoch in tried)
            return is_led_anew or any(self._lookup.is_open(partition) for partition in shut)

        await self._lookup.wait_until(has_changed, until_s)

    def epoch(self, target: Target) -> int | None:
        """Returns the partition's leader epoch in this broker's metadata; None if the partition does not exist any
        more.
        """
        try:
            return self._lookup.find_again(*target).leader_epoch
        except TidelogError:
            return None


def epoch_of(leader: LeaderTarget) -> int:
    """Returns the leader epoch in which `leader` leads its partition."""
    return leader.addressed.leader_epoch if isinstance(leader, PeerPartition) else leader.leader_epoch


def _id_of(target: Target) -> PartitionId:
    return PartitionId(target.topic_id, target.partition)


def no_leader(target: Target) -> LeaderNotAvailable:
    """Returns the definite error for a request to a partition that has no leader."""
    return LeaderNotAvailable(f"partition {target} has no leader now; try again when its broker is back")


def not_reached(target: Target, failure: Exception) -> LeaderNotAvailable:
    """Returns the definite error for a request that no leader accepted in time."""
    return LeaderNotAvailable(f"the leader of partition {target} could not be asked in time ({failure}); try again")


def unknown(target: Target, failure: Exception) -> TimedOutAfterAppend:
    """Returns the indefinite error for an append that the leader may have executed."""
    return TimedOutAfterAppend(
        f"sent to the leader of partition {target}, which may have done it: {failure}; retry idempotently"
    )
