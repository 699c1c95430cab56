"""REST v3: the lag of consumer groups.

The lag of a partition is its high watermark minus the group's committed offset: `log_end_offset` is the high watermark,
because a consumer cannot read beyond it (Confluent's REST Proxy does the same). Only partitions with a committed offset
have a lag; if the leader of one cannot be asked, `log_end_offset` and `lag` are null, and there is no summary (503).
"""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from tidelog.broker.face.groups import PATIENCE_S, Lag
from tidelog.broker.http.answers import json_answer
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.envelope import Links, Related, Resource
from tidelog.model.errors import LeaderNotAvailable, NotFound, TidelogError
from tidelog.model.groups import check_group_name


class LagV3(Resource, frozen=True):
    """The lag of a group in a partition; `consumer_id` is empty if no member owns it now."""

    consumer_group_id: str
    topic_name: str
    partition_id: int
    current_offset: int
    log_end_offset: int | None
    lag: int | None
    consumer_id: str
    instance_id: str | None
    client_id: str


class LagSummaryV3(Resource, frozen=True):
    """The lag of a group in total, and in the partition where it is largest. If no member owns that partition,
    `max_lag_consumer` links to the list of members.
    """

    consumer_group_id: str
    max_lag_consumer_id: str
    max_lag_instance_id: str | None
    max_lag_client_id: str
    max_lag_topic_name: str
    max_lag_partition_id: int
    max_lag: int
    total_lag: int
    max_lag_consumer: Related
    max_lag_partition: Related


async def list_lags(context: Context, call: Call) -> web.StreamResponse:
    """Lists the lag of a group in each partition."""
    links = Links(context, call)
    group, lags = await _lags(context, call)
    data = [_lag(links, group, lag) for lag in lags]
    return json_answer(links.list_of("KafkaConsumerLag", data, "consumer-groups", group, "lags"))


async def get_lag(context: Context, call: Call) -> web.StreamResponse:
    """Returns the lag of a group in one partition."""
    links = Links(context, call)
    topic, partition = call.topic_name(), call.partition_number()
    group, lags = await _lags(context, call)
    for lag in lags:
        if (lag.committed.topic, lag.committed.partition) == (topic, partition):
            return json_answer(_lag(links, group, lag))
    raise NotFound(f"group {group} has no offset of {topic}-{partition}")


async def get_summary(context: Context, call: Call) -> web.StreamResponse:
    """Returns the lag of a group in total, and in the partition where it is largest."""
    links = Links(context, call)
    group, lags = await _lags(context, call)
    if not lags:
        raise NotFound(f"group {group} has no offsets, so it is not behind anywhere")
    return json_answer(_summary(links, group, lags))


async def _lags(context: Context, call: Call) -> tuple[str, list[Lag]]:
    group = check_group_name(call.path["group"])
    return group, await context.face.groups.lags(group, call.started_s + PATIENCE_S)


def _lag(links: Links, group: str, lag: Lag) -> LagV3:
    member = lag.member
    segments = ("consumer-groups", group, "lags", lag.committed.topic, "partitions", lag.committed.partition)
    return LagV3(
        *links.resource("KafkaConsumerLag", *segments),
        group,
        lag.committed.topic,
        lag.committed.partition,
        lag.committed.offset,
        None if isinstance(lag.extent, TidelogError) else lag.extent.high_watermark,
        lag.records,
        "" if member is None else member.member_id,
        None if member is None else member.instance_id,
        "" if member is None else member.client_id,
    )


def _summary(links: Links, group: str, lags: Sequence[Lag]) -> LagSummaryV3:
    worst, most, total = lags[0], -1, 0
    for lag in lags:
        if lag.records is None:
            raise LeaderNotAvailable(f"nobody can tell where {lag.committed.topic}-{lag.committed.partition} ends now")
        total += lag.records
        if lag.records > most:
            worst, most = lag, lag.records
    member = worst.member
    return LagSummaryV3(
        *links.resource("KafkaConsumerGroupLagSummary", "consumer-groups", group, "lag-summary"),
        group,
        "" if member is None else member.member_id,
        None if member is None else member.instance_id,
        "" if member is None else member.client_id,
        worst.committed.topic,
        worst.committed.partition,
        most,
        total,
        links.related("consumer-groups", group, "consumers", *([] if member is None else [member.member_id])),
        links.related("topics", worst.committed.topic, "partitions", worst.committed.partition),
    )
