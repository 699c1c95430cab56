"""The inputs of the core from outside: the broker's settings, the cluster's topics, the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

REBALANCE_TIMEOUT_MS: Final = 300_000
"""The rebalance timeout of a member that names none, in milliseconds: Kafka's `max.poll.interval.ms`."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker's settings of groups; `docs/config.md` says what each means."""

    session_timeout_ms: int = 45_000
    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    heartbeat_interval_ms: int = 5_000
    members_max: int = 10_000
    groups_max: int = 2_000
    """In one shard."""
    offset_metadata_bytes_max: int = 4_096
    offsets_retention_ms: int = 10_080 * 60_000
    classic_members_max: int = 10_000
    initial_rebalance_delay_ms: int = 3_000

    @property
    def session_timeouts_ms(self) -> tuple[int, int]:
        """The shortest and the longest that a member may ask for."""
        return self.session_timeout_ms_min, self.session_timeout_ms_max


class TopicSeen(NamedTuple):
    """A topic of the cluster, as group coordinators see it."""

    topic_id: str
    partitions: int


TopicsView: TypeAlias = Mapping[str, TopicSeen]
"""The cluster's topics that may be subscribed to, by name."""


class Now(NamedTuple):
    """A moment, on both clocks."""

    wall_ms: int
    monotonic_s: float
