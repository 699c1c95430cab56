"""Logs that are opened while their broker serves: nothing else waits for them, and nobody gets an answer too early."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.unit.broker.conftest import Bench, batch, produce, values
from tidelog.broker.broker import NewTopic
from tidelog.broker.partitions.openings import MADE_AT_ONCE, Opening
from tidelog.broker.replicas.housekeeping import Housekeeper
from tidelog.broker.routing.remote_partition import RemotePartition
from tidelog.broker.runtime import progress
from tidelog.model.errors import LeaderNotAvailable
from tidelog.storage.disk_files import DiskFiles
from tidelog.storage.metainfo import Metainfo, MetainfoStore

BOTH = pytest.mark.parametrize("protocol", ["isr", "paxos"])


class Gate:
    """Holds back openings, and nothing else, while it is shut."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self._monkeypatch = monkeypatch
        openings = bench.broker.data.replicas._logs.openings
        make, open_ = openings._make, openings._open

        async def held_make(group: Sequence[Opening]) -> OSError | None:
            await self._open.wait()
            return await make(group)

        async def held_open(group: Sequence[Opening], error: OSError | None) -> None:
            await self._open.wait()
            await open_(group, error)

        monkeypatch.setattr(openings, "_make", held_make)
        monkeypatch.setattr(openings, "_open", held_open)

    def shut(self) -> None:
        self._monkeypatch.setattr(progress, "OPENED_S_MAX", 0.05)  # nobody waits for what is held back
        self._open.clear()

    def open(self) -> None:
        self._monkeypatch.setattr(progress, "OPENED_S_MAX", 30.0)
        self._open.set()


def counted(call: Callable[[DiskFiles, str], None], counts: Counter[str], name: str) -> object:
    def count(files: DiskFiles, directory: str) -> None:
        counts[name] += directory.startswith("topics")
        call(files, directory)

    return count


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch, bench: Bench) -> Gate:
    return Gate(monkeypatch, bench)


@BOTH
async def test_the_metadata_is_in_force_and_others_are_served_while_logs_are_opened(
    bench: Bench, gate: Gate, protocol: str
) -> None:
    other = await bench.topic("other")
    gate.shut()
    await bench.broker.admin.create_topic(NewTopic("t", 20, configs={"commit.protocol": protocol}))
    assert bench.broker._reports.heartbeat_state().position == bench.broker.image.position
    await produce(other, batch(b"a"))
    assert not any(known.topic_id != other.topic_id for known in bench.broker.data.replicas.holders)
    gate.open()


@BOTH
async def test_requests_wait_for_a_log_that_is_being_opened(bench: Bench, gate: Gate, protocol: str) -> None:
    gate.shut()
    await bench.broker.admin.create_topic(NewTopic("t", 1, configs={"commit.protocol": protocol}))
    handle = bench.broker.partition("t", 0)
    assert isinstance(handle, RemotePartition)
    loop = asyncio.get_running_loop()
    with pytest.raises(LeaderNotAvailable):
        await handle.produce(batch(b"late"), acks=-1, deadline_s=loop.time() + 0.05)
    asking = asyncio.ensure_future(handle.produce(batch(b"a"), acks=-1, deadline_s=loop.time() + 30))
    await asyncio.sleep(0.01)
    assert not asking.done()
    gate.open()
    receipt = await asking
    assert receipt.batches == [(0, 0)], "what was refused is not there"


async def test_a_topic_that_is_deleted_while_its_logs_are_opened_leaves_nothing(
    bench: Bench, gate: Gate, tmp_path: Path
) -> None:
    gate.shut()
    await bench.broker.admin.create_topic(NewTopic("t", 20))
    deleting = asyncio.ensure_future(bench.broker.admin.delete_topic("t"))
    await asyncio.sleep(0.05)
    gate.open()
    await deleting
    async with asyncio.timeout(10):
        while bench.broker.image.deleted_topics or list((tmp_path / "data" / "topics").iterdir()):
            await asyncio.sleep(0.01)
    assert not bench.broker.data.replicas.holders
    assert values(await bench.topic("t")) == []


async def test_a_broker_stops_in_good_order_while_logs_are_opened(bench: Bench, gate: Gate) -> None:
    gate.shut()
    await bench.broker.admin.create_topic(NewTopic("t", 100))
    stopping = asyncio.ensure_future(bench.broker.stop())
    await asyncio.sleep(0.05)
    gate.open()
    await stopping
    assert not bench.broker.failed.is_set() and bench.files.exists("clean")
    await bench.start()
    deadline_s = asyncio.get_running_loop().time() + 30
    await bench.broker.partition("t", 99).produce(batch(b"a"), acks=-1, deadline_s=deadline_s)


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
async def test_a_log_that_cannot_be_opened_costs_its_partition(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    open_ = DiskFiles.open

    def refuse(files: DiskFiles, path: str, *, create: bool = False) -> object:
        if "/7/" in path or "/7-new/" in path:
            raise OSError(number, "no", path)
        return open_(files, path, create=create)

    monkeypatch.setattr(DiskFiles, "open", refuse)
    await bench.broker.admin.create_topic(NewTopic("t", 20))
    with pytest.raises(LeaderNotAvailable, match="t-7"):
        bench.broker.partition("t", 7)
    for partition in (0, 6, 8, 19):
        await produce(bench.partition("t", partition), batch(b"a"))
    (unfit,) = bench.broker._reports.unfit()
    assert unfit.partition == 7


async def test_a_log_that_goes_offline_is_told_of_as_long_as_it_is_open(bench: Bench) -> None:
    topic = await bench.topic("t", 3)
    assert bench.broker._reports.unfit() == ()
    bench.partition("t", 1).log.take_offline("its disk is gone")
    for _ in range(2):
        (unfit,) = bench.broker._reports.unfit()
        assert (unfit.topic_id, unfit.partition) == (topic.topic_id, 1)
    await bench.broker.admin.delete_topic("t")
    assert bench.broker._reports.unfit() == ()


async def test_a_log_with_a_damaged_header_is_served_beside_the_others(bench: Bench, tmp_path: Path) -> None:
    topic = (await bench.topic("t", 3)).topic_id
    await bench.broker.stop()
    catalog = tmp_path / "data" / "topics" / topic / "1" / f"{0:020}.catalog"
    catalog.write_bytes(b"\xff" * 128 + catalog.read_bytes()[128:])
    await bench.start()
    for partition in range(3):
        await produce(bench.partition("t", partition), batch(b"a"))


async def test_many_new_logs_share_the_fsyncs_of_their_directory(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()
    for name in ("sync_dir", "make_dirs"):
        monkeypatch.setattr(DiskFiles, name, counted(getattr(DiskFiles, name), counts, name))
    await bench.broker.admin.create_topic(NewTopic("t", 2 * MADE_AT_ONCE))
    groups = 4  # at first fewer are asked for
    assert counts["sync_dir"] <= 2 * MADE_AT_ONCE + groups, "one for each log, and one for each group"
    assert counts["make_dirs"] <= groups


async def test_what_has_not_changed_since_it_was_opened_is_not_written_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.topic("t", 20)
    written = bench.partition("t", 7)
    await produce(written, batch(b"a"))
    stored: list[str] = []
    store = MetainfoStore.store

    def observed(one: MetainfoStore, info: Metainfo) -> None:
        stored.append(info.incarnation)
        store(one, info)

    monkeypatch.setattr(MetainfoStore, "store", observed)
    broker, replicas, clock = bench.broker, bench.broker.data.replicas, bench.broker.data._resources.clock
    partitions, holders = replicas.partitions, replicas.holders
    keeper = Housekeeper(partitions, holders, broker.log_writer, broker.config, clock, lambda: None)
    for _ in range(2):
        await keeper._checkpoint()
    assert set(stored) <= {written.log.incarnation}


async def test_a_restart_serves_what_it_had(bench: Bench) -> None:
    await bench.topic("t", 50)
    await produce(bench.partition("t", 49), batch(b"a"))
    await bench.restart()
    assert values(bench.partition("t", 49)) == [b"a"]
