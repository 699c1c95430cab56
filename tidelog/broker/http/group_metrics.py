"""The consumer groups that a broker coordinates, as Prometheus metrics. The sum over all brokers counts each group
once.

The metrics of a group are complete or left out. Clients can create any number of groups, so the number of series is
bounded; the groups left out are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.broker.face.face import BrokerFace
from tidelog.broker.face.metric_families import gauge, gauges
from tidelog.broker.http.groups_v3 import spelled_out
from tidelog.groups.group import CLASSIC_STATES, GroupState

SERIES_MAX: Final = 5_000
"""Maximum number of series for groups: some 30 ms of the event loop."""
_STATES: Final = (
    *((state, "consumer") for state in GroupState if state not in CLASSIC_STATES),
    *((state, "classic") for state in (GroupState.EMPTY, *CLASSIC_STATES, GroupState.STABLE)),
)


class GroupMetrics(Collector):
    """Metrics of the groups that one broker coordinates, at most `series_max` series."""

    def __init__(self, face: BrokerFace, *, series_max: int = SERIES_MAX) -> None:
        self._face = face
        self._series_max = series_max

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics for one scrape."""
        if not self._face.readiness.is_ready:
            return
        lags = self._face.statistics.group_lags
        lags.watched()
        members = GaugeMetricFamily("tidelog_group_members", "Members of a consumer group.", labels=["group"])
        behind = GaugeMetricFamily(
            "tidelog_group_lag_records",
            "Offsets from a group's committed offset to the high watermark of the partition.",
            labels=["group", "topic", "partition"],
        )
        states = dict.fromkeys(_STATES, 0)
        room, omitted = self._series_max, 0
        for group in lags.groups():
            states[group.state, "consumer" if group.classic is None else "classic"] += 1
            series = 1 + len(group.offsets)
            if series > room:
                omitted += 1
                continue
            room -= series
            members.add_metric([group.name], group.members_count)
            for (topic, partition), committed in group.offsets.items():
                lag = lags.of(committed)
                if lag is not None:
                    behind.add_metric([group.name, topic, str(partition)], lag)
        groups = {(spelled_out(state.value).lower(), kind): count for (state, kind), count in states.items()}
        yield gauges("groups", "Consumer groups coordinated by this broker.", ["state", "type"], groups)
        yield from (members, behind)
        coordinators = self._face.statistics.group_coordinators
        yield gauge(
            "group_coordinators", "Partitions of __consumer_offsets that this broker coordinates.", coordinators
        )
        yield gauge(
            "groups_not_shown",
            f"Groups without members and lags here, because a page has at most {self._series_max} series of them.",
            omitted,
        )
