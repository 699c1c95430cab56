"""What `tidelog log read`, `dump` and `verify` make of journals: of a replica by itself, and of a partition's."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.integration.cli.conftest import Cli
from tidelog.adapters.disk_threads import DiskThreads
from tidelog.admin import AdminClient
from tidelog.producer import Producer
from tidelog.replication.election_settings import ElectionSettings
from tidelog.replication.paxos.state import Prefix
from tidelog.standalone.process import initialise_directory, make_replica
from tidelog.storage.disk_files import DiskFiles
from tidelog.storage.log_manager import JOURNAL, STANDALONE_LOG
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.slot_store import SlotStore
from tidelog.testing import LocalCluster

TEXTS = [f"entry {number}" for number in range(5)]
FAST = ElectionSettings(heartbeat_ms=20, lease_ms=100, timeout_ms=200)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a log's only replica, stopped, with `TEXTS` and a last entry that is no text."""
    path = tmp_path_factory.mktemp("kept") / "r1"
    initialise_directory(str(path))

    async def write() -> None:
        disk = DiskThreads()
        replica = make_replica(1, str(path), disk, FAST)
        await replica.start([await replica.listen(("127.0.0.1", 0))])
        await replica.leads.wait()
        for content in (*map(str.encode, TEXTS), b"\xff\xfe"):
            await replica.append(content)
        await replica.close()
        disk.close()

    asyncio.run(write())
    return path


@pytest.fixture
def r1(kept: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(kept, tmp_path / "r1"))


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Cli:
    """Commands that need no broker; they run in `tmp_path`."""
    return Cli("", tmp_path, monkeypatch, capfdbinary)


def shown(out: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def values(out: bytes) -> list[Any]:
    """Returns what the appended entries hold."""
    appended = (one for one in shown(out) if one["kind"] == "append" and one["is_readable"])
    return [one["content"][0].get("value") for one in appended]


def first_append(out: bytes) -> int:
    return int(next(one["position"] for one in shown(out) if one["kind"] == "append"))


@pytest.mark.usefixtures("r1")
def test_all_that_is_chosen_in_order(offline: Cli) -> None:
    out = offline.succeed("log", "read", "--path", "r1", "--json")
    assert [one["position"] for one in shown(out)] == list(range(len(shown(out))))
    assert values(out) == [*TEXTS, None] and shown(out)[-1]["content"] == [{"value_base64": "//4="}]
    kinds = {one["kind"] for one in shown(out)}
    assert kinds == {"barrier", "voters", "append"} and not any(one["is_void"] for one in shown(out))
    assert b' append   {"value": "entry 0"}\n' in offline.succeed("log", "read", "--path", "r1")


@pytest.mark.usefixtures("r1")
def test_a_part_of_it(offline: Cli) -> None:
    first = first_append(offline.succeed("log", "read", "--path", "r1", "--json"))
    words = ("--from", str(first + 1), "--to", str(first + 2), "--json")
    assert values(offline.succeed("log", "read", "--path", "r1", *words)) == TEXTS[1:3]


@pytest.mark.usefixtures("r1")
def test_what_is_beyond_the_end_is_said_to_be(offline: Cli) -> None:
    end = len(shown(offline.succeed("log", "read", "--path", "r1", "--json")))
    ran = offline("log", "read", "--path", "r1", "--from", str(end - 1), "--to", str(end + 9), "--json")
    assert ran.status == 1 and len(shown(ran.out)) == 1
    assert ran.err == f"error: positions {end} to {end + 9} are not known to be chosen: the log ends at {end}\n"


def test_what_is_truncated_is_said_to_be(offline: Cli, r1: Path) -> None:
    first = first_append(offline.succeed("log", "read", "--path", "r1", "--json"))
    floor = first + 2
    store, _ = SlotStore.open(OpenFiles(DiskFiles(str(r1)), 8), JOURNAL, STANDALONE_LOG, new_incarnation="", now_ms=0)
    store.set_floor(floor, msgspec.msgpack.encode(Prefix(floor, 0, 2)))
    store.close()
    ran = offline("log", "read", "--path", "r1", "--from", str(first), "--to", str(floor), "--json")
    assert (ran.status, values(ran.out)) == (1, [TEXTS[2]])
    assert ran.err == f"error: positions {first} to {floor - 1} are truncated: the log begins at {floor}\n"
    assert values(offline.succeed("log", "read", "--path", "r1", "--json")) == [*TEXTS[2:], None]


def harm(directory: Path, content: bytes) -> None:
    """Flips a bit of this content, in the journal."""
    (path,) = directory.glob("journal/*.log")
    data = bytearray(path.read_bytes())
    data[data.index(content)] ^= 1
    path.write_bytes(data)


def test_a_damaged_entry_costs_itself(offline: Cli, r1: Path) -> None:
    first = first_append(offline.succeed("log", "read", "--path", "r1", "--json"))
    harm(r1, b"entry 1")
    ran = offline("log", "read", "--path", "r1", "--json")
    assert (ran.status, values(ran.out)) == (1, [TEXTS[0], *TEXTS[2:], None])
    assert ran.err == f"error: 1 entry cannot be read, at {first + 1}\n"
    ran = offline("log", "verify", "--data-dir", "r1")
    assert ran.status == 1 and b"journal:(log)-0: entries " in ran.out


@pytest.mark.usefixtures("r1")
def test_dump_shows_positions_numbers_and_what_is_known_of_them(offline: Cli) -> None:
    dumped = shown(offline.succeed("log", "dump", "r1", "--records", "--json"))
    appends = [one for one in dumped if one["kind"] == "SLOT" and one["value"] == "append"]
    assert [one["records"][0].get("value") for one in appends] == [*TEXTS, None]
    assert {one["state"] for one in appends} == {"accepted"} and all(one["number"] == one["birth"] for one in appends)
    learned = [one["position"] for one in dumped if one["kind"] == "REFERENCE" and one["state"] == "learned"]
    assert learned[-len(appends) :] == [one["position"] for one in appends]
    (voters,) = [one["records"][0]["voters"] for one in dumped if one.get("records") and one["value"] == "voters"]
    assert [(voter["voter_id"], voter["node_id"]) for voter in voters] == [(1, 1)]


def test_a_journal_that_lost_its_metainfo_must_not_vote(offline: Cli, r1: Path) -> None:
    assert b"all whole" in offline.succeed("log", "verify", "--data-dir", "r1")
    for copy in r1.glob("journal/metainfo.*"):
        copy.unlink()
    ran = offline("log", "verify", "--data-dir", "r1")
    assert ran.status == 1 and b"its replica must not vote any more: both metainfo copies are lost" in ran.out
    ran = offline("log", "read", "--path", "r1", "--json")
    assert ran.status == 1 and "this replica has lost entries" in ran.err


@pytest.mark.parametrize(
    ("words", "said", "status"),
    [
        ((), "say either --path", 2),
        (("--path", "r1", "--servers", "a:1"), "say either --path", 2),
        (("--path", "r1", "--from", "3", "--to", "2"), "--to 2 is before --from 3", 2),
        (("--path", "none"), "none is not the directory of a log", 1),
        (("--servers", "127.0.0.1:1"), "no server answers that knows a log", 1),
    ],
)
@pytest.mark.usefixtures("r1")
def test_what_cannot_be_read_is_refused(offline: Cli, words: tuple[str, ...], said: str, status: int) -> None:
    (error,) = offline.fail("log", "read", *words, status=status)
    assert said in error


# -- a partition's journal ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a broker left that was stopped: topic `p`, of one partition, that commits by majority; ten records."""
    kept = tmp_path_factory.mktemp("cluster")

    async def write(bootstrap: str) -> None:
        async with AdminClient(bootstrap) as admin, Producer(bootstrap) as producer:
            await admin.create_topic("p", partitions=1, configs={"commit.protocol": "paxos"})
            for number in range(10):
                await producer.send("p", b"value %d" % number)

    with LocalCluster(data_dir=kept) as cluster:
        asyncio.run(write(cluster.bootstrap))
    return kept / "broker-1" / "data"


@pytest.mark.process
def test_a_partition_s_log_and_its_journal(offline: Cli, data: Path) -> None:
    lines = offline.succeed("log", "verify", "--data-dir", str(data)).decode().splitlines()
    named = [line.split()[:2] for line in lines[2:4]]
    assert named == [["p", "0"], ["journal:p", "0"]] and "3 logs, all whole" in lines
    assert lines[-1].endswith("whole")
    (directory,) = data.glob("topics/*/0")
    dumped = shown(offline.succeed("log", "dump", str(directory), "--records", "--json"))
    in_log = [record["value"] for one in dumped if one["kind"] == "BATCH" for record in one["records"]]
    journal = [one for one in dumped if one["is_journal"]]
    accepted = [one for one in journal if one["kind"] == "SLOT" and one["value"] == "append"]
    in_journal = [record["value"] for one in accepted for record in one["records"]]
    assert in_log == in_journal == [f"value {number}" for number in range(10)]
    assert all(one["state"] in ("accepted", "learned") and one["number"] > 0 for one in accepted)


@pytest.mark.process
def test_a_partition_s_chosen_entries(offline: Cli, data: Path) -> None:
    (directory,) = data.glob("topics/*/0")
    found = shown(offline.succeed("log", "read", "--path", str(directory), "--json"))
    records = [record["value"] for one in found if one["kind"] == "append" for record in one["content"]]
    assert records == [f"value {number}" for number in range(10)]
    metadata = shown(offline.succeed("log", "read", "--path", str(data / "metadata"), "--json"))
    assert any("TopicCreated" in str(one.get("content")) for one in metadata)
