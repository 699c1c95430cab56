"""Recovering a metadata log from data directories: what is taken over, what is given up, what is refused."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from tests.unit.broker.conftest import ADDRESS, Bench, batch, produce, values
from tidelog.adapters.system import SystemEntropy
from tidelog.broker.consensus.messages import PaxosFrame, QuorumDescribed
from tidelog.broker.metadata.recovery import CannotRecover, RecoveryPlan, carry_out, plan_recovery
from tidelog.broker.metadata.remains import Entry, Remains, look, restore
from tidelog.controller.records import BrokerFenced, ClusterCreated, TopicDeleted, encode_record
from tidelog.model.errors import WrongCluster
from tidelog.model.ids import NodeId
from tidelog.replication.paxos.messages import LearnResponse
from tidelog.replication.paxos.numbers import make_number
from tidelog.replication.paxos.state import NOP, Kind, Prefix, Slot, Value
from tidelog.storage.directory_identity import DirectoryIdentity, DirectoryIdentityStore
from tidelog.storage.disk_files import DiskFiles
from tidelog.storage.log_manager import LogManager
from tidelog.transport.peer import Hello

ENTROPY = SystemEntropy()
OLD, NEW = make_number(1, 1), make_number(2, 2)


def value(offset: int, number: int = OLD, digest: bytes = b"d") -> Value:
    return Value(Kind.APPEND, number, offset, 1, digest)


def chosen(offset: int) -> Entry:
    payload = encode_record(ClusterCreated("c") if offset == 0 else TopicDeleted(f"{offset:032x}"))
    return Entry(OLD, value(offset), True, payload)


def accepted(offset: int, number: int, digest: bytes = b"d") -> Entry:
    return Entry(number, value(offset, number, digest), False, encode_record(BrokerFenced(7, offset)))


def remains(name: str, tmp_path: Path, entries: dict[int, Entry]) -> Remains:
    found = Remains(name, DiskFiles(str(tmp_path / name)), None, {"c"}, int(name), f"disk-{name}")
    found.floors.append(Prefix())
    found.entries |= entries
    return found


# -- what is taken over ----------------------------------------------------------------------------------------------


def test_the_disks_complete_each_other(tmp_path: Path) -> None:
    one = remains("1", tmp_path, {0: chosen(0), 2: chosen(2)})
    two = remains("2", tmp_path, {0: chosen(0), 1: chosen(1)})
    restored = restore([one, two])
    assert restored is not None
    assert (restored.position, restored.image.position, restored.unproven) == (3, 3, ())


def test_what_was_accepted_is_taken_over_by_the_higher_number(tmp_path: Path) -> None:
    """It may have been chosen, and answered; nobody wrote that down yet."""
    one = remains("1", tmp_path, {0: chosen(0), 1: accepted(1, OLD, b"old")})
    two = remains("2", tmp_path, {0: chosen(0), 1: accepted(1, NEW, b"new")})
    restored = restore([one, two])
    assert restored is not None
    assert (restored.position, restored.unproven, restored.prefix.epoch) == (2, (1,), NEW)


def test_what_is_chosen_wins_over_a_higher_number(tmp_path: Path) -> None:
    one = remains("1", tmp_path, {0: chosen(0), 1: chosen(1)})
    two = remains("2", tmp_path, {0: chosen(0), 1: accepted(1, NEW)})
    restored = restore([two, one])
    assert restored is not None and (restored.prefix.epoch, restored.unproven) == (OLD, ())


def test_a_value_older_than_what_stands_before_it_means_nothing(tmp_path: Path) -> None:
    ghost = Entry(NEW, value(0, OLD), True, b"no record")
    barrier = Entry(NEW, Value(Kind.BARRIER, NEW), True, None)
    restored = restore([remains("1", tmp_path, {0: chosen(0), 1: barrier, 2: ghost, 3: Entry(NEW, NOP, True, None)})])
    assert restored is not None and (restored.position, restored.image.position) == (4, 1)


def test_what_lies_behind_a_gap_is_given_up(tmp_path: Path) -> None:
    restored = restore([remains("1", tmp_path, {0: chosen(0), 2: chosen(2), 3: chosen(3)})])
    assert restored is not None and (restored.position, restored.unreached) == (1, (2, 3))


# -- what is refused -------------------------------------------------------------------------------------------------


def test_different_histories_are_refused(tmp_path: Path) -> None:
    other = Entry(OLD, value(1, digest=b"other"), True, b"")
    given = [remains("1", tmp_path, {0: chosen(0), 1: chosen(1)}), remains("2", tmp_path, {0: chosen(0), 1: other})]
    with pytest.raises(CannotRecover, match="1 and 2 have different entries at position 1"):
        plan_recovery(given, ENTROPY)


def test_several_clusters_and_one_broker_twice_are_refused(tmp_path: Path) -> None:
    one, two = remains("1", tmp_path, {0: chosen(0)}), remains("2", tmp_path, {0: chosen(0)})
    two.cluster_ids = {"d"}
    with pytest.raises(CannotRecover, match="several clusters: 1 is of c; 2 is of d"):
        plan_recovery([one, two], ENTROPY)
    two.cluster_ids, two.node_id = {"c"}, 1
    with pytest.raises(CannotRecover, match="broker 1's"):
        plan_recovery([one, two], ENTROPY)
    two.node_id = 0
    with pytest.raises(CannotRecover, match="says whose it is"):
        plan_recovery([one, two], ENTROPY)


def test_recovered_apart_is_refused_as_long_as_both_logs_are_there(tmp_path: Path) -> None:
    given = [remains(name, tmp_path, {0: chosen(0)}) for name in ("1", "2")]
    for found, recovery_id in zip(given, ("aaaa", ""), strict=True):
        found.identity = DirectoryIdentity(
            cluster_id="c", node_id=found.node_id, storage="s", generation=1, recovery_id=recovery_id
        )
    with pytest.raises(
        CannotRecover, match=r"recovered apart: 1 of recovery aaaa; 2 of recovery \(no id\); choose one"
    ):
        plan_recovery(given, ENTROPY)
    given[1].floors.clear()
    with pytest.raises(CannotRecover, match="none of these directories is of a broker that the metadata know"):
        plan_recovery(given, ENTROPY)  # they have no brokers here, which is looked at next


# -- with a broker ---------------------------------------------------------------------------------------------------


def recover(path: Path) -> RecoveryPlan:
    """Recovers a cluster of one broker."""
    plan = plan_recovery([look("it", DiskFiles(str(path)))], ENTROPY)
    manager = LogManager(DiskFiles(str(path)), open_max=16, new_incarnation=lambda: "unused")
    carry_out(plan, {"it": manager}, 1_000, "me@here")
    manager.close({})
    return plan


async def test_a_broker_goes_on_after_each_recovery(bench: Bench, tmp_path: Path) -> None:
    await produce(await bench.topic(), batch(b"a"))
    cluster_id, epoch = bench.broker.cluster_id, bench.partition().leader_epoch
    for generation in (1, 2):
        await bench.broker.stop()
        assert recover(tmp_path / "data").generation == generation
        await bench.start()
        assert (bench.broker.cluster_id, bench.broker.image.generation) == (cluster_id, generation)
        last, identity = bench.broker.image.recoveries[-1], DirectoryIdentityStore(bench.files).current
        assert (last.by, len(last.recovery_id)) == ("me@here", 16)
        assert identity is not None and identity.recovery_id == last.recovery_id
        assert bench.broker._metadata.described().recovery_id == last.recovery_id
        assert bench.partition().leader_epoch > epoch
        epoch = bench.partition().leader_epoch
        assert values(bench.partition()) == [b"a"] * generation
        await produce(bench.partition(), batch(b"a"))
        await bench.topic(f"after-{generation}")


async def recovered(bench: Bench, path: Path) -> Hello:
    """Recovers the broker's directory, starts it, and returns what one that was recovered apart says."""
    await bench.broker.stop()
    recover(path)
    await bench.start()
    return Hello(2, "other", bench.broker.cluster_id, generation=1, recovery_id="apart")


async def test_a_broker_does_not_start_beside_one_that_was_recovered_apart(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = await recovered(bench, tmp_path / "data")
    bootstrap, known = bench.broker._metadata._bootstrap, bench.broker._metadata.described()
    answers = [replace(known, node_id=2), replace(known, node_id=2, recovery_id=theirs.recovery_id)]

    async def ask(_: tuple[str, int]) -> QuorumDescribed:
        return answers.pop(0)

    async def contacts() -> list[tuple[str, int]]:
        return [("h", 2)]

    monkeypatch.setattr(bootstrap, "_ask", ask)
    await bootstrap.check_cluster(("h", 1), contacts)
    with pytest.raises(WrongCluster, match="node 2 is of recovery apart, and both are of generation 1"):
        await bootstrap.check_cluster(("h", 1), contacts)


@pytest.mark.parametrize("is_starting", [True, False])
async def test_of_brokers_that_were_recovered_apart_only_a_majority_that_is_ready_goes_on(
    bench: Bench, tmp_path: Path, is_starting: bool
) -> None:
    theirs = await recovered(bench, tmp_path / "data")
    broker, image = bench.broker, bench.broker.image
    (refused,) = broker._peers.on_refused
    refused(theirs)
    assert not broker.failed.is_set(), "this one is all brokers"
    other = dataclasses.replace(image.brokers[NodeId(1)], node_id=NodeId(2), is_fenced=True)
    if is_starting:
        broker.is_ready = False
    else:
        broker._metadata.image = dataclasses.replace(image, brokers={**image.brokers, NodeId(2): other})
    for harmless in (replace(theirs, generation=0), replace(theirs, cluster_id=""), broker._introduction.hello):
        refused(harmless)
    assert not broker.failed.is_set()
    with capture_logs() as logs:
        refused(theirs)
    assert broker.failed.is_set() and "recovered twice, apart" in logs[0]["reason"] and "(40909)" in logs[0]["reason"]


async def test_a_broker_that_is_told_another_history_stops_and_says_so(bench: Bench) -> None:
    metadata = bench.broker._metadata
    node = metadata._log.engine.node
    slot = node.replica.slots[0]
    other = Slot(0, slot.number, Value(Kind.BARRIER, NEW), learned=True)
    assert slot.learned and slot.value != other.value
    told = PaxosFrame(2, node.node, LearnResponse(Prefix(), (other,), 1))
    with capture_logs() as logs:
        metadata.notified(2, told, memoryview(b""))
    assert bench.broker.failed.is_set() and "of node 2 have different histories" in logs[0]["reason"]
    assert node.replica.slots[0] == slot


async def test_a_broker_without_metadata_log_waits_and_names_the_command(bench: Bench, tmp_path: Path) -> None:
    await bench.broker.stop()
    shutil.rmtree(tmp_path / "data" / "metadata")
    broker = bench.make()
    with pytest.raises(TimeoutError):
        await start_for_a_moment(bench)
    assert "holds data of cluster" in broker.stage and "tidelog cluster recover" in broker.stage
    await broker.stop()
    with pytest.raises(CannotRecover, match="names and settings of the topics are lost"):
        recover(tmp_path / "data")


async def start_for_a_moment(bench: Bench) -> None:
    async with asyncio.timeout(1.0):
        await bench.broker.start(ADDRESS)


async def test_a_crash_in_the_midst_leaves_directories_that_can_be_given_again(bench: Bench, tmp_path: Path) -> None:
    await produce(await bench.topic(), batch(b"a"))
    await bench.broker.stop()
    before = tmp_path / "before"
    shutil.copytree(tmp_path / "data", before)
    recover(tmp_path / "data")
    for name in ("identity.0", "identity.1"):  # they are written last
        shutil.copy(before / name, tmp_path / "data" / name)
    assert recover(tmp_path / "data").restored.image.generation == 1
    await bench.start()
    assert values(bench.partition()) == [b"a"]
