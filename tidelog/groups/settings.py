"""External inputs of the core: settings, the cluster's topics, the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

REBALANCE_TIMEOUT_MS: Final = 300_000
"""Rebalance timeout, in ms, of a member that names none: Kafka's `max.poll.interval.ms`."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker's settings for groups; `docs/config.md` explains each."""

    session_timeout_ms: int = 45_000
    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    heartbeat_interval_ms: int = 5_000
    members_max: int = 10_000
    groups_max: int = 2_000
    """Maximum number of groups in one shard (one partition of `__consumer_offsets`)."""
    offset_metadata_bytes_max: int = 4_096
    offsets_retention_ms: int = 10_080 * 60_000
    classic_members_max: int = 10_000
    initial_rebalance_delay_ms: int = 3_000

    @property
    def session_timeouts_ms(self) -> tuple[int, int]:
        """Shortest and longest session timeout, in ms, that a member may request."""
        return self.session_timeout_ms_min, self.session_timeout_ms_max


class TopicSeen(NamedTuple):
    """Id and number of partitions of a topic."""

    topic_id: str
    partitions: int


TopicsView: TypeAlias = Mapping[str, TopicSeen]
"""Topics that may be subscribed to, by name."""


class Now(NamedTuple):
    """A time by the wall clock (ms) and by the monotonic clock (s)."""

    wall_ms: int
    monotonic_s: float
