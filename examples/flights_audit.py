"""Accounts of records that were sent while brokers were broken: what each was promised, and what is there in the end.

Each record begins with its number. Its account says whether it was acknowledged, and where; refused, which means that
it is surely not there; or neither, which means unknown: it may be there, once. The audit compares all accounts with all
that was read, and the rules that it checks are the rows of its table.

Everything also goes into a history for `tidelog.checker`, which knows nothing of flights and looks for every anomaly
that a log can have, in what readers saw meanwhile as well.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.table import Table

from tidelog.checker import Verdict, judge
from tidelog.checker.operations import Durability, Poll, Send
from tidelog.consumer import ConsumerRecord
from tidelog.model.ids import TopicPartition
from tidelog.producer import RecordMetadata
from tidelog.testing import LocalCluster, Recording

Location = tuple[int, int]
"""Partition and offset."""


class Accounts:
    """Of all records, by number."""

    def __init__(self, rows: Sequence[bytes]) -> None:
        self._recording = Recording(lambda value: str(number_of(value)))
        self.history = self._recording.recorder
        self.acknowledged: dict[int, Location] = {}
        self.refused: set[int] = set()
        self.keys: list[bytes] = []
        self.stall_s_max = 0.0
        """The longest time from one acknowledgement to the next."""
        self._rows = rows
        self._acknowledged_s: float | None = None

    @property
    def sent(self) -> int:
        return len(self.keys)

    @property
    def unknown(self) -> int:
        return self.sent - len(self.acknowledged) - len(self.refused)

    def value(self, number: int) -> bytes:
        """A record's bytes; rows come again when all were sent."""
        return b"%d,%s" % (number, self._rows[number % len(self._rows)])

    def send(self, key: bytes, partition: TopicPartition) -> int:
        """Opens an account for the next number. Returns what its end is told with."""
        number = self.sent
        self.keys.append(key)
        sends = [Send(name(partition), None, str(number))]
        return self.history.invoke("producer", "send", sends)

    def acknowledge(self, number: int, begun: int, receipt: RecordMetadata) -> None:
        """A broker says where the record is."""
        assert receipt.offset is not None
        now_s = time.monotonic()
        if self._acknowledged_s is not None:
            self.stall_s_max = max(self.stall_s_max, now_s - self._acknowledged_s)
        self._acknowledged_s = now_s
        self.acknowledged[number] = (receipt.partition, receipt.offset)
        sends = [Send(name(TopicPartition(receipt.topic, receipt.partition)), receipt.offset, str(number))]
        durability: Durability = "fsynced" if receipt.durability == "fsynced" else "replicated"
        self.history.complete(begun, "ok", sends, durability=durability, epoch=receipt.leader_epoch)

    def fail(self, number: int, begun: int, *, is_definite: bool) -> None:
        """A producer gives up: surely nothing is there, or nobody knows."""
        if is_definite:
            self.refused.add(number)
        sends = [part for part in self.history.operations[begun].value if isinstance(part, Send)]
        self.history.complete(begun, "fail" if is_definite else "info", sends)

    def polled(self, reader: str, batches: Mapping[TopicPartition, Sequence[ConsumerRecord]]) -> None:
        """What a reader was given at once."""
        records = {
            name(partition): [(record.offset, str(number_of(record.value))) for record in batch]
            for partition, batch in batches.items()
        }
        self.history.complete(self.history.invoke(reader, "poll"), "ok", [Poll(records)])

    async def view(self, cluster: LocalCluster, topic: str) -> None:
        """Each replica's own copy goes into the history."""
        await self._recording.view(cluster, topic)

    def audit(self, records: Iterable[ConsumerRecord]) -> Audit:
        """Compares with all that there is."""
        audit = Audit(self, judge(self.history.operations))
        newest: dict[bytes, int] = defaultdict(lambda: -1)
        seen: Counter[int] = Counter()
        for record in sorted(records, key=lambda record: (record.partition, record.offset)):
            number, key = number_of(record.value), record.key or b""
            if not 0 <= number < self.sent or record.value != self.value(number) or key != self.keys[number]:
                audit.strange += 1
                continue
            seen[number] += 1
            audit.misplaced += self.acknowledged.get(number, (record.partition, record.offset)) != (
                record.partition,
                record.offset,
            )
            audit.out_of_order += number < newest[key]
            newest[key] = max(newest[key], number)
        audit.found = len(seen)
        audit.twice = sum(count - 1 for count in seen.values())
        audit.missing = sum(number not in seen for number in self.acknowledged)
        audit.refused_found = sum(number in seen for number in self.refused)
        return audit


@dataclass
class Audit:
    """What was found to be wrong, each a number that should be 0."""

    accounts: Accounts
    verdict: Verdict
    found: int = 0
    missing: int = 0
    twice: int = 0
    misplaced: int = 0
    out_of_order: int = 0
    refused_found: int = 0
    strange: int = field(default=0)

    @property
    def is_good(self) -> bool:
        """Nothing is wrong, and enough has happened for that to mean something."""
        wrong = self.missing + self.twice + self.misplaced + self.out_of_order + self.refused_found + self.strange
        return not wrong and self.verdict.word == "valid" and bool(self.accounts.acknowledged)

    def table(self, faults: Mapping[str, int], seconds: float) -> Table:
        """For a stranger."""
        accounts = self.accounts
        table = Table("Under faults", "", box=None, pad_edge=False)
        table.columns[1].justify = "right"
        for kind, count in faults.items():
            table.add_row(f"brokers {kind}", str(count))
        table.add_row("seconds", f"{seconds:.1f}")
        table.add_row("records sent", f"{accounts.sent:,}")
        table.add_row("  acknowledged: must be there, once, in order", f"{len(accounts.acknowledged):,}")
        table.add_row("  refused: must not be there", f"{len(accounts.refused):,}")
        table.add_row("  unknown: may be there", f"{accounts.unknown:,}")
        table.add_row("records found", f"{self.found:,}")
        table.add_row("acknowledged and missing", _zero(self.missing))
        table.add_row("there twice", _zero(self.twice))
        table.add_row("out of the order of their key", _zero(self.out_of_order))
        table.add_row("elsewhere than was said", _zero(self.misplaced))
        table.add_row("refused and there", _zero(self.refused_found))
        table.add_row("never sent, or with other bytes", _zero(self.strange))
        table.add_row("longest time without an acknowledgement", f"{accounts.stall_s_max:.2f} s")
        kinds = ", ".join(f"{kind} {count}" for kind, count in self.verdict.kinds.items()) or "; ".join(
            self.verdict.void
        )
        table.add_row(f"history of {len(accounts.history.operations):,} events", f"{self.verdict.word} {kinds}".strip())
        table.add_row("every acknowledged record once and in order", "[green]yes[/]" if self.is_good else "[red]NO[/]")
        return table


def _zero(count: int) -> str:
    return f"[red]{count:,}[/]" if count else "0"


def name(partition: TopicPartition) -> str:
    """A partition's name in a history."""
    return f"{partition.topic}-{partition.partition}"


def number_of(value: bytes | None) -> int:
    """The number that a record begins with; -1 if it has none."""
    digits = (value or b"").split(b",", 1)[0]
    return int(digits) if digits.isdigit() else -1
