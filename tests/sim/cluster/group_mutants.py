"""Planted bugs of consumer groups: each breaks one rule of the shipped code, and some seed has to notice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from tests.sim.planting import Mutant
from tidelog.broker.groups import coordinator
from tidelog.broker.groups.coordinator_state import CoordinatorState
from tidelog.broker.groups.copying import CopyForward
from tidelog.broker.groups.loading import Loaded, load
from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.consumer.membership import Membership
from tidelog.groups import decide_members, decide_offsets
from tidelog.groups.assignors.subscriber import Partition
from tidelog.groups.group import Current
from tidelog.groups.reconcile import reconciled
from tidelog.model.groups import JOIN
from tidelog.sim.kit.patching import patched


def answer_before_the_commit() -> AbstractContextManager[None]:
    """What is decided is told at once, whether it will be in the log or not."""

    async def at_once(tenure: CoordinatorState, *_: object) -> None:
        return None

    return patched(CoordinatorState, "until_true", at_once)


def commits_of_whoever_it_was() -> AbstractContextManager[None]:
    """A committed offset is kept, whoever owns the partition now."""
    return patched(decide_offsets, "_check_owned", lambda current, committed, member_epoch: None)


def commits_in_any_order() -> AbstractContextManager[None]:
    """Of two commits that overtake each other, the one that comes last stays."""
    return patched(decide_offsets, "_is_kept", lambda group, committed: False)


def given_away_before_it_is_given_up() -> AbstractContextManager[None]:
    """Who is told to give something up counts as having done so."""

    def at_once(
        current: Current,
        target: Mapping[Partition, str],
        epoch: int,
        owners: Mapping[Partition, str],
        member_id: str,
        said: frozenset[Partition] | None,
    ) -> Current:
        return replace(reconciled(current, target, epoch, owners, member_id, said), revoking={})

    return patched(decide_members, "reconciled", at_once)


@contextmanager
def load_without_a_claim() -> Iterator[None]:
    """A new coordinator takes what it can read now for all that there is."""

    async def claim(partition: LedPartition, node_id: int, now_ms: int) -> int:
        return (await partition.extent()).high_watermark

    async def all_there_is(partition: LedPartition, claimed: int, now_ms: int) -> Loaded:
        loaded = await load(partition, claimed, now_ms)
        return Loaded(loaded.shard, partition.log.log_end_offset)

    with patched(coordinator, "claim", claim), patched(coordinator, "load", all_there_is):
        yield


def deliver_without_a_lease() -> AbstractContextManager[None]:
    """A member goes on for as long as nobody tells it otherwise."""
    return patched(Membership, "may_deliver", lambda membership, now_s: membership.member_epoch > JOIN)


def delete_before_the_copies_are_there() -> AbstractContextManager[None]:
    """Copying forward begins with making room."""

    copy_forward = CopyForward._copy

    async def copy(forward: CopyForward) -> None:
        deadline_s = asyncio.get_running_loop().time() + 1.0
        await forward._state.partition.delete_below(forward._state.end_offset, deadline_s=deadline_s)
        await copy_forward(forward)

    return patched(CopyForward, "_copy", copy)


MUTANTS: tuple[Mutant, ...] = (
    answer_before_the_commit,
    commits_of_whoever_it_was,
    commits_in_any_order,
    given_away_before_it_is_given_up,
    load_without_a_claim,
    deliver_without_a_lease,
    delete_before_the_copies_are_there,
)
