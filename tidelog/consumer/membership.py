"""A member of a consumer group: its next heartbeat to the coordinator, and what the answer changes (KIP-848).

    heartbeat() -> Heartbeat   ...sent...   answered() -> Changes(revoked, assigned)
                                            failed()   -> Changes(lost)

The coordinator tells what the member *may own*. What is new there, the member owns from that answer on, and begins to
read. What is not there any more, it owns until it says otherwise: it hands out nothing more, finishes what it has
handed out, commits, and then calls `gave_up`; the next heartbeat says so, and only then is the partition another's.

**The lease.** A coordinator that hears nothing of a member for its session, or waits for its partitions for the
rebalance timeout, expels it and gives its partitions away. The member cannot be told, so it must know by itself:
`may_deliver` ends before the coordinator could have acted.

- Silence. The coordinator counts the session from when it *received* a heartbeat, which is not before that was sent.
  So the lease is counted from when the last heartbeat that was answered was sent.
- Partitions that are not given up. The coordinator began to wait not before it answered that the member may keep all
  it owns, thus not before that heartbeat was sent. `_clean_s` is that moment. It must have counted what the member
  owns: what is said with an epoch of the past is not, nor by a join that is repeated, nor what is not said.

Both periods are shortened to `LEASE_SHARE`: two clocks may differ in rate by that much. Then no two members ever hand
out records of one partition at the same time, whatever is lost or late. A lease that ran out and is renewed by an
answer is as good as before: whoever is still a member has owned its partitions all the time.

**Lost answers.** One heartbeat is under way at a time. After one that was not answered the next says what is owned and
nothing new: a coordinator that is an epoch ahead tells it again, and obeys nobody who speaks with the epoch before.

Pure: the time is an argument (any monotonic clock, in seconds), and ids are drawn by the caller.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.model.errors import FencedMember, InstanceIdInUse, TidelogError, UnknownMember
from tidelog.model.groups import (
    JOIN,
    LEAVE,
    LEAVE_STATIC,
    CommitOffsets,
    CommittedOffset,
    FetchOffsets,
    Heartbeat,
    HeartbeatAnswer,
    TopicPartitions,
    grouped,
    pairs,
)
from tidelog.model.ids import TopicPartition

LEASE_SHARE: Final = 0.9
"""How much of the coordinator's patience a member relies on."""
SESSION_TIMEOUT_MS: Final = 45_000
EXPELLED: Final = (UnknownMember, FencedMember)


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes that an answer makes, sorted. Nothing of `revoked` and `lost` may be handed out any more."""

    revoked: tuple[TopicPartition, ...] = ()
    """Owned until `gave_up`: what was handed out may be finished, and committed."""
    assigned: tuple[TopicPartition, ...] = ()
    """Owned from now on; begin at the group's committed offsets."""
    lost: tuple[TopicPartition, ...] = ()
    """Not owned any more, and perhaps another's already: nothing of them can be committed."""

    def __bool__(self) -> bool:
        return bool(self.revoked or self.assigned or self.lost)


class Membership:
    """A member's side of the protocol; `member_id` was drawn by the caller, and is used by nobody else ever.

    `pattern` is "" for none; an `instance_id` makes the member static; `session_timeout_ms` None is the coordinator's.
    """

    def __init__(
        self,
        group: str,
        member_id: str,
        *,
        topics: Iterable[str] = (),
        pattern: str = "",
        instance_id: str | None = None,
        client_id: str = "",
        rack: str | None = None,
        assignor: str | None = None,
        session_timeout_ms: int | None = None,
        rebalance_timeout_ms: int = 300_000,
    ) -> None:
        self.group = group
        self.instance_id = instance_id
        self._client_id = client_id
        self._rack = rack
        self._assignor = assignor
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._topics, self._pattern = tuple(sorted(set(topics))), pattern
        self._begin(member_id)

    def _begin(self, member_id: str) -> None:
        self.member_id = member_id
        self.member_epoch = JOIN
        self.is_out = False
        """True after the group was left, or has expelled the member: `rejoin` under a new id, or be done."""
        self._owned: frozenset[TopicPartition] = frozenset()
        self._target: frozenset[TopicPartition] = frozenset()
        """All that it may own, as of the last answer."""
        self._confirmed: frozenset[TopicPartition] | None = None
        """The partitions that the coordinator knows that we own; None if that must be said."""
        self._sequence = 0
        self._is_subscription_due = False
        self._sent_subscription: tuple[tuple[str, ...], str] | None = None
        self._is_waiting = False
        """True while a heartbeat is not answered: then nobody knows whether the coordinator has heard it."""
        self._is_polling = self._is_first = False
        self._sent: Heartbeat | None = None
        """The last heartbeat; None before the first."""
        self._sent_owned: frozenset[TopicPartition] = frozenset()
        self._sent_s = -math.inf
        self._heard_s = -math.inf
        """When the last heartbeat that was answered was sent."""
        self._clean_s = -math.inf
        """When the last heartbeat was sent whose answer left it all that it owned."""
        self._session_s = 0.0
        self._refused_s: float | None = None
        """Since when another one has our `instance_id`."""
        self.due_s = -math.inf
        """When the next heartbeat should be sent: not later, and not earlier either."""

    # -- what it has ---------------------------------------------------------------------------------------------

    @property
    def owned(self) -> list[TopicPartition]:
        """Returns the partitions that nobody else can own now, `revoked` that was not given up included; sorted."""
        return sorted(self._owned)

    @property
    def to_give_up(self) -> list[TopicPartition]:
        """The owned partitions that are to be given up, sorted."""
        return sorted(self._owned - self._target)

    def may_deliver(self, now_s: float) -> bool:
        """Returns True while it is certain that nobody else owns what this member owns."""
        return now_s < self.lease_end_s

    @property
    def lease_end_s(self) -> float:
        """The time until which it `may_deliver` without being heard again (s)."""
        if self.member_epoch <= JOIN:
            return -math.inf
        patience_s = LEASE_SHARE * self._rebalance_timeout_ms / 1000
        return min(self._heard_s + LEASE_SHARE * self._session_s, self._clean_s + patience_s)

    # -- heartbeats ----------------------------------------------------------------------------------------------

    def heartbeat(self, now_s: float, wait_ms: int = 0) -> Heartbeat:
        """Returns the heartbeat to send now. The answer may wait for news up to `wait_ms`, unless there is something to
        give up, which is news of its own; and for a third of the rebalance timeout, or the lease would run out
        meanwhile."""
        assert not self.is_out, "out of the group: `rejoin` first"
        says_all = self.member_epoch == JOIN
        says_subscription = says_all or (self._is_subscription_due and not self._is_waiting)
        says_owned = says_all or self._is_waiting or self._confirmed != self._owned
        may_wait = self._clean_s > -math.inf and not self.to_give_up
        self._is_first = self._sent is None
        self._sent = Heartbeat(
            group=self.group,
            member_id=self.member_id,
            member_epoch=self.member_epoch,
            instance_id=self.instance_id,
            client_id=self._client_id if says_all else "",
            rack=self._rack if says_all else None,
            topics=self._topics if says_subscription else None,
            pattern=self._pattern if says_subscription else None,
            assignor=self._assignor if says_all else None,
            session_timeout_ms=self._session_timeout_ms if says_all else None,
            rebalance_timeout_ms=self._rebalance_timeout_ms if says_all else None,
            owned=grouped(self.owned) if says_owned else None,
            wait_ms=min(wait_ms, self._rebalance_timeout_ms // 3) if may_wait else 0,
        )
        self._sent_owned = self._owned
        self._sent_s = now_s
        self._is_polling = wait_ms > 0
        self._is_waiting = True
        self._sent_subscription = (self._topics, self._pattern) if says_subscription else None
        return self._sent

    def answered(self, answer: HeartbeatAnswer, sent_s: float) -> Changes:
        """Takes the answer to the heartbeat that was sent at `sent_s`, and returns what it changes."""
        if not self._is_waiting or sent_s != self._sent_s:
            return Changes()  # to a heartbeat that was given up for lost
        assert answer.member_id == self.member_id and answer.member_epoch > JOIN
        pending = self._owned - self._target
        target = self._sent_owned if answer.assignment is None else _partitions(answer.assignment)
        assert self._sent is not None
        is_counting = self._is_first or self.member_epoch == answer.member_epoch
        was_counted = answer.assignment is None or (is_counting and self._sent.owned is not None)
        has_news = answer.member_epoch != self.member_epoch or target != self._sent_owned
        self.member_epoch = answer.member_epoch
        self._target = target
        self._confirmed = target if was_counted and target == self._sent_owned else None
        self._session_s = answer.session_timeout_ms / 1000
        self._heard_s = sent_s
        if was_counted and self._sent_owned <= target:
            # The moment of sending, not of the answer: the coordinator cannot have begun to wait for a partition before
            # it sent this answer. Counted from the answer, the lease could outlast the rebalance timeout, and two
            # members would hand out records of one partition.
            self._clean_s = sent_s
        assigned = target - self._owned
        self._owned |= assigned
        if self._sent_subscription == (self._topics, self._pattern):
            self._is_subscription_due = False
        self._is_waiting = False
        self._refused_s = None
        self.due_s = self._next_s(answer.heartbeat_interval_ms / 1000, has_news=has_news)
        revoked = self._owned - target - pending
        return Changes(revoked=tuple(sorted(revoked)), assigned=tuple(sorted(assigned)))

    def _next_s(self, interval_s: float, *, has_news: bool) -> float:
        """Returns when the next heartbeat is due: at once if there is something to say or to wait for, else an interval
        later, however early answers come."""
        assert self._sent is not None
        if self._owned != self._sent_owned or self._is_subscription_due:
            return -math.inf
        if not self._is_polling or self.to_give_up:
            return self._sent_s + interval_s
        if has_news or self._sent.wait_ms == 0:
            return -math.inf
        return self._sent_s + min(interval_s, self._sent.wait_ms / 1000)

    def failed(self, error: TidelogError, now_s: float) -> Changes:
        """Takes the failure of the heartbeat under way. Either it is to be sent again, after a pause; or the membership
        is over (`is_out`): after `UnknownMember` and `FencedMember` the member joins anew, after others the error is
        lasting.

        `InstanceIdInUse` passes when the session of a predecessor that has crashed is over: so long it is waited for.
        """
        is_expelled = isinstance(error, EXPELLED)
        is_lasting = error.definite and not error.retriable
        if not (is_expelled or is_lasting) or (isinstance(error, InstanceIdInUse) and self._is_patient(now_s)):
            return Changes()
        lost = tuple(self.owned)
        self._end()
        return Changes(lost=lost)

    def _is_patient(self, now_s: float) -> bool:
        if self._refused_s is None:
            self._refused_s = now_s
        session_ms = SESSION_TIMEOUT_MS if self._session_timeout_ms is None else self._session_timeout_ms
        return self.member_epoch == JOIN and now_s < self._refused_s + session_ms / 1000 / LEASE_SHARE

    # -- what the member does ------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str] = (), pattern: str = "") -> None:
        """Wants these topics instead, and says so at once. Topics that do not exist are waited for."""
        self._topics, self._pattern = tuple(sorted(set(topics))), pattern
        self._is_subscription_due = True
        self.due_s = -math.inf

    def gave_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Gives partitions up: nothing of them is handed out or committed any more, and whoever is next may have
        them."""
        self._owned -= frozenset(partitions)
        self.due_s = -math.inf

    def leave(self) -> Heartbeat | None:
        """Returns the last heartbeat, None if there was no first one; owns nothing from now on. A static member's
        partitions are kept for as long as its session. If it is lost, the session ends by itself."""
        was_there = self._sent is not None and not self.is_out
        self._end()
        if not was_there:
            return None
        epoch = LEAVE if self.instance_id is None else LEAVE_STATIC
        return Heartbeat(group=self.group, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id)

    def rejoin(self, member_id: str) -> None:
        """Begins anew as another member."""
        assert self.is_out, "`leave` first"
        self._begin(member_id)

    def _end(self) -> None:
        self._begin(self.member_id)
        self.is_out = True

    # -- committed offsets --------------------------------------------------------------------------------------------

    def commit(self, offsets: Sequence[CommittedOffset]) -> CommitOffsets:
        """Returns a commit of this member, later than those before it. It may be repeated as it is."""
        assert self.member_epoch > JOIN, "only a member commits as one"
        self._sequence += 1
        epoch, sequence, offsets = self.member_epoch, self._sequence, tuple(offsets)
        return CommitOffsets(
            group=self.group, member_id=self.member_id, member_epoch=epoch, sequence=sequence, offsets=offsets
        )

    def fetch(self, partitions: tuple[TopicPartitions, ...]) -> FetchOffsets:
        """Asks for the group's committed offsets in what this member owns."""
        epoch = self.member_epoch
        return FetchOffsets(group=self.group, member_id=self.member_id, member_epoch=epoch, partitions=partitions)


def _partitions(listed: Sequence[TopicPartitions]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(*pair) for pair in pairs(listed))
