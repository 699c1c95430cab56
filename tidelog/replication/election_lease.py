"""Leases: for how long a leader may answer from what it knows, without asking anybody.

A voter that answers a heartbeat *grants* a lease: it promises nobody else for L seconds, from receipt, on its own
clock. The leader counts each grant from the moment when it *sent* the heartbeat, L (1 - drift) seconds on its own
clock. A new leader needs the promises of a quorum, one of which is of the lease's quorum: as long as the lease holds,
there is no new leader.

A new leader learns how long all that is over: each voter's answer says for how long none of the leases that it granted
to earlier terms has run. One voter of its quorum granted the last of them. So what an earlier leader has allowed others
to do for a while, after it was last sure of its lease, may be over long before that while has passed again.

`drift` bounds by how much one clock may run faster than another: in the time that the slowest needs for (1 - drift)
seconds, the fastest counts at most one. Wall clocks play no part.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Final

from tidelog.replication.quorum import Quorum

FREE_MS_MAX: Final = 3_600_000


class Grants:
    """The lease that a voter has granted: one at a time."""

    def __init__(self, lease_s: float, *, muted_until_s: float) -> None:
        self._lease_s = lease_s
        self._muted_until_s = muted_until_s
        self._owner: int | None = None
        self._number = 0
        self._until_s = -inf
        self._earlier_end_s = muted_until_s
        """The end of the last lease that was granted under another number; before a restart there may have been one."""

    def give(self, owner: int, number: int, now_s: float) -> None:
        """Grants the lease to the owner of this proposal number, from now on."""
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
        """Returns for how many milliseconds, `FREE_MS_MAX` at most, no lease of an earlier term has run."""
        return int(max(0.0, min((now_s - self._earlier_end_s) * 1000, FREE_MS_MAX)))

    def binds_until_s(self, candidate: int) -> float:
        """Returns the time from which on this candidate may be promised."""
        # The holder may be promised at any time: it would only follow itself. Not so after a restart: a grant is not
        # durable, so nobody knows to whom the last one was, and a whole lease is waited for.
        held_until_s = self._until_s if candidate != self._owner else -inf
        return max(held_until_s, self._muted_until_s)


class Term:
    """The heartbeats of a leader, and the voters that have answered them."""

    def __init__(self, number: int, me: int, quorum: Quorum, *, now_s: float, drift: float) -> None:
        self.number = number
        self.began_s = now_s
        self._me = me
        self._quorum = quorum
        self._drift = drift
        self._beat = 0
        self._sent_s: dict[int, float] = {}
        self._backed_s: dict[int, float] = {}
        """The time, for each voter, at which the newest heartbeat was sent that it has answered."""
        self._free_since_s: dict[int, float] = {}
        """The time, for each voter that has said so, since which surely no lease of an earlier term has run there."""

    def beat(self, now_s: float, *, forget_s: float) -> int:
        """Returns the number of the next heartbeat, which the leader grants itself. Forgets those older than
        `forget_s`."""
        self._beat += 1
        for beat in [beat for beat, sent_s in self._sent_s.items() if sent_s < now_s - forget_s]:
            del self._sent_s[beat]
        self._sent_s[self._beat] = now_s
        self.answered(self._me, self._beat)
        return self._beat

    def freed(self, voter: int, free_ms: int, now_s: float) -> None:
        """Notes for how long, on its own clock, a voter that grants this term a lease was bound to no earlier one."""
        # It stays true: who has answered this term grants none of those any more. The voter's clock may be the faster.
        since_s = now_s - free_ms / 1000 * (1 - self._drift)
        self._free_since_s[voter] = min(since_s, self._free_since_s.get(voter, inf))

    @property
    def alone_since_s(self) -> float:
        """Returns a time at which no leader of an earlier term was sure of its lease any more; inf if there is none
        yet."""
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
        """Returns the latest time from which on the grants of a quorum count; -inf if there is none."""
        for since_s in sorted(self._backed_s.values(), reverse=True):
            if self._quorum.is_met(self._since(since_s)):
                return since_s
        return -inf

    def _since(self, moment_s: float) -> Iterable[int]:
        return [voter for voter, sent_s in self._backed_s.items() if sent_s >= moment_s]
