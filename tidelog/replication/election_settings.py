"""The timing of elections among the voters of one log."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ElectionSettings:
    """The timing of elections in one log, the same for all its voters: leases are only as good as the smallest L among
    those that grant."""

    heartbeat_ms: int = 100
    """H: the milliseconds between two heartbeats of a leader."""
    timeout_ms: int = 1000
    """T: silence of T to 2T starts an election; a leader without a quorum for T resigns."""
    lease_ms: int = 400
    """L: the time for which a voter that answers a heartbeat promises nobody else."""
    drift: float = 0.05
    """The fraction by which one voter's clock may run faster than another's."""

    def __post_init__(self) -> None:
        # A lease has to outlast a heartbeat's interval, or a leader would have one only now and then. And a follower
        # must not time out while its own grant still keeps it from campaigning.
        assert 0 < self.heartbeat_ms < self.lease_ms * (1 - self.drift) <= self.lease_ms < self.timeout_ms
        assert 0 <= self.drift < 1
