"""Replicas walked side by side: which one is damaged, which differs and where, and which cannot be asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidelog.admin import verification
from tidelog.admin.verification import (
    PartitionCheck,
    PartitionVerifier,
    ReplicaCheck,
    await_repairs,
    verify_broker,
)
from tidelog.model.errors import LeaderNotAvailable
from tidelog.transport.verification import (
    BrokerVerification,
    CheckedFiles,
    DamagedOffsets,
    NamedBatch,
    ReplicaVerification,
)

RANGE = 4
"""Offsets that a replica comes at a time: each is a batch."""


class Replicas:
    """What each broker has: a digest for every offset. Damage is repaired after it was told `repairs_after` times."""

    def __init__(self, *contents: str) -> None:
        self.contents = dict(enumerate(contents, start=1))
        self.starts = dict.fromkeys(self.contents, 0)
        self.damage: dict[int, set[int]] = {}
        self.repairs_after = 10**6
        self.down: set[int] = set()

    async def verify_replica(
        self,
        topic: str,
        partition: int,
        broker_id: int,
        *,
        offset: int = 0,
        to: int | None = None,
        names_batches: bool = False,
    ) -> ReplicaVerification:
        if broker_id in self.down:
            raise LeaderNotAvailable(f"broker {broker_id} cannot be asked now")
        content = self.contents[broker_id]
        start = max(offset, self.starts[broker_id])
        end = max(start, min(len(content), start + RANGE, len(content) if to is None else to))
        damaged = [at for at in sorted(self.damage.get(broker_id, ())) if start <= at < end]
        self.repairs_after -= bool(damaged)
        if self.repairs_after <= 0:
            self.damage.clear()
        return ReplicaVerification(
            broker_id,
            self.starts[broker_id],
            len(content),
            start,
            end,
            end - start,
            content[start:end],
            tuple(DamagedOffsets(at, at + 1, "rotten") for at in damaged),
            tuple(NamedBatch(at, at + 1, 1, content[at]) for at in range(start, end)) if names_batches else None,
        )


async def check(replicas: Replicas) -> PartitionCheck:
    compared: list[int] = []
    found = await PartitionVerifier(replicas.verify_replica, "t", 0, list(replicas.contents), compared.append).verify()
    assert sum(compared) == found.end_offset - found.start_offset
    return found


def of(found: PartitionCheck, broker_id: int) -> ReplicaCheck:
    return found.replicas[broker_id - 1]


async def test_equal_replicas_are_whole() -> None:
    found = await check(Replicas("abcdefghij", "abcdefghij", "abcdefghij"))
    assert found.is_whole
    assert (found.start_offset, found.end_offset, found.bytes) == (0, 10, 10)


async def test_only_what_all_know_to_be_committed_is_compared() -> None:
    replicas = Replicas("abcdefghij", "abcdefgXYZ"[:7], "abcdefghij")
    replicas.starts[3] = 2
    found = await check(replicas)
    assert found.is_whole
    assert (found.start_offset, found.end_offset) == (2, 7)


async def test_the_first_batch_that_differs_is_named() -> None:
    found = await check(Replicas("abcdefghij", "abcdefghij", "abcdeXgXij"))
    assert of(found, 3).differs_at == 5
    assert [replica.is_whole for replica in found.replicas] == [True, True, False]


async def test_damage_that_is_repaired_is_told_and_is_no_failure() -> None:
    replicas = Replicas("abcdefghij", "abcdefghij")
    replicas.damage, replicas.repairs_after = {2: {6}}, 2
    found = await check(replicas)
    assert found.is_whole
    assert of(found, 2).repaired == [DamagedOffsets(6, 7, "rotten")]


async def test_a_broker_that_is_down_is_told_and_the_others_are_compared() -> None:
    replicas = Replicas("abcdefghij", "abcdefghij", "abcdefghiX")
    replicas.down = {1}
    found = await check(replicas)
    assert not of(found, 1).is_whole
    assert of(found, 1).error is not None
    assert of(found, 2).is_whole
    assert of(found, 3).differs_at == 9


async def test_a_broker_that_is_known_to_be_down_is_told_and_not_asked() -> None:
    replicas = Replicas("abcdefghij", "abcdefghij", "abcdefghiX")
    asked: list[int] = []

    async def ask(topic: str, partition: int, broker_id: int, **what: Any) -> ReplicaVerification:
        asked.append(broker_id)
        return await replicas.verify_replica(topic, partition, broker_id, **what)

    found = await PartitionVerifier(ask, "t", 0, [1, 2, 3], lambda _: None, down={1}).verify()
    assert 1 not in asked
    assert of(found, 1).error == "broker 1 is down"
    assert of(found, 3).differs_at == 9


async def test_repairs_of_all_partitions_are_awaited_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "REPAIR_S_MAX", 0.5)
    monkeypatch.setattr(verification, "POLL_S", 0.01)
    verifiers = []
    for partition in range(20):
        replicas = Replicas("abcd", "abcd")
        replicas.damage = {1: {2}}
        verifiers.append(PartitionVerifier(replicas.verify_replica, "t", partition, [1, 2], lambda _: None))
    found = [await one.compare() for one in verifiers]
    async with asyncio.timeout(5):  # one after another they would take ten seconds
        await await_repairs(verifiers)
    assert not any(one.is_whole for one in found)


async def test_nobody_to_ask_is_no_success() -> None:
    replicas = Replicas("ab", "ab")
    replicas.down = {1, 2}
    found = await check(replicas)
    assert not found.is_whole


async def test_good_copies_are_counted_range_by_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "REPAIR_S_MAX", 0.0)  # nobody repairs it
    replicas = Replicas("abcdefghij", "abcdefghij", "abcdefgXij")
    replicas.damage = {1: {2, 3, 4}, 2: {4, 5}, 3: {4}}
    found = await check(replicas)
    copies = [(one.start_offset, one.end_offset, one.copies) for one in found.good_copies()]
    assert copies == [(0, 2, 3), (2, 4, 2), (4, 5, 0), (5, 6, 2), (6, 7, 3), (7, 10, 2)]
    assert [(one.start_offset, one.end_offset, one.copies) for one in found.scarce()] == [(4, 5, 0)]


async def test_a_replica_that_cannot_be_asked_has_no_good_copy() -> None:
    replicas = Replicas("abcdefghij", "abcdefghij", "abcdefghij")
    replicas.down = {2, 3}
    found = await check(replicas)
    assert [(one.start_offset, one.end_offset, one.copies) for one in found.scarce()] == [(0, 10, 1)]


async def test_the_only_replica_is_not_scarce() -> None:
    assert (await check(Replicas("abcdefghij"))).scarce() == []


async def test_a_broker_is_verified_part_by_part_to_the_end() -> None:
    names = ["identity", "journal t-0", "snapshots"]

    async def ask(broker_id: int, *, after: str) -> BrokerVerification:
        (name, *rest) = [name for name in names if name > after]
        return BrokerVerification(broker_id, (CheckedFiles(name, 10, 1, 0),), not rest)

    found = await verify_broker(ask, 7)
    assert [one.name for one in found.checked] == names
    assert found.is_whole


async def test_a_broker_that_cannot_be_asked_is_not_whole() -> None:
    async def ask(broker_id: int, *, after: str) -> BrokerVerification:
        raise LeaderNotAvailable("it is down")

    found = await verify_broker(ask, 7)
    assert (found.is_whole, found.error) == (False, "it is down")
