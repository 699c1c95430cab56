"""Requests about many partitions at once: answered locally for partitions that this broker leads, with one request to
each other leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, Final, TypeVar

from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.partitions.partition_handle import Offsets, PartitionHandle
from tidelog.broker.routing.fan_out import fan_out_fingerprints, fan_out_offsets, offsets_at
from tidelog.broker.routing.forwarding_messages import Addressed
from tidelog.broker.routing.leader_calls import UNKNOWN
from tidelog.broker.routing.led_here import LedHere
from tidelog.broker.routing.peer_partition import PeerLeader, PeerPartition
from tidelog.broker.routing.remote_partition import RemotePartition
from tidelog.broker.runtime.purgatory import Purgatory
from tidelog.model.errors import LeaderNotAvailable, Overloaded, TidelogError
from tidelog.model.ids import ProducerId

P = TypeVar("P", bound=PartitionHandle | TidelogError)

PATIENCE_S: Final = 1.0
"""Seconds for which a missing leader is looked for. A partition without a leader must not delay the answers about the
others for longer.
"""


async def offsets_of(
    questions: Sequence[tuple[PartitionHandle | TidelogError, int | None]],
) -> list[Offsets | TidelogError]:
    """Returns the extent (log start, high watermark, log end) of each partition and, with a timestamp (ms), the first
    record of that time or later; or the error of that partition. An error in place of a partition is returned as it is.
    """
    questions = [(_direct(partition), timestamp_ms) for partition, timestamp_ms in questions]
    remote = [
        (partition, timestamp_ms) for partition, timestamp_ms in questions if isinstance(partition, RemotePartition)
    ]
    remote_answers: Iterator[Offsets | TidelogError] = iter(())
    if remote:
        targets = [(partition.target, timestamp_ms) for partition, timestamp_ms in remote]
        remote_answers = iter(await fan_out_offsets(remote[0][0].calls, targets, _patience_ends_s()))
    answers = [
        next(remote_answers) if isinstance(partition, RemotePartition) else await _offsets_here(partition, timestamp_ms)
        for partition, timestamp_ms in questions
    ]
    await _ask_again(questions, answers)
    return answers


async def _ask_again(
    questions: Sequence[tuple[PartitionHandle | TidelogError, int | None]], answers: list[Offsets | TidelogError]
) -> None:
    """Asks for the offsets again for partitions that this broker is about to lead, once its election is over, and
    replaces their `LeaderNotAvailable` in `answers`.
    """
    deadline_s = _patience_ends_s()
    for number, (partition, timestamp_ms) in enumerate(questions):
        if isinstance(partition, LedPartition) and isinstance(answers[number], LeaderNotAvailable):
            await partition.wait_for_end(deadline_s)
            answers[number] = await _offsets_here(partition, timestamp_ms)


async def _offsets_here(partition: PartitionHandle | TidelogError, timestamp_ms: int | None) -> Offsets | TidelogError:
    if isinstance(partition, TidelogError):
        return partition
    try:
        return await offsets_at(partition, timestamp_ms)
    except TidelogError as error:
        return error


async def fingerprints_of(
    partitions: Sequence[PartitionHandle], producer_id: ProducerId
) -> list[int | TidelogError | None]:
    """Asks each of these partitions which request was appended under an idempotency key, given as the producer id that
    was made from the key. Returns for each partition the fingerprint of the request's content, None if no request was
    appended under the key, or the error of that partition. The list is not in the partitions' order.
    """
    partitions = [_direct(partition) for partition in partitions]
    remote = [partition for partition in partitions if isinstance(partition, RemotePartition)]
    fingerprints: list[int | TidelogError | None] = [
        await partition.fingerprint_of(producer_id)
        for partition in partitions
        if not isinstance(partition, RemotePartition)
    ]
    if remote:
        targets = [partition.target for partition in remote]
        fingerprints += await fan_out_fingerprints(remote[0].calls, targets, producer_id, _patience_ends_s())
    return fingerprints


async def wait_for_change(ends: Sequence[tuple[PartitionHandle, int]], purgatory: Purgatory, deadline_s: float) -> None:
    """Waits until the high watermark of any of these partitions differs from the one given with it, a partition has an
    error, or the deadline (loop time). Raises `Overloaded` if too many requests wait already.
    """
    ends = [(_direct(partition), end) for partition, end in ends]
    local = [(partition, end) for partition, end in ends if isinstance(partition, LedPartition)]
    remote = [(partition, end) for partition, end in ends if isinstance(partition, RemotePartition)]
    if not remote:
        await wait_for_local_change(local, purgatory, deadline_s)
        return
    try:
        located = [(partition.calls.locate(partition.target, deadline_s), end) for partition, end in remote]
    except TidelogError:
        return
    local += [(leader, end) for leader, end in located if isinstance(leader, LedPartition)]
    groups: dict[PeerLeader, list[tuple[Addressed, int]]] = {}
    for leader, end in located:
        if isinstance(leader, PeerPartition):
            groups.setdefault(leader.peer, []).append((leader.addressed, end))
    waits = [_wait_at(leader, group, deadline_s) for leader, group in groups.items()]
    if local:
        waits.append(wait_for_local_change(local, purgatory, deadline_s))
    await first_of(waits)


async def wait_for_local_change(
    ends: Sequence[tuple[LedPartition, int]], purgatory: Purgatory, deadline_s: float
) -> None:
    """Waits until the high watermark of any of these partitions, all led by this broker, differs from the one given
    with it, or the deadline (loop time). Raises `Overloaded` if too many requests wait already.
    """
    await purgatory.wait(
        [partition.watchers for partition, _ in ends],
        lambda: any(partition.high_watermark != end for partition, end in ends),
        deadline_s,
    )


async def _wait_at(leader: PeerLeader, ends: Sequence[tuple[Addressed, int]], deadline_s: float) -> None:
    try:
        await leader.wait_for_change(ends, deadline_s)
    except Overloaded:
        raise
    except (TidelogError, *UNKNOWN):
        return  # whoever asks for the offsets next is told


async def first_of(waits: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Runs the coroutines until the first has ended, and cancels the others. Raises the error of the first."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _direct(partition: P) -> P | LedPartition:
    """Returns the local partition behind a handle if this broker still leads it and it is readable; else the handle."""
    return partition.led if isinstance(partition, LedHere) and partition.led.is_readable else partition


def _patience_ends_s() -> float:
    return asyncio.get_running_loop().time() + PATIENCE_S
