"""`tidelog log verify --cluster`: compares the replicas of a running cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from msgspec import to_builtins

from tidelog.admin import AdminClient, PartitionDescription, TopicDescription
from tidelog.admin.verification import (
    BrokerCheck,
    PartitionCheck,
    PartitionVerifier,
    ReplicaCheck,
    await_repairs,
    verify_broker,
)
from tidelog.cli.connection import ask
from tidelog.cli.tables import count_progress, print_table, show
from tidelog.cli.terminal import counted
from tidelog.model.ids import TopicPartition

SHOWN_MAX = 20


def verify_cluster(bootstrap: str, topic: str | None, *, as_json: bool) -> bool:
    """Prints the results; returns True if all replicas are undamaged and equal."""
    checks = ask(bootstrap, lambda admin: _verify_all(admin, topic))
    show(checks, _print, as_json=as_json, document=_documents)
    return all(check.is_whole for check in checks.partitions) and all(check.is_whole for check in checks.brokers)


class _Checks(NamedTuple):
    partitions: list[PartitionCheck]
    brokers: list[BrokerCheck]
    """The results for each broker's files other than the logs of partitions; empty if one topic was given."""


async def _verify_all(admin: AdminClient, topic: str | None) -> _Checks:
    brokers = await admin.list_brokers()
    down = {broker.broker_id for broker in brokers if broker.is_fenced}
    checks = await _verify(admin, topic, down)
    if topic is not None:
        return _Checks(checks, [])
    return _Checks(
        checks,
        [
            BrokerCheck(broker.broker_id, error="it is down")
            if broker.broker_id in down
            else await verify_broker(admin.verify_broker, broker.broker_id)
            for broker in brokers
        ],
    )


async def _verify(admin: AdminClient, topic: str | None, down: Collection[int]) -> list[PartitionCheck]:
    topics = await admin.describe_topics(None if topic is None else [topic])
    partitions = [(described, partition) for described in topics for partition in described.partitions]
    records = await _records(admin, partitions)
    verifiers, checks = [], []
    with count_progress() as progress:
        bar = progress.add_task("comparing offsets", total=sum(records.values()))
        advance = partial(progress.advance, bar)
        for described, partition in partitions:
            progress.update(bar, description=f"comparing {described.topic_name}-{partition.partition_id}")
            verifier = PartitionVerifier(
                admin.verify_replica,
                described.topic_name,
                partition.partition_id,
                _in_order(partition),
                advance,
                down,
                has_leader=partition.leader >= 0,
            )
            verifiers.append(verifier)
            checks.append(await verifier.compare())
        await await_repairs(verifiers)
    return checks


async def _records(
    admin: AdminClient, partitions: Sequence[tuple[TopicDescription, PartitionDescription]]
) -> dict[TopicPartition, int]:
    """Returns the number of offsets to compare, by partition."""
    keys = [TopicPartition(topic.topic_name, partition.partition_id) for topic, partition in partitions]
    ends = await admin.list_offsets(keys)
    return {key: (end.high_watermark or 0) - (end.log_start_offset or 0) for key, end in ends.items()}


def _in_order(partition: PartitionDescription) -> list[int]:
    """Returns the replicas with the leader first, which is the reference for the others."""
    return sorted(partition.replicas, key=lambda node: node != partition.leader)


def _documents(checks: _Checks) -> list[dict[str, Any]]:
    return [*map(_document, checks.partitions), *map(broker_document, checks.brokers)]


def broker_document(check: BrokerCheck | ReplicaCheck) -> dict[str, Any]:
    """Returns the JSON form of the result for a broker, or for its replica."""
    return {**to_builtins(check), "is_whole": check.is_whole}


def _document(check: PartitionCheck) -> dict[str, Any]:
    return {
        "topic_name": check.topic,
        "partition_id": check.partition,
        "start_offset": check.start_offset,
        "end_offset": check.end_offset,
        "bytes": check.bytes,
        "is_whole": check.is_whole,
        "has_leader": check.has_leader,
        "good_copies": to_builtins(check.good_copies()),
        "replicas": [broker_document(replica) for replica in check.replicas],
    }


def _print(checks: _Checks) -> None:
    _print_partitions(checks.partitions)
    if checks.brokers:
        print()
        print_brokers(checks.brokers)


def print_brokers(checks: Sequence[BrokerCheck]) -> None:
    """Prints the number of undamaged files, and the damaged ones by name."""
    rows = [
        [check.broker_id, len(check.checked), sum(files.bytes for files in check.checked), _broker_state(check)]
        for check in checks
    ]
    print_table(["broker", "journals, metadata, facts", "bytes", "state"], rows)
    for check in checks:
        if check.error is not None:
            print(f"broker {check.broker_id} cannot be verified: {check.error}")
        for files in check.checked:
            if files.error is not None:
                print(f"{files.name} on broker {check.broker_id} cannot be verified: {files.error}")
            if files.found:
                repaired = files.found - files.left
                print(f"{files.name} on broker {check.broker_id}: {files.found} damaged, {repaired} repaired")


def _broker_state(check: BrokerCheck) -> str:
    if check.error is not None or any(files.error for files in check.checked):
        return "UNKNOWN"
    if any(files.left for files in check.checked):
        return "DAMAGED"
    return "repaired" if any(files.found for files in check.checked) else "whole"


def _print_partitions(checks: Sequence[PartitionCheck]) -> None:
    rows = [
        [check.topic, check.partition, replica.broker_id, check.start_offset, check.end_offset, _state(replica)]
        for check in checks
        for replica in check.replicas
    ]
    print_table(["topic", "partition", "broker", "start", "end", "state"], rows)
    for check in checks:
        if not check.has_leader:
            named = f"{check.topic}-{check.partition}: no broker leads it, so nobody tells what was acknowledged"
            print(f"{named}; `tidelog topic describe {check.topic}` shows what it waits for")
        for replica in check.replicas:
            for line in _explained(replica):
                print(f"{check.topic}-{check.partition} on broker {replica.broker_id}: {line}")
        among = (
            " on the brokers that could be asked"
            if any(replica.error is not None for replica in check.replicas)
            else ""
        )
        for scarce in check.scarce()[:SHOWN_MAX]:
            copies = "one good copy" if scarce.copies else "NO good copy"
            where = f"{scarce.start_offset}-{scarce.end_offset - 1}{among}"
            print(f"{check.topic}-{check.partition}: {copies} of offsets {where}")
    replicas = [replica for check in checks for replica in check.replicas]
    bad = sum(not replica.is_whole for replica in replicas)
    if bad:
        print(f"{bad} of {counted(len(replicas), 'replica')} not whole")
    elif leaderless := sum(not check.has_leader for check in checks):
        print(f"{counted(leaderless, 'partition')} without a leader")
    else:
        print(f"{counted(len(replicas), 'replica')}, all whole and equal")


def _state(replica: ReplicaCheck) -> str:
    if replica.error is not None:
        return "UNKNOWN"
    if replica.differs_at is not None:
        return "DIFFERS"
    if replica.damaged:
        return "DAMAGED"
    return "repaired" if replica.repaired else "whole"


def _explained(replica: ReplicaCheck) -> Iterator[str]:
    if replica.error is not None:
        yield f"cannot be verified: {replica.error}"
    if replica.differs_at is not None:
        yield f"holds another batch than the leader at offset {replica.differs_at}"
    for word, ranges in (("damaged", replica.damaged), ("repaired meanwhile", replica.repaired)):
        for damaged in ranges[:SHOWN_MAX]:
            yield f"offsets {damaged.start_offset}-{damaged.end_offset - 1} {word}: {damaged.reason}"
        if len(ranges) > SHOWN_MAX:
            yield f"and {len(ranges) - SHOWN_MAX} more ranges {word}; --json lists all"
