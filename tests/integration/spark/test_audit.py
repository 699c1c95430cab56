"""Reading replicas from end to end, without Spark: from logs that a test made up, and from three brokers' disks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.asking import until
from tests.integration.spark.scripted import Script, ScriptedBroker, batches, error, scripted_broker
from tidelog.admin import AdminClient
from tidelog.model.batch_codec import encode_batch
from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import KEYED_PRODUCER_BIT
from tidelog.producer import Producer
from tidelog.spark.audit_replica import ReplicaReport, ReplicaTask, audit_replica
from tidelog.spark.auditing import AuditReport, conclude, plan_audit
from tidelog.spark.cluster import Cluster
from tidelog.spark.planner import OffsetRange
from tidelog.testing import LocalCluster


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with scripted_broker() as broker:
        yield broker


def batch(
    offset: int, count: int = 10, *, producer: tuple[int, int, int] = (-1, -1, -1), leader_epoch: int = 1
) -> bytes:
    producer_id, epoch, sequence = producer
    return bytes(
        encode_batch(
            [(1, None, b"%d" % (offset + number)) for number in range(10)],
            base_offset=offset,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
    )


def verified(end: int, *damaged: tuple[int, int], batches: object = None) -> Script:
    found = [{"start_offset": start, "end_offset": stop, "reason": "digest"} for start, stop in damaged]
    extent = {"log_start_offset": 0, "high_watermark": end, "offset": 0, "next_offset": end}
    answer = {"broker_id": 7, **extent, "bytes": 1, "checksum": "", "damaged": found, "batches": batches}
    return Script(200, json.dumps(answer).encode())


def audited(broker: ScriptedBroker, end: int, *, has_gaps: bool = False) -> ReplicaReport:
    cluster = Cluster([broker.url], timeout_s=0.3)
    task = ReplicaTask(OffsetRange("t", 0, 0, end, "id"), 7, broker.url, "c", has_gaps)
    report = audit_replica(cluster, task)
    cluster.close()
    return report


def kinds(report: ReplicaReport) -> list[tuple[str, int]]:
    return [(one.kind, one.offset) for one in report.anomalies]


def test_a_whole_replica(broker: ScriptedBroker) -> None:
    data = batch(0, producer=(5, 0, 0)) + batch(10, producer=(5, 0, 10)) + batch(20)
    broker.answers = [verified(30), batches(data, 30)]
    report = audited(broker, 30)
    assert (report.records, report.bytes, report.error, report.anomalies) == (30, len(data), None, [])
    assert broker.asked[1].endswith("?offset=0&to=30&replica=local")


def test_an_accepted_loss_is_named_and_what_lies_around_it_is_read(broker: ScriptedBroker) -> None:
    before, behind = batch(0, producer=(5, 0, 0)), batch(20, producer=(5, 0, 20))
    passing = Script(200, before + behind, {"Tidelog-High-Watermark": "30", "Tidelog-Lost": "10-19"})
    broker.answers = [verified(30), passing, batches(before, 30), batches(behind, 30)]
    report = audited(broker, 30)
    assert (report.records, report.error, kinds(report)) == (20, None, [("lost", 10)])


@pytest.mark.parametrize(
    ("log", "found"),
    [
        ([batch(0), batch(15)], [("gap", 10)]),
        ([batch(0), batch(5)], [("disorder", 5)]),
        ([batch(0, leader_epoch=3), batch(10, leader_epoch=2)], [("disorder", 10)]),
        ([batch(0, producer=(5, 0, 0)), batch(10, producer=(5, 0, 0))], [("duplicate", 10)]),
        ([batch(0, producer=(5, 0, 0)), batch(10, producer=(5, 0, 11))], [("gap", 10)]),
        ([batch(0, producer=(5, 1, 0)), batch(10, producer=(5, 0, 10))], [("disorder", 10)]),
        ([batch(0, producer=(5, 0, 3)), batch(10, producer=(5, 1, 1))], [("gap", 10)]),
        ([batch(0, producer=(5, 0, 3)), batch(10, producer=(5, 1, 0))], []),
        ([batch(0, producer=(5, 0, 0)), batch(10, producer=(6, 0, 90)), batch(20, producer=(5, 0, 10))], []),
        ([batch(0, producer=(5, 0, 2**31 - 4)), batch(10, producer=(5, 0, 6))], []),
        (
            [batch(0, producer=(KEYED_PRODUCER_BIT | 5, 0, 77)), batch(10, producer=(KEYED_PRODUCER_BIT | 5, 0, 77))],
            [("duplicate", 10)],
        ),
    ],
)
def test_what_a_log_can_not_see_by_itself(
    broker: ScriptedBroker, log: list[bytes], found: list[tuple[str, int]]
) -> None:
    broker.answers = [verified(100), batches(b"".join(log), 100)]
    assert kinds(audited(broker, 100)) == found


def test_gaps_are_no_anomaly_where_they_belong(broker: ScriptedBroker) -> None:
    broker.answers = [verified(100), batches(batch(0) + batch(15), 100)]
    assert kinds(audited(broker, 100, has_gaps=True)) == []


def test_what_was_damaged_is_told_although_it_was_repaired(broker: ScriptedBroker) -> None:
    broker.answers = [verified(30, (10, 20)), batches(batch(0) + batch(10) + batch(20), 30)]
    report = audited(broker, 30)
    assert [(one.start_offset, one.end_offset) for one in report.damaged] == [(10, 20)]
    assert (report.unread, report.records) == ([], 30)


def test_what_stays_damaged_is_gone_around(broker: ScriptedBroker) -> None:
    broker.always = {"/verification": verified(30, (10, 20)), "offset=10&": error(50303)}
    broker.answers = [batches(batch(0), 10, is_cut=True), batches(batch(20), 30)]
    report = audited(broker, 30)
    assert report.error is None
    assert ([one.start_offset for one in report.unread], report.records, report.anomalies) == ([10], 20, [])


def test_bytes_that_are_wrong_end_it(broker: ScriptedBroker) -> None:
    spoilt = bytearray(batch(0))
    spoilt[-1] ^= 1
    broker.answers = [verified(10), batches(bytes(spoilt), 10)]
    assert "CRC32C" in (audited(broker, 10).error or "")


def test_replicas_that_differ_are_named() -> None:
    one = OffsetRange("t", 0, 0, 20_000, "id")
    tasks = [ReplicaTask(one, broker, "", "c", has_gaps=False) for broker in (1, 2, 3)]
    windows = {0: "a", 10_000: "b"}
    reports = [ReplicaReport(1, windows=windows), ReplicaReport(2, windows={**windows, 10_000: "x"}), ReplicaReport(3)]
    reports[2].error = "gone"
    with scripted_broker() as broker:
        named = [
            [
                {"base_offset": 10_000, "next_offset": 15_000, "leader_epoch": 1, "digest": "s"},
                {"base_offset": 15_000, "next_offset": 20_000, "leader_epoch": 1, "digest": digest},
            ]
            for digest in "ab"
        ]
        broker.answers = [verified(20_000, batches=found) for found in named]
        cluster = Cluster([broker.url], timeout_s=1.0)
        report = conclude(cluster, tasks, reports, [])
        cluster.close()
    assert [str(problem) for problem in report.problems] == [
        "t-0, broker 3: not read to its end: gone",
        "t-0, broker 2: offset 15000: another record than on broker 1, in the window of 10000 from 10000 on",
    ]


RECORDS = 40


@pytest.fixture(scope="module")
def three() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, settings={"log.scrub.period.ms": "3600000"}) as cluster:
        yield cluster


def run_audit(cluster: LocalCluster, topic: str, meanwhile: Callable[[], None] = lambda: None) -> AuditReport:
    client = Cluster(cluster.bootstrap.split(","), timeout_s=10.0)
    try:
        tasks, problems = plan_audit(client, [topic])
        meanwhile()
        return conclude(client, tasks, [audit_replica(client, task) for task in tasks], problems)
    finally:
        client.close()


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("node_id", [1, 2])
def test_a_byte_that_turned_over_on_a_disk_is_named(three: LocalCluster, node_id: int) -> None:
    topic = f"rotten-{node_id}"
    values = [b"value-%04d" % number for number in range(RECORDS)]

    async def fill() -> str:
        async with AdminClient(three.bootstrap) as admin:
            created: Any = await admin.create_topic(topic, replicas_assignments={0: [1, 2, 3]})
        async with Producer(three.bootstrap) as producer:
            for value in values:
                await producer.send_and_wait(topic, value, partition=0)
        return str(created.topic_id)

    topic_id = asyncio.run(fill())
    until(lambda: run_audit(three, topic).records == 3 * RECORDS)  # followers hear a little later what is committed
    whole = run_audit(three, topic)
    assert (whole.replicas, whole.problems) == (3, ())
    path = three.broker(node_id).data_dir / "topics" / topic_id / "0" / f"{0:020}.log"

    def rot() -> None:
        at = path.read_bytes().index(values[17])
        with path.open("r+b") as file:
            file.seek(at)
            file.write(b"X")

    found = run_audit(three, topic, rot)
    (problem,) = found.problems
    assert (problem.topic, problem.partition, problem.broker, problem.offset) == (topic, 0, node_id, 17)
    assert "repaired since" in problem.what
    assert found.records == 3 * RECORDS
    assert run_audit(three, topic).problems == ()


@pytest.mark.slow
@pytest.mark.process
def test_a_broker_that_is_away_is_named(three: LocalCluster) -> None:
    async def create() -> None:
        async with AdminClient(three.bootstrap) as admin:
            await admin.create_topic("away", replicas_assignments={0: [1, 2, 3]})

    asyncio.run(create())
    with pytest.raises(InvalidRequest, match="does not exist"):
        run_audit(three, "nowhere")
    three.kill(3)
    try:
        (problem,) = run_audit(three, "away").problems
        assert (problem.broker, problem.offset) == (3, -1)
    finally:
        three.restart(3)
