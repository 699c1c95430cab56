"""Verdicts on partitions, by what a client is told of them after the brokers are back.

An entry that has a good copy somewhere has to be read as it was written, sooner or later; any other one has to be
answered 50303, and never passed over. The partition has to take a new record, behind all of these, and every replica
has to say the same of them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Set
from typing import Final, NamedTuple

from tests.e2e.asking import JSON_RECORDS, Answer, ask
from tests.e2e.sweep.cases import Case
from tidelog.sim.sweep.verdicts import Verdict, compare, worst

DAMAGED: Final = 50303
AFTER: Final = "after"
ASK_S_MAX: Final = 15.0
PRODUCE_MS: Final = 5_000


class Result(NamedTuple):
    """The fate of one case. `age_s` is how long before the end of all brokers its last record was acknowledged, and
    `seconds` how long after their start it was all told."""

    case: Case
    verdict: Verdict
    detail: str
    lost_entries: int
    answered_damaged: int
    age_s: float
    seconds: float


class Reader:
    """Reads the entries of a partition at one address, as far as they can be had."""

    def __init__(self, url: str, expected: Mapping[int, str], good: set[int], lacked: Set[int] = frozenset()) -> None:
        """`lacked` are offsets that were never on this disk: what nobody has a good copy of can't be had there."""
        self.problems: dict[Verdict, str] = {}
        self.answered_damaged = 0
        self.last = "not asked"
        self._url = url
        self._expected = dict(expected)
        self._good = good
        self._lacked = lacked - good
        self._left = sorted(expected)

    @property
    def left(self) -> int:
        """How many entries were neither read nor answered as they should be."""
        return len(self._left)

    def read(self) -> None:
        """Goes on until all is read or something has to be waited for."""
        while self._left and self._take(self._ask(self._left[0])):
            pass

    def expect(self, offset: int, value: str) -> None:
        """Waits for one more record."""
        self._expected[offset] = value
        self._good.add(offset)
        self._left.append(offset)

    def _ask(self, offset: int) -> Answer | None:
        joint = "&" if "?" in self._url else "?"
        try:
            return ask(f"{self._url}{joint}offset={offset}", media=JSON_RECORDS, wait_s=ASK_S_MAX)
        except OSError as error:
            self.last = str(error)
            return None

    def _take(self, answer: Answer | None) -> bool:
        """True if there is more to be asked for now."""
        if answer is None:
            return False
        self.last = f"{answer.status}/{answer.code}"
        if answer.status == 200 and answer.body:
            self._compare({record["offset"]: record["value"] for record in answer.body})
            return True
        if answer.status == 200 and self._left[0] in self._lacked:
            self._left.clear()  # a replica that was behind waits there for a copy, and shows nothing that follows
            return True
        if answer.code == DAMAGED and self._left[0] not in self._good:
            self.answered_damaged += 1
            self._left.pop(0)
            return True
        return False

    def _compare(self, found: Mapping[int, str]) -> None:
        offsets = sorted({*found, *(at for at in self._left if at <= max(found))})
        for verdict, problem in compare(found, offsets, self._expected, self._good, AFTER):
            self.problems.setdefault(verdict, problem)
        self._left = [offset for offset in self._left if offset not in offsets]


class Judge:
    """One partition: what its leader says, then a new record, then what each replica says."""

    def __init__(
        self,
        case: Case,
        topic_url: Mapping[int, str],
        expected: Mapping[int, str],
        good: set[int],
        lacked: Mapping[int, Set[int]],
    ) -> None:
        """`topic_url` has the address of the topic at each broker; `good` are the offsets that must be read, `lacked`
        those that are not on a broker's disk at all."""
        self.case = case
        self._lost = len(expected) - len(good)
        urls = {node: f"{url}/partitions/{case.partition}" for node, url in topic_url.items()}
        asked = case.partition % len(urls)
        self._produce_url = f"{[*urls.values()][asked]}?timeout_ms={PRODUCE_MS}"
        self._leader = Reader(f"{[*urls.values()][asked]}/records", expected, set(good))
        self._replicas = {
            node: Reader(f"{url}/records?replica=local", expected, set(good), lacked[node])
            for node, url in urls.items()
        }
        self._expected, self._good = expected, good
        self._produced = "not asked"
        self._asked_s = 0.0
        self._after: int | None = None

    @property
    def left(self) -> int:
        """How much is still to be told."""
        return sum(reader.left for reader in self._readers) + (self._after is None)

    @property
    def _readers(self) -> list[Reader]:
        return [self._leader, *self._replicas.values()]

    def go_on(self, *, is_late: bool) -> None:
        """Asks for what is still to be told. When it is late, records are written without having read all."""
        self._leader.read()
        if self._after is None and (is_late or not self._leader.left):
            self._write()
        if self._after is not None:
            for reader in self._replicas.values():
                reader.read()
        self._asked_s = time.monotonic()

    def _write(self) -> None:
        body = {"records": [{"value": AFTER}]}
        try:
            answer = ask(self._produce_url, body, media=JSON_RECORDS, wait_s=ASK_S_MAX)
        except OSError as error:
            self._produced = str(error)
            return
        self._produced = f"{answer.status}/{answer.code}"
        if answer.status == 200:
            self._after = answer.body["offsets"][0]["offset"]
            assert self._after is not None
            if self._after > max(self._expected):
                for reader in self._readers:
                    reader.expect(self._after, AFTER)

    def result(self, age_s: float, begun_s: float) -> Result:
        """Returns the worst that was seen, and why that is said. All brokers had begun to start at `begun_s`."""
        verdict, detail = worst(self._problems())
        answered = self._leader.answered_damaged
        return Result(self.case, verdict, detail, self._lost, answered, age_s, self._asked_s - begun_s)

    def _problems(self) -> list[tuple[str, Verdict, str]]:
        found = [
            ("replica", verdict, text) for one in self._replicas.values() for verdict, text in one.problems.items()
        ]
        found += [("leader", verdict, text) for verdict, text in self._leader.problems.items()]
        if self._after is None:
            found.append(("leader", Verdict.STUCK, f"a write is answered {self._produced}, a read {self._leader.last}"))
        elif self._after <= max(self._expected):
            kind = Verdict.LOST if self._after in self._good else Verdict.SILENT
            found.append(("leader", kind, f"a new record has offset {self._after}"))
        elif self._leader.left:  # it takes records, so what it does not show it does not have
            kind = Verdict.UNREPAIRED if self._leader.last == f"503/{DAMAGED}" else Verdict.LOST
            found.append(("leader", kind, f"a read is answered {self._leader.last}"))
        late = {node: reader.last for node, reader in self._replicas.items() if reader.left}
        if late and self._after is not None:
            found.append(("replicas", Verdict.UNREPAIRED, f"reads are answered {late}"))
        return found
