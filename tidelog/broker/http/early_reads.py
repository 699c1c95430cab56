"""Reads with `order=key` or `order=none`: besides committed records, what the leader has released above the high
watermark."""

from __future__ import annotations

from tidelog.broker.face.partitions import EarlyReader
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.params import shown
from tidelog.model.cluster import TOTAL
from tidelog.model.early_reads import ORDERS, is_read_early, parse_above
from tidelog.model.errors import InvalidRequest, LeaderNotAvailable, NotLeader


def early_reader(context: Context, call: Call) -> EarlyReader | None:
    """Returns the reader of what is released, as the query says; None if only committed records are to be read: in
    total order, from a copy, or at a broker that does not lead. Raises `InvalidRequest`.
    """
    query = call.query
    order = query.get("order", TOTAL)
    if order not in ORDERS:
        raise InvalidRequest(f"order must be total, key or none, not {shown(order)}")
    if order == TOTAL:
        if "above" in query:
            raise InvalidRequest("above names what was read out of order: give it with order=key or order=none only")
        return None
    topic = context.face.cluster.topic(call.topic_name())
    if not is_read_early(topic.commit_order, order):
        raise InvalidRequest(_why_not(topic.name, topic.commit_order, order))
    above = parse_above(query.get("above", ""))
    if "replica" in query:
        return None
    try:
        return EarlyReader(context.face.partitions.led_here(topic.name, call.partition_number()), above)
    except (NotLeader, LeaderNotAvailable):
        return None


def _why_not(topic: str, commit_order: str, order: str) -> str:
    if commit_order == TOTAL:
        return f"topic {topic} has commit.order=total: its records are read in order, so leave out order={order}"
    return (
        f"topic {topic} has commit.order={commit_order}: no order of the records of a key is kept above the high "
        "watermark, so read with order=none, or order=total"
    )
