"""The common part of all reads of a partition: choice of the replica, wait for data, position headers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import starmap

from tidelog.broker.face.partitions import EarlyReader, FetchedBatches, ReadHandle
from tidelog.broker.http import params
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.produce import check_partition
from tidelog.model.cluster import PartitionInfo
from tidelog.model.early_reads import ABOVE_HEADER, AboveOffsets
from tidelog.model.errors import InvalidRequest, LeaderNotAvailable, NotAReplica
from tidelog.model.ids import PartitionId
from tidelog.model.lost_ranges import LOST_HEADER, LostRange, format_lost


def readable_partition(context: Context, call: Call) -> ReadHandle:
    """Returns the partition of the path, at the replica that the client requests.

    `replica=local` is the addressed broker's own replica, or the error `NotAReplica` (404) if it has none;
    `replica=any` is that replica, else the leader's; without it the leader answers.
    """
    replica = call.query.get("replica")
    if replica not in (None, "local", "any"):
        raise InvalidRequest(
            f"replica must be local or any, not {params.shown(replica)}; leave it out to read from the leader"
        )
    name, number = call.topic_name(), call.partition_number()
    if replica is not None:
        topic = context.face.cluster.topic(name)
        check_partition(topic, number)
        partitions, partition_id = context.face.partitions, PartitionId(topic.topic_id, number)
        copy = partitions.any_copy(partition_id) if replica == "any" else partitions.local_copy(partition_id)
        if copy is not None:
            return copy
        if replica == "local":
            _require_copy(context.face.cluster.node_id, name, topic.partitions[number])
    return context.face.partitions.handle(name, number)


def _require_copy(node_id: int, topic: str, info: PartitionInfo) -> None:
    """Raises `NotAReplica` or `LeaderNotAvailable` if the broker has no replica to read, unless it is the leader."""
    name = f"{topic}-{info.partition}"
    if node_id not in info.replicas:
        raise NotAReplica(f"broker {node_id} holds no copy of {name}; see its replicas")
    if node_id != info.leader:
        raise LeaderNotAvailable(f"broker {node_id}'s copy of {name} is not open now; try again")


async def start_offset(partition: ReadHandle, query: Mapping[str, str]) -> int:
    """Returns the offset that the parameter `offset` names: a number, `earliest` or `latest`. Raises `InvalidRequest`
    if it is missing or neither.
    """
    text = query.get("offset")
    if text == "earliest":
        return (await partition.extent()).log_start_offset
    if text == "latest":
        return (await partition.extent()).high_watermark
    return params.offset(text)


async def wait_for_data(
    context: Context,
    partition: ReadHandle,
    offset: int,
    bytes_min: int,
    deadline_s: float,
    early: EarlyReader | None = None,
) -> None:
    """Waits until `bytes_min` bytes are readable from `offset` on, for an early reader also until a batch that it lacks
    is released; but no longer than until the deadline passes, or the broker shuts down.
    """
    async with context.admission.waits.until(deadline_s):
        if early is None:
            wait = partition.wait_for_data(offset, bytes_min=bytes_min, deadline_s=deadline_s)
        else:
            wait = context.face.partitions.wait_until(partial(early.has_data, offset, bytes_min), [early.led.watchers])
        await context.timed(context.stages.fetch_wait, wait)


def position_headers(call: Call, fetched: FetchedBatches, early: Iterable[tuple[int, int]] = ()) -> dict[str, str]:
    """Returns the headers of a read: the log's start and end and its high watermark; accepted losses that it skips; the
    ranges of offsets above the high watermark that were read early; and the node id of the replica, if the client chose
    one.
    """
    headers = {
        "Tidelog-High-Watermark": str(fetched.high_watermark),
        "Tidelog-Log-Start-Offset": str(fetched.log_start_offset),
        "Tidelog-Log-End-Offset": str(fetched.log_end_offset),
        "Tidelog-Leader-Epoch": str(fetched.leader_epoch),
    }
    if fetched.lost:
        headers[LOST_HEADER] = format_lost(starmap(LostRange, fetched.lost))
    above = AboveOffsets(early)
    if above:
        headers[ABOVE_HEADER] = str(above)
    if "replica" in call.query:
        headers["Tidelog-Replica"] = str(fetched.replica)
    return headers
