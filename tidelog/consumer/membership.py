"""The member's side of the consumer group protocol (KIP-848): the next heartbeat, and the effect of its response.

    heartbeat() -> Heartbeat   ...sent...   answered() -> Changes(revoked, assigned)
                                            failed()   -> Changes(lost)

The coordinator's response lists what the member *may own*. It owns new partitions from that response on, and starts to
read them. A partition that is no longer listed remains its own until it confirms: it returns no more records, finishes
processing, commits, and then calls `gave_up`; the next heartbeat reports this, and only then is the partition assigned
to another member.

**The lease.** A coordinator expels a member after a session timeout without heartbeats, or a rebalance timeout without
the requested revocations, and reassigns its partitions. An unreachable member has to notice by itself: `may_deliver`
ends before the coordinator could have acted.

- Session. The coordinator counts from when it *received* a heartbeat, which is not before it was sent. So the lease
  counts from the sending of the last heartbeat that was answered.
- Revocation. The coordinator started to wait not before it responded that the member may keep all it owns, so not
  before that heartbeat was sent. `_clean_s` is that time. Heartbeats that do not state the owned partitions do not
  count: those of an old epoch, and repeated joins.

Both periods are shortened to the fraction `LEASE_SHARE`, a tolerance for clocks of different rates. So no two members
return records of one partition at the same time, whatever is lost or late. A lease that expired and is renewed by a
response is as good as before: a member that was not expelled has owned its partitions all the time.

**Lost responses.** One heartbeat is in flight at a time. After one without a response, the next one reports the owned
partitions and nothing new: a coordinator that is an epoch ahead repeats its assignment, and rejects changes from a
member at the epoch before.

Pure: the time is an argument (any monotonic clock, in seconds), and the caller draws the member ids.
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
"""Fraction of the session and rebalance timeouts after which a member without a response returns no more records. The
rest is a tolerance for clocks of different rates."""
SESSION_TIMEOUT_MS: Final = 45_000
EXPELLED: Final = (UnknownMember, FencedMember)


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a response to the assignment, sorted. No more records of `revoked` and `lost` may be returned."""

    revoked: tuple[TopicPartition, ...] = ()
    """Owned until `gave_up`: processing may be finished and offsets committed."""
    assigned: tuple[TopicPartition, ...] = ()
    """Newly owned; to be read from the group's committed offsets."""
    lost: tuple[TopicPartition, ...] = ()
    """No longer owned, possibly owned by another member: offsets can no longer be committed."""

    def __bool__(self) -> bool:
        return bool(self.revoked or self.assigned or self.lost)


class Membership:
    """A member's state in the group protocol. `member_id` is a unique id drawn by the caller.

    `pattern` is "" for none; an `instance_id` makes the member static; a `session_timeout_ms` of None uses the
    coordinator's.
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
        """True after the member left the group or was expelled: call `rejoin` with a new id, or stop."""
        self._owned: frozenset[TopicPartition] = frozenset()
        self._target: frozenset[TopicPartition] = frozenset()
        """The partitions that the member may own, by the last response."""
        self._confirmed: frozenset[TopicPartition] | None = None
        """The owned partitions that the coordinator knows of; None if the next heartbeat has to report them."""
        self._sequence = 0
        self._is_subscription_due = False
        self._sent_subscription: tuple[tuple[str, ...], str] | None = None
        self._is_waiting = False
        """True while a heartbeat is unanswered, so that it is unknown whether the coordinator received it."""
        self._is_polling = self._is_first = False
        self._sent: Heartbeat | None = None
        """The last heartbeat sent; None before the first."""
        self._sent_owned: frozenset[TopicPartition] = frozenset()
        self._sent_s = -math.inf
        self._heard_s = -math.inf
        """The sending time of the last answered heartbeat (s)."""
        self._clean_s = -math.inf
        """The sending time of the last heartbeat whose response revoked nothing (s)."""
        self._session_s = 0.0
        self._refused_s: float | None = None
        """The time since which another member has had our `instance_id` (s); None if none has."""
        self.due_s = -math.inf
        """The time at which the next heartbeat is due (s)."""

    # -- what it has ---------------------------------------------------------------------------------------------

    @property
    def owned(self) -> list[TopicPartition]:
        """Returns the owned partitions, including revoked ones that were not given up; sorted."""
        return sorted(self._owned)

    @property
    def to_give_up(self) -> list[TopicPartition]:
        """The owned partitions that are to be given up, sorted."""
        return sorted(self._owned - self._target)

    def keeps(self, partition: TopicPartition) -> bool:
        """Returns True if this member owns a partition, and is not to give it up."""
        return partition in self._owned and partition in self._target

    def may_deliver(self, now_s: float) -> bool:
        """Returns True while certainly no other member owns this member's partitions."""
        return now_s < self.lease_end_s

    @property
    def lease_end_s(self) -> float:
        """The time at which `may_deliver` ends without a further response (s)."""
        if self.member_epoch <= JOIN:
            return -math.inf
        patience_s = LEASE_SHARE * self._rebalance_timeout_ms / 1000
        return min(self._heard_s + LEASE_SHARE * self._session_s, self._clean_s + patience_s)

    # -- heartbeats ----------------------------------------------------------------------------------------------

    def heartbeat(self, now_s: float, wait_ms: int = 0) -> Heartbeat:
        """Returns the heartbeat to send now. The coordinator may delay its response by up to `wait_ms`, but responds at
        once while partitions have to be given up; the wait is also bounded by a third of the rebalance timeout, or the
        lease would expire meanwhile."""
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
        """Handles the response to the heartbeat sent at `sent_s`, and returns the changes."""
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
        """Returns the time at which the next heartbeat is due: at once if there is something to report or await, else
        an interval later, however early responses arrive."""
        assert self._sent is not None
        if self._owned != self._sent_owned or self._is_subscription_due:
            return -math.inf
        if not self._is_polling or self.to_give_up:
            return self._sent_s + interval_s
        if has_news or self._sent.wait_ms == 0:
            return -math.inf
        return self._sent_s + min(interval_s, self._sent.wait_ms / 1000)

    def failed(self, error: TidelogError, now_s: float) -> Changes:
        """Handles the failure of the heartbeat in flight. Either it is repeated after a pause, or the membership has
        ended (`is_out`): after `UnknownMember` and `FencedMember` the member joins again, other errors are lasting.

        `InstanceIdInUse` ends when the session of a crashed predecessor expires, so it is retried for that long.
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
        """Replaces the subscription, and makes a heartbeat due at once. Topics that do not exist are awaited."""
        self._topics, self._pattern = tuple(sorted(set(topics))), pattern
        self._is_subscription_due = True
        self.due_s = -math.inf

    def gave_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Gives up partitions: none of their records is returned or committed afterwards, and they may be
        reassigned."""
        self._owned -= frozenset(partitions)
        self.due_s = -math.inf

    def leave(self) -> Heartbeat | None:
        """Returns the leave heartbeat, None if the member never joined; the member owns nothing afterwards. A static
        member's partitions stay reserved for its session. If the heartbeat is lost, the session expires by itself."""
        was_there = self._sent is not None and not self.is_out
        self._end()
        if not was_there:
            return None
        epoch = LEAVE if self.instance_id is None else LEAVE_STATIC
        return Heartbeat(group=self.group, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id)

    def rejoin(self, member_id: str) -> None:
        """Starts again as a new member."""
        assert self.is_out, "`leave` first"
        self._begin(member_id)

    def _end(self) -> None:
        self._begin(self.member_id)
        self.is_out = True

    # -- committed offsets --------------------------------------------------------------------------------------------

    def commit(self, offsets: Sequence[CommittedOffset]) -> CommitOffsets:
        """Returns an offset commit request of this member, with a higher number than its earlier ones. It may be
        repeated unchanged."""
        assert self.member_epoch > JOIN, "only a member commits as one"
        self._sequence += 1
        epoch, sequence, offsets = self.member_epoch, self._sequence, tuple(offsets)
        return CommitOffsets(
            group=self.group, member_id=self.member_id, member_epoch=epoch, sequence=sequence, offsets=offsets
        )

    def fetch(self, partitions: tuple[TopicPartitions, ...]) -> FetchOffsets:
        """Returns a request for the group's committed offsets of partitions that this member owns."""
        epoch = self.member_epoch
        return FetchOffsets(group=self.group, member_id=self.member_id, member_epoch=epoch, partitions=partitions)


def _partitions(listed: Sequence[TopicPartitions]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(*pair) for pair in pairs(listed))
