"""The timing of elections among the voters of one log."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ElectionSettings:
    """The timing of elections in one log. It must be the same for all voters: a lease is only as long as the smallest
    `lease_ms` among the voters that grant it."""

    heartbeat_ms: int = 100
    """Milliseconds between two heartbeats of a leader (H)."""
    timeout_ms: int = 1000
    """Milliseconds of the election timeout (T): a follower that hears no leader for T to 5/4 T starts an election; a
    leader whose heartbeats no quorum answers for T resigns."""
    lease_ms: int = 400
    """Milliseconds for which a voter that answers a heartbeat promises to no other node (L)."""
    drift: float = 0.05
    """The fraction by which one voter's clock may run faster than another's."""

    def __post_init__(self) -> None:
        # A lease has to outlast a heartbeat's interval, or a leader would have one only now and then. And a follower
        # must not time out while its own grant still keeps it from campaigning.
        assert 0 < self.heartbeat_ms < self.lease_ms * (1 - self.drift) <= self.lease_ms < self.timeout_ms
        assert 0 <= self.drift < 1
