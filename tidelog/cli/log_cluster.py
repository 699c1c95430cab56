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
    found = ask(bootstrap, lambda admin: _verify_all(admin, topic))
    show(found, _print, as_json=as_json, document=_documents)
    return all(check.is_whole for check in found.partitions) and all(check.is_whole for check in found.brokers)


class _Found(NamedTuple):
    partitions: list[PartitionCheck]
    brokers: list[BrokerCheck]
    """The results for the brokers' other files; empty if one topic was given."""


async def _verify_all(admin: AdminClient, topic: str | None) -> _Found:
    brokers = await admin.list_brokers()
    down = {broker.broker_id for broker in brokers if broker.is_fenced}
    checks = await _verify(admin, topic, down)
    if topic is not None:
        return _Found(checks, [])
    return _Found(
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
    partitions = [(one, found) for one in topics for found in one.partitions]
    records = await _records(admin, partitions)
    verifiers, checks = [], []
    with count_progress() as progress:
        bar = progress.add_task("comparing offsets", total=sum(records.values()))
        advance = partial(progress.advance, bar)
        for one, found in partitions:
            progress.update(bar, description=f"comparing {one.topic_name}-{found.partition_id}")
            verifier = PartitionVerifier(
                admin.verify_replica,
                one.topic_name,
                found.partition_id,
                _in_order(found),
                advance,
                down,
                has_leader=found.leader >= 0,
            )
            verifiers.append(verifier)
            checks.append(await verifier.compare())
        await await_repairs(verifiers)
    return checks


async def _records(
    admin: AdminClient, partitions: Sequence[tuple[TopicDescription, PartitionDescription]]
) -> dict[TopicPartition, int]:
    """Returns the number of offsets to compare, by partition."""
    wanted = [TopicPartition(topic.topic_name, found.partition_id) for topic, found in partitions]
    ends = await admin.list_offsets(wanted)
    return {key: (end.high_watermark or 0) - (end.log_start_offset or 0) for key, end in ends.items()}


def _in_order(found: PartitionDescription) -> list[int]:
    """Returns the replicas with the leader first, which is the reference for the others."""
    return sorted(found.replicas, key=lambda node: node != found.leader)


def _documents(found: _Found) -> list[dict[str, Any]]:
    return [*map(_document, found.partitions), *map(broker_document, found.brokers)]


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


def _print(found: _Found) -> None:
    _print_partitions(found.partitions)
    if found.brokers:
        print()
        print_brokers(found.brokers)


def print_brokers(checks: Sequence[BrokerCheck]) -> None:
    """Prints the number of undamaged files, and the damaged ones by name."""
    rows = [
        [check.broker_id, len(check.checked), sum(one.bytes for one in check.checked), _broker_state(check)]
        for check in checks
    ]
    print_table(["broker", "journals, metadata, facts", "bytes", "state"], rows)
    for check in checks:
        if check.error is not None:
            print(f"broker {check.broker_id} cannot be verified: {check.error}")
        for one in check.checked:
            if one.error is not None:
                print(f"{one.name} on broker {check.broker_id} cannot be verified: {one.error}")
            if one.found:
                print(f"{one.name} on broker {check.broker_id}: {one.found} damaged, {one.found - one.left} repaired")


def _broker_state(check: BrokerCheck) -> str:
    if check.error is not None or any(one.error for one in check.checked):
        return "UNKNOWN"
    if any(one.left for one in check.checked):
        return "DAMAGED"
    return "repaired" if any(one.found for one in check.checked) else "whole"


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
        among = " on the brokers that could be asked" if any(one.error is not None for one in check.replicas) else ""
        for one in check.scarce()[:SHOWN_MAX]:
            copies = "one good copy" if one.copies else "NO good copy"
            where = f"{one.start_offset}-{one.end_offset - 1}{among}"
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
        for one in ranges[:SHOWN_MAX]:
            yield f"offsets {one.start_offset}-{one.end_offset - 1} {word}: {one.reason}"
        if len(ranges) > SHOWN_MAX:
            yield f"and {len(ranges) - SHOWN_MAX} more ranges {word}; --json lists all"
