"""A byte turns over in every kind of file of a running broker: a round of the scrubber finds it, and it is mended."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.asking import Asked, until
from tests.e2e.clusters import PAXOS, only, running
from tidelog.admin import AdminClient
from tidelog.storage.rows import ROW_BYTES
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.timeout(180), only(PAXOS)]

SETTINGS = {"log.scrub.period.ms": "500", "metadata.log.snapshot.records": "10"}
RECORDS = 10
HARMED = 2


@pytest.fixture(scope="module")
def cluster(protocol: str) -> Iterator[LocalCluster]:
    """Has written records, and taken snapshots."""
    with running(protocol, settings=SETTINGS) as cluster:
        fill(cluster)
        yield cluster


@pytest.fixture
def unscrubbed(protocol: str) -> Iterator[LocalCluster]:
    """The same, where the scrubber finds nothing first."""
    with running(protocol, settings={**SETTINGS, "log.scrub.period.ms": "36000000"}) as cluster:
        fill(cluster)
        yield cluster


def fill(cluster: LocalCluster) -> None:
    async def create() -> None:
        async with AdminClient(cluster.bootstrap) as admin:
            await admin.create_topic("t", replicas_assignments={0: [1, 2, 3]})
            for number in range(12):
                await admin.create_topic(f"more-{number}", replicas_assignments={0: [1]})

    asyncio.run(create())
    for i in range(RECORDS):
        Asked(cluster, 1).append("t", 0, f"value-{i:04}")
    until(lambda: bool(files(cluster, "snapshots/*.header.1")))


def files(cluster: LocalCluster, pattern: str) -> list[Path]:
    return sorted(cluster.broker(HARMED).data_dir.glob(pattern))


def metric(cluster: LocalCluster, name: str) -> float:
    with urllib.request.urlopen(f"{cluster.broker(HARMED).url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))


def flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1]))


def journal(cluster: LocalCluster, suffix: str) -> Path:
    """Returns the file of the topic's partition: the one with the records."""
    found = files(cluster, f"topics/*/0/journal/*{suffix}")
    return next(path for path in found if b"value-0003" in path.with_suffix(".log").read_bytes())


def middle(path: Path) -> tuple[Path, int]:
    return path, path.stat().st_size // 2


def last(path: Path) -> tuple[Path, int]:
    return path, path.stat().st_size - 2


def in_journal(cluster: LocalCluster) -> tuple[Path, int]:
    path = journal(cluster, ".log")
    return path, path.read_bytes().index(b"-0004") - 1


KINDS: dict[str, Callable[[LocalCluster], tuple[Path, int]]] = {
    "a journal's payload": in_journal,
    "a journal's row": lambda cluster: (journal(cluster, ".catalog"), 3 * ROW_BYTES + 40),
    "a journal's metainfo": lambda cluster: (journal(cluster, ".log").parent / "metainfo.1", 30),
    "the metadata log": lambda cluster: last(files(cluster, "metadata/*.log")[-1]),
    "a row of the metadata log": lambda cluster: (files(cluster, "metadata/*.catalog")[-1], 3 * ROW_BYTES + 40),
    "metainfo beside the metadata log": lambda cluster: (files(cluster, "metadata/metainfo.0")[0], 30),
    "a log's metainfo": lambda cluster: (journal(cluster, ".log").parent.parent / "metainfo.0", 30),
    "the directory's identity": lambda cluster: (files(cluster, "identity.0")[0], 30),
    "a snapshot's header": lambda cluster: (files(cluster, "snapshots/*.header.0")[-1], 40),
    "a snapshot's block": lambda cluster: middle(files(cluster, "snapshots/*.body")[-1]),
}
WRITTEN_BEHIND = ("a journal's payload", "the metadata log")
"""The entry goes to the journal's end once more; what is damaged is passed over."""
WRITTEN_WHOLE = ("metainfo beside the metadata log", "a log's metainfo")
"""Copies of metainfo that change, each written whole now and then."""
COUNTED_S = 0.2
ROWS = ("a journal's row", "a row of the metadata log")
"""Made again, which is no repair of a batch."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_byte_that_has_turned_over_is_found_and_mended(cluster: LocalCluster, kind: str) -> None:
    path, position = KINDS[kind](cluster)
    whole = path.read_bytes()
    found, repaired = (
        metric(cluster, "tidelog_damaged_batches_total"),
        metric(cluster, "tidelog_repaired_batches_total"),
    )
    flip(path, position)
    if kind in WRITTEN_BEHIND:
        flipped = {(path, position)}

        def is_found() -> bool:
            """Flips the newest entry as well: a snapshot may have made the one before needless, which is no damage."""
            if (newest := KINDS[kind](cluster)) not in flipped:
                flipped.add(newest)
                flip(*newest)
            return metric(cluster, "tidelog_damaged_batches_total") > found

        until(is_found)
    else:
        sector = slice(position - position % 16, position - position % 16 + 16)
        harmed = path.read_bytes()[sector]  # what mends a copy of metainfo may write newer
        until(lambda: not path.exists() or path.read_bytes()[sector] != harmed or harmed == whole[sector])

    def is_repaired() -> bool:
        """Flips it again where an ordinary write came before the scrubber: that mends a copy of metainfo as well."""
        nonlocal harmed
        is_rewritten = kind in WRITTEN_WHOLE and path.read_bytes()[sector] != harmed
        if is_rewritten:
            time.sleep(COUNTED_S)  # a repair is counted right after it
        if not path.exists() or metric(cluster, "tidelog_repaired_batches_total") > repaired:
            return True
        if is_rewritten:
            flip(path, position)
            harmed = path.read_bytes()[sector]
        return False

    if kind not in ROWS:
        until(is_repaired)
    until(lambda: metric(cluster, "tidelog_damaged_ranges") == 0)
    Asked(cluster, 1).append("t", 0, "after")


def test_what_was_mended_is_there_after_a_start(cluster: LocalCluster) -> None:
    cluster.kill(HARMED)
    cluster.restart(HARMED)
    until(lambda: metric(cluster, "tidelog_load_findings_total") == 0)
    values = Asked(cluster, 1).values("t", 0)
    assert values[:RECORDS] == [f"value-{i:04}" for i in range(RECORDS)]


def verify(cluster: LocalCluster) -> tuple[int, dict[int, dict[str, Any]]]:
    """Exit status, and what was found on each broker."""
    command = [sys.executable, "-m", "tidelog", "log", "verify", "--cluster", "--json"]
    ended = subprocess.run([*command, "--bootstrap", cluster.bootstrap], capture_output=True, check=False)
    assert ended.stderr == b"", ended
    found = json.loads(ended.stdout)
    assert all(one["good_copies"] for one in found if one.get("topic_name") == "t")
    return ended.returncode, {one["broker_id"]: one for one in found if "checked" in one}


@pytest.mark.slow
def test_all_of_it_is_verified_by_command(unscrubbed: LocalCluster) -> None:
    status, found = verify(unscrubbed)
    assert status == 0 and sorted(found) == [1, 2, 3]
    names = {one["name"] for one in found[HARMED]["checked"]}
    assert {"journal t-0", "metainfo of journal t-0", "log metadata", "snapshots", "identity"} <= names
    kinds = ("a journal's payload", "a snapshot's block", "a log's metainfo", "the directory's identity")
    for path, position in [KINDS[kind](unscrubbed) for kind in kinds]:
        flip(path, position)
    status, found = verify(unscrubbed)
    damaged = {one["name"]: (one["found"], one["left"]) for one in found[HARMED]["checked"] if one["found"]}
    written_anyway = {name: (1, 0) for name in ("metainfo of log t-0", "identity") if name not in damaged}
    """The broker writes these now and then, which may have mended them before the command looked."""
    wanted = ("journal t-0", "snapshots", "metainfo of log t-0", "identity")
    assert damaged | written_anyway == dict.fromkeys(wanted, (1, 0))
    assert status == 0, "all of it is mended"
    assert not any(one["found"] for one in verify(unscrubbed)[1][HARMED]["checked"])
