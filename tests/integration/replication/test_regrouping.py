"""Three whole brokers, and a partition that nobody can lead any more: an operator has it go on from what is left.

What those who are left hold stays; what is given up stays given up, also when its disk comes back; and all replicas are
the same in the end.
"""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.integration.replication.test_lost_logs import FAST, create, lose, write
from tests.integration.replication.three_brokers import NODES, ThreeBrokers, three_brokers, until
from tidelog.broker.broker import NewTopic
from tidelog.broker.repair.remains_report import RemainsReport
from tidelog.controller.partition_commands import NewReplicas, RegroupPartition
from tidelog.model.cluster import COMMIT_PROTOCOL, ISR, NO_LEADER, PAXOS, PartitionInfo
from tidelog.model.errors import DamagedBatch, LossRefused
from tidelog.model.ids import PartitionId
from tidelog.sim.kit import rot
from tidelog.sim.kit.loop import run
from tidelog.sim.sweep.copies import STRANGER, find_copies
from tidelog.storage.log_manager import JOURNAL, log_directory


def lose_journal(cluster: ThreeBrokers, node: int, partition_id: PartitionId) -> None:
    """The journal is gone when the broker starts again, and the log beside it is not."""
    cluster.disks[node].remove_tree(f"{log_directory(partition_id)}/journal")
    cluster.disks[node].sync_dir(log_directory(partition_id))


async def judged(cluster: ThreeBrokers, *even_though: int, via: int | None = None) -> tuple[RemainsReport, int]:
    """Returns what a broker finds to be left, and the partition epoch at which it asked."""
    broker = cluster.brokers[via or next(iter(cluster.brokers))]
    topic = broker.topic("t")
    info = topic.partitions[0]
    report = await broker.data.remains_finder.find(topic, info, even_though)
    return report, info.partition_epoch


def command_of(cluster: ThreeBrokers, report: RemainsReport, epoch: int) -> RegroupPartition:
    """Returns what the first broker sends to the controller."""
    via, broker = next(iter(cluster.brokers.items()))
    topic_id = broker.topic("t").topic_id
    what = (report.kept, report.end, report.source, report.statements)
    return RegroupPartition(topic_id, 0, epoch, *what, "op", via, 7, report.position, report.birth)


async def give_up(cluster: ThreeBrokers, *even_though: int) -> RemainsReport:
    """Does as `accept-loss --votes --execute`, as soon as it is not refused."""
    async with asyncio.timeout(20):
        while (found := await judged(cluster, *even_though))[0].refusals:
            await asyncio.sleep(0.1)
    broker = next(iter(cluster.brokers.values()))
    await broker.admin.regroup(command_of(cluster, *found))
    return found[0]


async def all_show(cluster: ThreeBrokers, values: list[bytes]) -> None:
    for node in cluster.brokers:
        await cluster.until_shown(node, values)


def voting(info: PartitionInfo) -> list[int]:
    """The nodes that vote as the metadata wants them to."""
    return sorted(member.node_id for member in info.members if member in info.wanted)


async def any_two_go_on(cluster: ThreeBrokers, values: list[bytes]) -> None:
    """Each one fails once, and the others go on: all of them vote, and each knows all that there is."""
    await until(lambda: voting(cluster.info()) == [1, 2, 3] and sorted(cluster.info().isr) == [1, 2, 3])
    for node in NODES:
        await cluster.stop(node)
        values.append(b"without %d" % node)
        await cluster.produce(node % 3 + 1, values[-1])
        await cluster.start(node)
        await all_show(cluster, values)
        await until(lambda: sorted(cluster.info().isr) == [1, 2, 3])


@pytest.mark.parametrize("lost", [(1, 2), (2, 3), (1, 2, 3)])
def test_logs_without_a_majority_of_their_journals_go_on(lost: tuple[int, ...]) -> None:
    async def story() -> None:
        async with three_brokers(**FAST) as cluster:
            partition_id = await create(cluster, PAXOS)
            values = await write(cluster, 6)
            await all_show(cluster, values)
            refused, _ = await judged(cluster)
            assert "leads this partition" in refused.refusals[0]
            await cluster.stop(3, 2, 1)
            for node in lost:
                lose_journal(cluster, node, partition_id)
            await cluster.start(*NODES)
            await cluster.settle()
            report = await give_up(cluster)
            assert (report.kept, report.end) == (NODES, 6)
            assert [one.node_id for one in report.statements if one.status.startswith("no vote")] == list(lost)
            await all_show(cluster, values)
            values.append(b"after")
            await cluster.produce(1, b"after")
            await all_show(cluster, values)
            again, _ = await judged(cluster)
            assert again.refusals and again.before is not None
            assert (again.before.end, again.before.by) == (6, "op")
            await any_two_go_on(cluster, values)

    run(story)


def test_the_longest_log_counts_where_no_journal_knows_as_much() -> None:
    """Brokers 1 and 2 have acknowledged what 3 has never heard of; 1 is gone, and 2 has only its log."""

    async def story() -> None:
        async with three_brokers(**FAST) as cluster:
            partition_id = await create(cluster, PAXOS)
            values = await write(cluster, 6)
            await all_show(cluster, values)
            await cluster.stop(3)
            for value in (b"x", b"y"):
                values.append(value)
                await cluster.produce(1, value)
            await cluster.until_shown(2, values)
            await cluster.stop(2, 1)
            lose_journal(cluster, 2, partition_id)
            await cluster.start(2, 3)
            await cluster.settle()
            refused, _ = await judged(cluster)
            assert "--even-though 1" in refused.refusals[0]
            report = await give_up(cluster, 1)
            assert (report.kept, report.source, report.end) == ((2, 3), 2, 8)
            await all_show(cluster, values)
            values.append(b"after")
            await cluster.produce(3, b"after")
            await cluster.start(1)
            await all_show(cluster, values)
            await any_two_go_on(cluster, values)

    run(story)


def test_what_was_given_up_with_a_voter_stays_given_up() -> None:
    """Brokers 1 and 2 have acknowledged what 3 has never heard of; the replica of 2 is gone, and 1 is down. It comes
    back whole, votes for nothing under its old id, and goes by what the others have decided since."""

    async def story() -> None:
        async with three_brokers(**FAST) as cluster:
            partition_id = await create(cluster, PAXOS)
            values = await write(cluster, 6)
            await all_show(cluster, values)
            await cluster.stop(3)
            for value in (b"x", b"y"):
                await cluster.produce(1, value)
            await cluster.stop(2, 1)
            lose(cluster, 2, partition_id)
            await cluster.start(2, 3)
            await cluster.settle()
            report = await give_up(cluster, 1)
            assert (report.kept, report.end) == ((2, 3), 6)
            for value in (b"1", b"2", b"3"):
                values.append(value)
                await cluster.produce(3, value)
            await cluster.start(1)
            await all_show(cluster, values)
            await any_two_go_on(cluster, values)

    run(story)


def spoil(cluster: ThreeBrokers, node: int, partition_id: PartitionId, value: bytes) -> None:
    """The journal's entry of this value rots. Its name stands in the catalog beside it."""
    directory = f"{log_directory(partition_id)}/{JOURNAL}"
    found = find_copies(node, files_in(cluster, node, directory), directory, [value], JOURNAL)
    (entry,) = [copy for copy in found if copy.entry != STRANGER]
    rot.overwrite(cluster.disks[node].medium, entry.path, entry.position, bytes(entry.size))


def files_in(cluster: ThreeBrokers, node: int, directory: str) -> dict[str, bytes]:
    """The files in this directory, by their paths."""
    walked = cluster.disks[node].medium.walk()
    return {path: bytes(known.data) for path, known in walked.items() if path.rpartition("/")[0] == directory}


def waiting(cluster: ThreeBrokers) -> list[tuple[tuple[str, int], int, int, set[int]]]:
    """Returns what the metrics of the leader, by the metadata, tell of partitions that wait."""
    broker = cluster.brokers.get(cluster.info().leader)
    known = {} if broker is None else broker.data.waiting()
    return [(key, wait.damaged_ranges, wait.without_copy, set(wait.awaited)) for key, wait in known.items()]


def put_back(cluster: ThreeBrokers, node: int, files: dict[str, bytes]) -> None:
    """These files are as they were."""
    for path, content in files.items():
        rot.truncate(cluster.disks[node].medium, path, len(content))
        rot.overwrite(cluster.disks[node].medium, path, 0, content)


def test_an_election_that_waits_for_what_a_lost_voter_may_have_had_can_be_ended() -> None:
    """Brokers 1 and 3 have chosen a value. Now 1 has only its name, 2 never heard of it, and 3 is gone: two of three
    votes are there, and elect nobody."""

    async def story() -> None:
        async with three_brokers(**FAST) as cluster:
            partition_id = await create(cluster, PAXOS)
            values = await write(cluster, 6)
            await all_show(cluster, values)
            await cluster.stop(2)
            directory = log_directory(partition_id)
            log = files_in(cluster, 1, directory)
            await cluster.produce(1, b"chosen")
            journal = files_in(cluster, 1, f"{directory}/{JOURNAL}")
            await cluster.stop(3, 1)
            put_back(cluster, 1, log | journal)  # as a process leaves them that dies at the acknowledgement
            spoil(cluster, 1, partition_id, b"chosen")
            await cluster.start(1, 2)
            await cluster.settle()
            refused, _ = await judged(cluster)
            assert len(refused.refusals) == 1 and "--even-though 3" in refused.refusals[0], refused.refusals
            await until(lambda: waiting(cluster) == [(("t", 0), 1, 1, {3})])
            report = await give_up(cluster, 3)
            assert report.kept == (1, 2)
            await until(lambda: waiting(cluster) != [(("t", 0), 1, 1, {3})])
            assert await cluster.offset(2, b"after") == 7, "what may be chosen keeps its offset"
            await cluster.start(3)
            await until(lambda: sorted(cluster.info().isr) == [1, 2, 3])
            for node in NODES:
                with pytest.raises(DamagedBatch, match="offsets 6 to 6 of partition t-0"):
                    await cluster.values(node)
            assert await cluster.offset(3, b"more") == 8

    run(story)


def test_a_command_that_comes_twice_and_two_commands_at_once() -> None:
    async def story() -> None:
        async with three_brokers(**FAST) as cluster:
            partition_id = await create(cluster, PAXOS)
            values = await write(cluster, 3)
            await all_show(cluster, values)
            await cluster.stop(3, 2, 1)
            for node in NODES:
                lose_journal(cluster, node, partition_id)
            await cluster.start(*NODES)
            await cluster.settle()
            report, epoch = await judged(cluster)
            assert not report.refusals
            first = command_of(cluster, report, epoch)
            second = msgspec.structs.replace(first, via=3, at_ms=8)
            await cluster.brokers[1].admin.regroup(first)
            await cluster.brokers[1].admin.regroup(first)
            with pytest.raises(LossRefused, match="has changed"):
                await cluster.brokers[3].admin.regroup(second)
            assert len(cluster.info().regroupings) == 1
            values.append(b"after")
            await cluster.produce(1, b"after")
            await all_show(cluster, values)

    run(story)


def test_in_sync_replicas_that_are_gone_are_given_up() -> None:
    """Broker 1 has acknowledged alone; 2 has not what it has, and leads only by an operator's word."""

    async def story() -> None:
        async with three_brokers(min_insync_replicas=1, **FAST) as cluster:
            topic = NewTopic("t", assignments={0: (1, 2)}, configs={COMMIT_PROTOCOL: ISR})
            await cluster.brokers[1].admin.create_topic(topic)
            values = await write(cluster, 4)
            await cluster.until_shown(2, values)
            await cluster.stop(2)
            await until(lambda: cluster.info().isr == (1,))
            await cluster.produce(1, b"lost")
            await cluster.stop(1)
            await cluster.start(2)
            await until(lambda: cluster.info().leader == NO_LEADER)
            await cluster.settle()
            refused, _ = await judged(cluster)
            assert "--even-though 1" in refused.refusals[0]
            report = await give_up(cluster, 1)
            assert (report.kept, report.source, report.end) == ((2,), 2, 4)
            values.append(b"after")
            await cluster.produce(2, b"after")
            again, _ = await judged(cluster, 1)
            assert "leads this partition" in again.refusals[0] and again.before is not None
            await cluster.start(1)
            for node in (1, 2):
                await cluster.until_shown(node, values)
            assert [one.end for one in cluster.info().regroupings] == [4]

    run(story)


def test_votes_are_given_up_while_a_replica_moves() -> None:
    """The move from 1 to 3 has begun when the journals of 1 and 2 are lost: it is completed behind that."""

    async def story() -> None:
        async with three_brokers(**FAST) as cluster:
            topic = NewTopic("t", assignments={0: (1, 2)}, configs={COMMIT_PROTOCOL: PAXOS})
            placed = await cluster.brokers[1].admin.create_topic(topic)
            partition_id = PartitionId(placed.topic_id, 0)
            values = await write(cluster, 5)
            await cluster.until_shown(2, values)
            await cluster.stop(2, 1)
            for node in (1, 2):
                lose_journal(cluster, node, partition_id)
            await cluster.start(1, 2)
            await cluster.brokers[1].admin.alter_reassignments([NewReplicas(partition_id.topic_id, 0, [2, 3])])
            await until(lambda: cluster.info().is_moving)
            await cluster.settle()
            report = await give_up(cluster)
            assert sorted(report.kept) == [1, 2, 3]
            values.append(b"after")
            await cluster.produce(2, b"after")
            await until(lambda: not cluster.info().is_moving and sorted(cluster.info().replicas) == [2, 3])
            for node in (2, 3):
                await cluster.until_shown(node, values)
            await cluster.produce(3, b"more")

    run(story)


def test_the_controller_is_lost_between_the_decision_and_its_answer() -> None:
    """The command is asked again of the next controller, finds its own record, and nothing is done twice."""

    async def story() -> None:
        async with three_brokers(**FAST) as cluster:
            partition_id = await create(cluster, PAXOS)
            values = await write(cluster, 3)
            await all_show(cluster, values)
            await cluster.stop(3, 2, 1)
            for node in NODES:
                lose_journal(cluster, node, partition_id)
            await cluster.start(*NODES)
            await cluster.settle()
            controller = next(node for node, one in cluster.brokers.items() if one.is_controller)
            asked = next(node for node in NODES if node != controller)
            found = await judged(cluster, via=asked)
            command = msgspec.structs.replace(command_of(cluster, *found), via=asked)
            asking = asyncio.create_task(cluster.brokers[asked].admin.regroup(command))
            other = next(node for node in NODES if node not in (controller, asked))
            await until(lambda: len(cluster.brokers[other].image.topics["t"].partitions[0].regroupings) == 1)
            cluster.cut_off(controller)
            await asking
            await cluster.settle()
            cluster.network.heal()
            values.append(b"after")
            await cluster.produce(asked, b"after")
            await all_show(cluster, values)
            await cluster.brokers[asked].admin.regroup(command)
            assert len(cluster.info().regroupings) == 1

    run(story)
