from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Cli
from tidelog.storage.disk_files import DiskFiles
from tidelog.storage.log_manager import JOURNAL, SNAPSHOTS, STANDALONE_LOG
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.slot_store import SlotStore
from tidelog.storage.snapshots import SnapshotStore
from tidelog.testing import LocalCluster

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for a broker's data that outlives the broker."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def data_dir(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Path:
    """A copy of what a broker left that was stopped: topic `t` of two partitions, in the first one ten records in two
    batches."""
    if not any(kept.iterdir()):
        with LocalCluster(data_dir=kept) as cluster:
            cli = Cli(cluster.bootstrap, tmp_path, monkeypatch, capfdbinary)
            cli.succeed("topic", "create", "t", "--partitions", "2")
            for some in (range(6), range(6, 10)):
                lines = b"".join(b"key:value %d\n" % number for number in some)
                cli.succeed("produce", "t", "--partition", "0", "--key-separator", ":", stdin=lines)
    shutil.copytree(kept / "broker-1" / "data", tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Cli:
    """Commands that need no broker."""
    return Cli("", tmp_path, monkeypatch, capfdbinary)


def harm(data_dir: Path, name: str, position: int) -> Path:
    """Flips a bit in a file of partition 0."""
    (path,) = data_dir.glob(f"topics/*/0/*{name}")
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    return path


def test_what_is_whole_is_said_to_be_and_stays_as_it_was(offline: Cli, data_dir: Path) -> None:
    def digests() -> dict[Path, str]:
        return {path: sha256(path.read_bytes()).hexdigest() for path in data_dir.rglob("*") if path.is_file()}

    before = digests()
    lines = offline.succeed("log", "verify", "--data-dir", "data").decode().splitlines()
    assert lines[0].split() == ["TOPIC", "PARTITION", "START", "END", "SEGMENTS", "BYTES", "STATE"]
    assert [line.split()[:4] for line in lines[2:4]] == [["t", "0", "0", "10"], ["t", "1", "0", "0"]]
    assert "3 logs, all whole" in lines
    assert lines[-1].split() == ["1", "5", lines[-1].split()[2], "whole"]
    offline.succeed("log", "dump", "--data-dir", "data", "--records")
    assert digests() == before


def test_a_flipped_bit_in_a_batch_is_found_with_its_offsets(offline: Cli, data_dir: Path) -> None:
    harm(data_dir, ".log", 70)
    ran = offline("log", "verify", "--data-dir", "data")
    assert (ran.status, ran.err) == (1, "")
    lines = ran.out.decode().splitlines()
    assert any(line.split()[:2] == ["t", "0"] and line.endswith("DAMAGED") for line in lines)
    assert any(line.startswith("t-0: offsets 0-5 are lost: ") for line in lines)
    assert any(line.startswith("1 of 3 logs damaged") for line in lines)


def test_a_flipped_bit_in_the_catalog_is_found_and_costs_no_record(offline: Cli, data_dir: Path) -> None:
    harm(data_dir, ".catalog", 300)
    ran = offline("log", "verify", "--data-dir", "data", "--json")
    assert ran.status == 1
    (check,) = (check for check in json.loads(ran.out) if not check["is_whole"])
    assert (check["topic"], check["partition"], check["bad_rows"], check["damage"]) == ("t", 0, 1, [])
    assert (check["log_start_offset"], check["log_end_offset"]) == (0, 10)


def test_damaged_metadata_takes_the_names_and_nothing_else(offline: Cli, data_dir: Path) -> None:
    for path in (data_dir / "metadata").glob("*.log"):
        path.write_bytes(bytes(path.stat().st_size))
    ran = offline("log", "verify", "--data-dir", "data", "--json")
    assert ran.status == 1
    *checks, _ = json.loads(ran.out)
    assert [check["is_whole"] for check in checks] == [False, True, True]
    assert checks[1]["directory"] == f"topics/{checks[1]['topic']}/0"


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("topics/*/0/metainfo.1", "metainfo of log t-0"),
        ("metadata/metainfo.0", "metainfo of log metadata"),
        ("identity.1", "identity"),
    ],
)
def test_a_flipped_bit_in_metainfo_is_found(offline: Cli, data_dir: Path, pattern: str, name: str) -> None:
    (path,) = data_dir.glob(pattern)
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    ran = offline("log", "verify", "--data-dir", "data")
    assert (ran.status, ran.err) == (1, "")
    lines = ran.out.decode().splitlines()
    assert "3 logs, all whole" in lines and lines[-1] == f"{name} on broker 1: 1 damaged, 0 repaired"
    *_, files = json.loads(offline("log", "verify", "--data-dir", "data", "--json").out)
    assert (files["broker_id"], files["is_whole"]) == (1, False)
    assert [(one["name"], one["left"]) for one in files["checked"] if one["found"]] == [(name, 1)]
    assert path.read_bytes() == content


def test_damaged_chunks_and_headers_of_a_snapshot_are_counted(offline: Cli, data_dir: Path) -> None:
    store = SnapshotStore(DiskFiles(str(data_dir)), SNAPSHOTS)
    store.write(5, b"voters", bytes(10_000))
    for suffix, position in ((".body", 5_000), (".header.0", 20)):
        (path,) = (data_dir / SNAPSHOTS).glob(f"*5-0001{suffix}")
        content = bytearray(path.read_bytes())
        content[position] ^= 1
        path.write_bytes(content)
    ran = offline("log", "verify", "--data-dir", "data")
    assert ran.status == 1
    assert ran.out.decode().splitlines()[-1] == "snapshots on broker 1: 2 damaged, 0 repaired"


def test_a_torn_tail_is_no_damage(offline: Cli, data_dir: Path) -> None:
    (path,) = data_dir.glob("topics/*/0/*.catalog")
    with path.open("ab") as catalog:
        catalog.write(b"half a row")
    ran = offline("log", "verify", "--data-dir", "data")
    assert (ran.status, ran.err) == (0, "")


@pytest.mark.parametrize("is_put_again", [True, False])
def test_an_entry_that_was_rewritten_behind_is_no_damage(offline: Cli, tmp_path: Path, *, is_put_again: bool) -> None:
    """A broker mends its journal so, and what is damaged stays where it was."""
    (tmp_path / "data").mkdir()
    files = DiskFiles(str(tmp_path / "data"))

    def put(*positions: int) -> None:
        store, _ = SlotStore.open(OpenFiles(files, 16), JOURNAL, STANDALONE_LOG, new_incarnation="one", now_ms=1)
        for position in positions:
            store.put(position, 1, b"accepted", b"payload %d" % position)
            store.put(position, 1, b"learned", b"payload %d" % position)
        store.close()

    put(0, 1, 2)
    (path,) = (tmp_path / "data" / JOURNAL).glob("*.log")
    path.write_bytes(path.read_bytes().replace(b"payload 1", b"payload x"))
    if is_put_again:
        put(1)
    ran = offline("log", "verify", "--data-dir", "data", "--json")
    check, _ = json.loads(ran.out)
    lost = [{"start": 2, "end": 3, "reason": "batch does not match its catalog row", "epoch": 1}]
    assert check["rewritten" if is_put_again else "damage"] == lost
    assert (check["is_whole"], ran.status) == (is_put_again, 0 if is_put_again else 1)
    said = offline("log", "verify", "--data-dir", "data").out.decode()
    assert ("rewritten behind; nothing is lost" in said) == is_put_again and ("are lost:" in said) != is_put_again


def test_dump_shows_batches_and_their_records(offline: Cli, data_dir: Path) -> None:
    dump = ("log", "dump", "--data-dir", "data", "--topic", "t", "--partition", "0")
    printed = offline.succeed(*dump, "--records").decode().splitlines()
    assert printed[0].startswith("t-0 in topics/")
    assert sum(" BATCH " in line for line in printed) == 2
    assert json.loads(printed[2])["value"] == "value 0"
    objects = [json.loads(line) for line in offline.succeed(*dump, "--records", "--json").splitlines()]
    assert [(shown["base_offset"], shown["last_offset"], len(shown["records"])) for shown in objects] == [
        (0, 5, 6),
        (6, 9, 4),
    ]
    rows = [json.loads(line) for line in offline.succeed(*dump, "--rows", "--json").splitlines()]
    assert [row["kind"] for row in rows].count("BATCH") == 2


def test_dump_of_a_directory(offline: Cli, data_dir: Path) -> None:
    (directory,) = data_dir.glob("topics/*/0")
    assert b" BATCH base_offset=6 " in offline.succeed("log", "dump", str(directory))
    assert b"TopicCreated" in offline.succeed("log", "dump", "data/metadata", "--records")


def test_dump_shows_what_is_lost(offline: Cli, data_dir: Path) -> None:
    harm(data_dir, ".log", 70)
    objects = [
        json.loads(line)
        for line in offline.succeed("log", "dump", "--data-dir", "data", "--topic", "t", "--json").splitlines()
    ]
    assert [(shown["kind"], shown.get("start", shown.get("base_offset"))) for shown in objects] == [
        ("DAMAGE", 0),
        ("BATCH", 6),
    ]


@pytest.mark.parametrize("command", [("verify",), ("dump",)])
def test_a_broker_that_runs_is_named(offline: Cli, cluster: LocalCluster, command: tuple[str, ...]) -> None:
    broker = cluster.broker()
    (error,) = offline.fail("log", *command, "--data-dir", str(broker.data_dir))
    assert error.endswith(f"is in use by process {broker.pid}; stop that broker first")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["verify", "--data-dir", "none"], "none is no directory"),
        (["verify", "--data-dir", "."], "holds no logs"),
        (["dump", "data"], "data is not the directory of a log"),
        (["dump", "/"], "/ is not the directory of a log"),
        (["dump", "--data-dir", "data", "--topic", "u"], "no log is of that topic"),
    ],
)
@pytest.mark.usefixtures("data_dir")
def test_what_is_no_data_is_said_to_be_none(offline: Cli, words: list[str], said: str) -> None:
    assert said in offline.fail("log", *words)[0]
