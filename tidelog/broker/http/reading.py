"""What every read of a partition has in common: which replica answers, waiting for data, positions in headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidelog.broker.http.context import Call, Context
from tidelog.broker.http.params import shown
from tidelog.model.errors import InvalidRequest

if TYPE_CHECKING:
    from tidelog.broker.partition import FetchedBatches, Partition


def readable_partition(context: Context, call: Call) -> tuple[Partition, Mapping[str, str]]:
    """The partition of the path, and the headers that say which replica answers, if the client asked for one.

    `replica=local` wants the addressed broker's own copy, `replica=any` whatever copy is at hand; without it the
    leader answers.
    """
    replica = call.query.get("replica")
    if replica not in (None, "local", "any"):
        raise InvalidRequest(
            f"replica must be local or any, not {shown(replica)}; leave it out to read from the leader"
        )
    partition = context.broker.partition(call.topic_name(), call.partition_number())
    return partition, {} if replica is None else {"Tidelog-Replica": str(context.broker.node_id)}


async def wait_for_data(context: Context, partition: Partition, offset: int, bytes_min: int, deadline_s: float) -> None:
    """Returns when `bytes_min` bytes are readable from `offset` on, at the deadline, or when the broker shuts down."""
    async with context.waits.until(deadline_s):
        await partition.wait_for_data(offset, bytes_min=bytes_min, deadline_s=deadline_s)


def position_headers(fetched: FetchedBatches) -> dict[str, str]:
    """Where the log begins and ends, and what is committed, at the moment of a read."""
    return {
        "Tidelog-High-Watermark": str(fetched.high_watermark),
        "Tidelog-Log-Start-Offset": str(fetched.log_start_offset),
        "Tidelog-Log-End-Offset": str(fetched.log_end_offset),
        "Tidelog-Leader-Epoch": str(fetched.leader_epoch),
    }
