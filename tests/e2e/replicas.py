"""The replicas of partition 0 of a topic as directories: what they hold, damage to it, what they must hold in the end.

Directories are looked at and damaged while their brokers do not run, or are paused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from tests.e2e.asking import JSON_RECORDS, Asked, ask, until
from tests.e2e.loading import metric, whole
from tests.e2e.sweep.copies import Copy, find_copies
from tidelog.testing import LocalCluster

READY_S_MAX = 90.0
AFTER = "after"
DEFINITE_MS = 1_000


class Replicas:
    """The topic has to exist, and broker `asked` to run: it says which directories are the topic's."""

    def __init__(self, cluster: LocalCluster, topic: str, asked: int = 1) -> None:
        (described,) = ask(f"{cluster.broker(asked).url}/metadata?topics={topic}").body["topics"]
        self.cluster = cluster
        self.topic = topic
        self._topic_id: str = described["topic_id"]

    # -- writing -----------------------------------------------------------------------------------------------------

    def write(self, node_id: int, *values: str) -> list[str]:
        """Has records acknowledged, a batch each; `node_id` takes the requests."""
        for value in values:
            answer = Asked(self.cluster, node_id).produce(self.topic, 0, value)
            assert answer.status == 200, answer
        return [*values]

    def is_refused(self, node_id: int, value: str = "refused") -> bool:
        """Tries to write, and returns whether nobody acknowledged it."""
        try:
            answer = Asked(self.cluster, node_id).produce(
                self.topic, 0, value, timeout_ms=DEFINITE_MS, wait_s=4 * DEFINITE_MS / 1000
            )
        except OSError:
            return True
        return answer.status != 200

    def until_written(self, node_id: int, value: str) -> None:
        """Writes a record again and again until it is acknowledged: it may be there more than once."""
        until(lambda: Asked(self.cluster, node_id).produce(self.topic, 0, value).status == 200, READY_S_MAX)

    # -- on the disks ------------------------------------------------------------------------------------------------

    def directory(self, node_id: int) -> Path:
        """Returns the directory of a broker's replica; the journal of a Paxos replica lies in it."""
        return self.cluster.broker(node_id).data_dir / "topics" / self._topic_id / "0"

    def copies(self, node_id: int, *values: str) -> list[Copy]:
        """Returns the batches, and entries of a journal, that hold these records."""
        return find_copies(node_id, self.directory(node_id), values)

    def log_copies(self, node_id: int, *values: str) -> list[Copy]:
        """Returns those of the log alone, in order."""
        return [copy for copy in self.copies(node_id, *values) if not copy.is_in_journal]

    def holds(self, node_id: int, value: str) -> bool:
        """Returns whether a copy of a record is on a broker's disk, committed or not."""
        return bool(self.copies(node_id, value))

    def rot(self, node_id: int, *values: str) -> None:
        """Flips a bit of each copy of these records, in the log and in the journal."""
        copies = self.copies(node_id, *values)
        assert {copy.entry for copy in copies} == set(range(len(values))), "each of them is there to be damaged"
        for copy in copies:
            content = bytearray(copy.path.read_bytes())
            value = values[copy.entry].encode()
            at = content.index(value, copy.position, copy.position + copy.size)
            content[at] ^= 0x10
            copy.path.write_bytes(content)
        assert not self.copies(node_id, *values)

    def content(self, node_id: int) -> bytes:
        """Returns the batches of a broker's log, byte for byte."""
        return b"".join(path.read_bytes() for path in sorted(self.directory(node_id).glob("*.log")))

    # -- in the end --------------------------------------------------------------------------------------------------

    def read(self, node_id: int, more: str = "") -> list[tuple[int, str]]:
        """Returns all records of the partition, offset and value, up to the first that cannot be read."""
        url = f"{self.cluster.broker(node_id).url}/topics/{self.topic}/partitions/0/records"
        found: list[tuple[int, str]] = []
        while True:
            start = found[-1][0] + 1 if found else "earliest"
            answer = ask(f"{url}?offset={start}{more}", media=JSON_RECORDS)
            if answer.status != 200 or not answer.body:
                return found
            found += [(record["offset"], record["value"]) for record in answer.body]

    def values(self, node_id: int) -> list[str]:
        """Returns the same without offsets."""
        return [value for _, value in self.read(node_id)]

    def check(self, values: list[str], node_ids: Iterable[int] = (1, 2, 3)) -> None:
        """All replicas are in sync, have these records and no others, undamaged, and take more."""
        node_ids = [*node_ids]
        asked = node_ids[0]
        until(lambda: len(self.values(asked)) >= len(values))
        assert self.values(asked) == values
        asyncio.run(whole(self.cluster, self.topic))
        self.until_written(asked, AFTER)
        found = self.read(asked)
        more = [AFTER] * (len(found) - len(values))
        assert [value for _, value in found] == values + more, "it is asked for until it is acknowledged"
        for node_id in node_ids:
            until(partial(self.shows, node_id, found))
            until(partial(self._is_undamaged, node_id))
            assert "Traceback" not in self.cluster.broker(node_id).output

    def shows(self, node_id: int, records: list[tuple[int, str]]) -> bool:
        """Returns whether a broker's own copy is this."""
        return self.read(node_id, "&replica=local") == records

    def _is_undamaged(self, node_id: int) -> bool:
        return metric(Asked(self.cluster, node_id), "tidelog_damaged_ranges") == 0
