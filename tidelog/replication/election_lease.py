"""Leader leases: the time for which a leader may serve linearizable reads from its own state, without asking a quorum.

A voter that answers a heartbeat *grants* a lease: for L seconds after it received the heartbeat, on its own clock, it
promises to no other node. The leader counts each grant from the moment when it *sent* the heartbeat, for L (1 - drift)
seconds on its own clock. A new leader needs the promises of a quorum, and every quorum shares a voter with the quorum
that granted the lease: so there is no new leader while the lease holds.

A new leader also learns for how long no earlier leader has had a lease: each voter's answer says for how long none of
the leases that it granted to earlier terms has run, and one voter of the new leader's quorum granted the last of them.
So permissions that an earlier leader gave for a limited time, while it held its lease, may be known to have ended
before that time has passed again.

`drift` bounds how much faster one clock may run than another: while the slowest clock counts (1 - drift) seconds, the
fastest counts at most one. Wall clocks play no part.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Final

from tidelog.replication.quorum import Quorum

FREE_MS_MAX: Final = 3_600_000


class Grants:
    """The lease that a voter has granted, of which there is at most one at a time."""

    def __init__(self, lease_s: float, *, muted_until_s: float) -> None:
        self._lease_s = lease_s
        self._muted_until_s = muted_until_s
        self._owner: int | None = None
        self._number = 0
        self._until_s = -inf
        self._earlier_end_s = muted_until_s
        """The end, in seconds, of the last lease granted under another number, one from before a restart included."""

    def give(self, owner: int, number: int, now_s: float) -> None:
        """Grants the lease to the owner of this proposal number, from `now_s` on."""
        assert number >= self._number, "nothing is granted to a term that is known to be over"
        # The last grant replaces the one before. That is safe, because the newer term needed the promises of a quorum,
        # which ended the older one's lease for good.
        if number != self._number:
            self._earlier_end_s = max(self._earlier_end_s, min(self._until_s, now_s))
        self._owner, self._number, self._until_s = owner, number, now_s + self._lease_s

    def release(self, number: int, now_s: float) -> None:
        """Ends the lease, if it was granted to the term under this number."""
        # A late release of an earlier term must not end a newer one's lease, be it of the same leader.
        if number == self._number:
            # The lease ran until now, whatever it allows from now on.
            self._earlier_end_s = max(self._earlier_end_s, min(self._until_s, now_s))
            self._until_s = -inf

    def free_ms(self, now_s: float) -> int:
        """Returns the milliseconds, at most `FREE_MS_MAX`, for which no lease of an earlier term has run here."""
        return int(max(0.0, min((now_s - self._earlier_end_s) * 1000, FREE_MS_MAX)))

    def binds_until_s(self, candidate: int) -> float:
        """Returns the time, in seconds, from which on this voter may promise to `candidate`."""
        # The holder may be promised at any time: it would only follow itself. Not so after a restart: a grant is not
        # durable, so nobody knows to whom the last one was, and a whole lease is waited for.
        held_until_s = self._until_s if candidate != self._owner else -inf
        return max(held_until_s, self._muted_until_s)


class Term:
    """The heartbeats of a leader in one term, and the voters that have answered them."""

    def __init__(self, number: int, me: int, quorum: Quorum, *, now_s: float, drift: float) -> None:
        self.number = number
        self.began_s = now_s
        self._me = me
        self._quorum = quorum
        self._drift = drift
        self._beat = 0
        self._sent_s: dict[int, float] = {}
        self._backed_s: dict[int, float] = {}
        """The time, for each voter, at which the leader sent the newest heartbeat that this voter has answered."""
        self._free_since_s: dict[int, float] = {}
        """The time, for each voter that has reported it, since which no lease of an earlier term has run there."""

    def beat(self, now_s: float, *, forget_s: float) -> int:
        """Returns the sequence number of the next heartbeat, and counts the leader's own grant for it. Forgets
        heartbeats sent more than `forget_s` seconds ago."""
        self._beat += 1
        for beat in [beat for beat, sent_s in self._sent_s.items() if sent_s < now_s - forget_s]:
            del self._sent_s[beat]
        self._sent_s[self._beat] = now_s
        self.answered(self._me, self._beat)
        return self._beat

    def freed(self, voter: int, free_ms: int, now_s: float) -> None:
        """Records that no lease of an earlier term has run at a voter for `free_ms` milliseconds, by that voter's
        clock."""
        # It stays true: who has answered this term grants none of those any more. The voter's clock may be the faster.
        since_s = now_s - free_ms / 1000 * (1 - self._drift)
        self._free_since_s[voter] = min(since_s, self._free_since_s.get(voter, inf))

    @property
    def alone_since_s(self) -> float:
        """Returns a time since which no leader of an earlier term can have had a lease; inf if none is known yet."""
        # Each quorum has a voter that backed the last of those leases, so the latest time of any quorum will do.
        for since_s in sorted(self._free_since_s.values()):
            if self._quorum.is_met([voter for voter, free_s in self._free_since_s.items() if free_s <= since_s]):
                return since_s
        return inf

    def answered(self, voter: int, beat: int) -> None:
        sent_s = self._sent_s.get(beat)
        if sent_s is not None and voter in self._quorum:
            # From the sending, not from the answer: a voter counts from receipt, which is in between. Counted from the
            # answer, the lease could outlive the grant. Answers may come out of order.
            self._backed_s[voter] = max(sent_s, self._backed_s.get(voter, -inf))

    @property
    def backed_s(self) -> float:
        """Returns the latest time such that a quorum has answered heartbeats sent then or later: the leader's lease
        counts from that time. -inf if there is none."""
        for since_s in sorted(self._backed_s.values(), reverse=True):
            if self._quorum.is_met(self._since(since_s)):
                return since_s
        return -inf

    def _since(self, moment_s: float) -> Iterable[int]:
        return [voter for voter, sent_s in self._backed_s.items() if sent_s >= moment_s]
