"""Damages what says which entries there are: rows, metainfo, snapshots, identities, on one broker, on two, on all.

    python -m tests.e2e.sweep.identities          # a table: what was damaged, what the cluster did, how long it took

All brokers are killed when idle, the disks are damaged, and all are started. Everything must be there again, and take
writes, or the brokers must say what to do. Then the disks are put back, and the next damage follows.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from tests.e2e.asking import Asked, ask
from tests.e2e.sweep.cases import NODES
from tests.e2e.sweep.reading import AFTER
from tidelog.model.ids import PartitionId, TopicId
from tidelog.storage.log_manager import JOURNAL, METADATA_LOG
from tidelog.storage.rows import ROW_BYTES, Kind, RowCodec
from tidelog.testing import LocalCluster

RECORDS: Final = 6
ISR, PAXOS = "isr", "paxos"
SETTINGS: Final = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "metadata.log.snapshot.records": "30",
    "log.scrub.period.ms": "3600000",
}
FILLERS: Final = 40
"""Topics of one partition, so that there are snapshots."""
IDLE_S: Final = 2.0
READY_S_MAX: Final = 60.0
TOLD_S: Final = 15.0
ASK_S_MAX: Final = 10.0
SAYS: Final = "tidelog cluster recover"
HEALED, TOLD = "healed", "not ready, and says: tidelog cluster recover"
WAITS: Final = "paxos takes no record"
"""Most journals of a partition cannot say what they promised: nobody but an operator can let it go on."""

Damage = Callable[[Path, str], None]
"""Damages a data directory; the second argument is the id of the topic that is meant."""


class Identity(NamedTuple):
    """A row of the table. `topic` is the protocol of the topic that is hit; empty: none."""

    what: str
    topic: str
    damage: Damage
    most: int = 3
    """The case is tried on up to so many brokers."""
    heals: int = 3
    """The cluster has to heal by itself on up to so many."""
    otherwise: str = TOLD
    """The outcome that has to be seen where more of them are hit."""


# -- damage ------------------------------------------------------------------------------------------------------------


def spoil_byte(path: Path, position: int) -> None:
    """Changes a byte. A file that was damaged before, and lies there still, does not get its old content back."""
    content = bytearray(path.read_bytes())
    content[position] = (content[position] + 1) % 256
    path.write_bytes(content)


def entry_and_row(directory: Path, identity: PartitionId) -> None:
    """Damages a batch in the middle of a log, and the row that says what belongs there."""
    path = max(directory.glob("*.log"))
    catalog = path.with_suffix(".catalog")
    rows = enumerate(RowCodec(identity).bodies(catalog.read_bytes()))
    found = [(slot, row) for slot, row in rows if row is not None and row.kind == Kind.BATCH]
    slot, row = found[len(found) // 2]
    spoil_byte(path, row.file_position + row.length - 1)
    spoil_byte(catalog, slot * ROW_BYTES + 30)


def of_log(below: str = "") -> Damage:
    """Returns what damages the log, or the journal, of the topic's partition."""
    return lambda data, topic: entry_and_row(data / "topics" / topic / "0" / below, PartitionId(TopicId(topic), 0))


def of_metadata(data: Path, _: str) -> None:
    entry_and_row(newest(data), METADATA_LOG)


def newest(data: Path) -> Path:
    """Returns the directory of the metadata log: a disk that forgot has several."""
    return max(data.glob("metadata*"), key=lambda path: path.stat().st_mtime_ns)


def spoil(pattern: str, *, below: str = "") -> Damage:
    """Returns what damages all files that match, in the middle of what is written there."""

    def damage(data: Path, topic: str) -> None:
        root = newest(data) if below == "metadata" else data / below.format(topic=topic)
        paths = sorted(root.glob(pattern))
        assert paths, (root, pattern)
        for path in paths:
            spoil_byte(path, min(60, path.stat().st_size // 2))

    return damage


def remove_metadata(data: Path, _: str) -> None:
    for path in data.glob("metadata*"):
        shutil.rmtree(path)


LOG, OF_JOURNAL = "topics/{topic}/0", "topics/{topic}/0/journal"
IDENTITIES: Final = (
    Identity("a batch and its row, log of ISR", ISR, of_log(), most=2),
    Identity("a batch and its row, log of Paxos", PAXOS, of_log(), most=2),
    Identity("an entry and its row, journal of Paxos", PAXOS, of_log(JOURNAL), most=2, heals=1, otherwise=WAITS),
    Identity("an entry and its row, metadata log", "", of_metadata, most=2, heals=1),
    Identity("metainfo of a log of ISR, one copy", ISR, spoil("metainfo.0", below=LOG)),
    Identity("metainfo of a log of ISR, both", ISR, spoil("metainfo.*", below=LOG)),
    Identity("metainfo of a journal, one copy", PAXOS, spoil("metainfo.0", below=OF_JOURNAL)),
    Identity("metainfo of a journal, both", PAXOS, spoil("metainfo.*", below=OF_JOURNAL), heals=1, otherwise=WAITS),
    Identity("metainfo of the metadata log, one copy", "", spoil("metainfo.0", below="metadata")),
    Identity("metainfo of the metadata log, both", "", spoil("metainfo.*", below="metadata"), heals=1),
    Identity("snapshots, a block of each", "", spoil("*.body", below="snapshots"), heals=2),
    Identity("snapshots, one header of each", "", spoil("*.header.0", below="snapshots")),
    Identity("snapshots, both headers of each", "", spoil("*.header.*", below="snapshots"), heals=2),
    Identity("snapshots, all of each", "", spoil("*", below="snapshots"), heals=2),
    Identity("identity of the directory, one copy", "", spoil("identity.0")),
    Identity("identity of the directory, both", "", spoil("identity.*")),
    Identity("metadata/ removed", "", remove_metadata, heals=1),
)


# -- the cluster -------------------------------------------------------------------------------------------------------


class Watch:
    """A cluster with a topic of each protocol, before and after."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.values: dict[str, list[str]] = {ISR: [], PAXOS: []}
        self.topic_ids = {"": ""}

    def fill(self) -> None:
        """Creates topics, and writes records, a batch each."""
        asked = Asked(self.cluster, 1)
        for number in range(FILLERS):
            assert asked.create(f"filler-{number}", replicas=3).status == 201
        for topic in self.values:
            configs = [{"name": "commit.protocol", "value": topic}]
            wanted = {"topic_name": topic, "partitions_count": 1, "replication_factor": 3, "configs": configs}
            assert ask(f"{asked.v3}/topics", wanted).status == 201
            (described,) = ask(f"{asked.url}/metadata?topics={topic}").body["topics"]
            self.topic_ids[topic] = described["topic_id"]
            for number in range(RECORDS):
                assert self.write(topic, f"{topic} {number}")
                self.values[topic].append(f"{topic} {number}")

    def write(self, topic: str, value: str) -> bool:
        """Returns whether a record was acknowledged."""
        return Asked(self.cluster, 1).produce(topic, 0, value, wait_s=ASK_S_MAX).status == 200

    def voters(self) -> dict[int, int]:
        return Asked(self.cluster, 1).voters

    def wrong(self) -> str:
        """Returns what is not as it was; empty if all is."""
        for node in NODES:
            said = self._readiness(node)
            if said:
                return said
        for topic, values in self.values.items():
            for node in NODES:
                url = f"{self.cluster.broker(node).url}/topics/{topic}/partitions/0/records?offset=0&replica=local"
                answer = ask(url, media="application/vnd.kafka.json.v2+json", wait_s=ASK_S_MAX)
                if answer.status != 200:
                    return f"{topic} on broker {node}: {answer.status}/{answer.code}"
                found = [record["value"] for record in answer.body if not record["value"].startswith(AFTER)]
                if found != values[: len(found)]:
                    return f"{topic} on broker {node}: other records"
                if found != values:
                    # A batch that was repaired with its row is hidden until a leader has it applied again.
                    return self._unwritten() or f"{topic} on broker {node}: {len(found)} of {len(values)} records"
        if sorted(self.voters()) != [*NODES]:
            return "a voter is missing"
        return ""

    def _readiness(self, node: int) -> str:
        try:
            answer = ask(f"{self.cluster.broker(node).url}/readyz", wait_s=ASK_S_MAX)
        except OSError as error:
            return f"broker {node}: {error}"
        return "" if answer.status == 200 else f"broker {node}: {answer.body}"

    def settle(self) -> str:
        """Waits until all is as it was and takes writes, or brokers keep saying what to do, or time is up; returns
        which. Those that start first may say it until others are there."""
        begun_s = told_s = time.monotonic()
        said = "nothing"
        while time.monotonic() - begun_s < READY_S_MAX:
            try:
                said = self.wrong() or self._unwritten()
            except OSError as error:
                said = str(error)
            if not said:
                return HEALED
            told_s = told_s if SAYS in said else time.monotonic()
            if time.monotonic() - told_s > TOLD_S:
                return TOLD
            time.sleep(0.2)  # between two looks, until a deadline
        return said

    def _unwritten(self) -> str:
        """Returns which topic takes no record; empty if all do."""
        for topic in (PAXOS, ISR):
            if not self.write(topic, AFTER):
                return f"{topic} takes no record"
        return ""


class Row(NamedTuple):
    """The outcome of one damage."""

    what: str
    brokers: int
    outcome: str
    seconds: float
    is_good: bool

    def __str__(self) -> str:
        good = "" if self.is_good else " (not as it should be)"
        return f"{self.what}, on {self.brokers}: {self.outcome}, {self.seconds:.1f} s{good}"


def play(cluster: LocalCluster, chosen: Sequence[Identity]) -> Iterator[Row]:
    """Yields the table's rows."""
    watch = Watch(cluster)
    watch.fill()
    for identity in chosen:
        for count in range(1, identity.most + 1):
            yield _strike(watch, identity, count)


def _strike(watch: Watch, identity: Identity, count: int) -> Row:
    cluster = watch.cluster
    before = watch.voters()
    time.sleep(IDLE_S)  # so that all is known to be durable, as in any cluster that is not being written to
    cluster.kill(*NODES)
    data_dirs = {node: cluster.broker(node).data_dir for node in NODES}
    kept = {node: path.with_name("kept") for node, path in data_dirs.items()}
    for node, path in data_dirs.items():
        shutil.rmtree(kept[node], ignore_errors=True)
        shutil.copytree(path, kept[node])
    for node in NODES[:count]:
        identity.damage(data_dirs[node], watch.topic_ids[identity.topic])
    begun_s = time.monotonic()
    _begin(cluster)
    outcome = watch.settle()
    seconds = time.monotonic() - begun_s
    wanted = HEALED if count <= identity.heals else identity.otherwise
    is_good = outcome == wanted
    if outcome == HEALED:
        changed = sum(watch.voters()[node] != voter for node, voter in before.items())
        outcome += f", {changed} under another voter id" * bool(changed)
    else:
        _put_back(watch, data_dirs, kept)
    return Row(identity.what, count, outcome, seconds, is_good)


def _begin(cluster: LocalCluster) -> None:
    """Starts all. Whoever lacks the metadata log prints no ready line, and answers nevertheless."""
    for node in NODES:
        cluster.broker(node).begin()


def _put_back(watch: Watch, data_dirs: dict[int, Path], kept: dict[int, Path]) -> None:
    cluster = watch.cluster
    cluster.kill(*NODES)
    for node, path in data_dirs.items():
        shutil.rmtree(path)
        shutil.copytree(kept[node], path)
    _begin(cluster)
    said = watch.settle()
    assert said == HEALED, f"the disks are back as they were: {said}"


def main() -> int:
    """Plays all; returns the exit status."""
    parser = argparse.ArgumentParser(description="Damages what says which entries there are, on real brokers.")
    parser.add_argument("--only", default="", metavar="WORDS", help="rows of the table that have these words")
    options = parser.parse_args()
    out = Console()
    table = Table("damaged", "on brokers", "what the cluster did", "s", "as it should be")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="tidelog-identities-") as directory:
        cluster = LocalCluster(len(NODES), settings=SETTINGS, data_dir=directory)
        with cluster:
            for row in play(cluster, [one for one in IDENTITIES if options.only in one.what]):
                rows.append(row)
                out.print(str(row), markup=False, soft_wrap=True)
                table.add_row(
                    row.what, str(row.brokers), row.outcome, f"{row.seconds:.1f}", "yes" if row.is_good else "no"
                )
    out.print(table)
    return 0 if all(row.is_good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
