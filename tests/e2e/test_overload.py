"""Three cases of the overload, small and short; `make overload` plays all of them in full, and judges figures, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.overload.books import Ledger, Numbered, number_of
from tests.e2e.overload.cases import play
from tests.e2e.overload.crew import Crew
from tests.e2e.overload.wire import Ended
from tidelog.model.batch_header import verify_batch

SECONDS = 2.0
SCALE = 0.05


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    with Crew() as made:
        yield made


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", ["F85", "F89", "MIX"])
def test_each_request_is_answered_and_all_that_is_acknowledged_is_there_once(
    tmp_path: Path, crew: Crew, case: str
) -> None:
    rows = play(case, crew, tmp_path / case, seconds=SECONDS, scale=SCALE)
    correctness = [row for row in rows if row.is_correctness]
    assert [row for row in correctness if not row.is_held] == []
    assert any(row.done.startswith("read back") and not row.measured.startswith("0 ") for row in correctness)


@pytest.mark.parametrize("size", [200, 8_191, 300_000])
def test_a_numbered_batch_is_sound_and_tells_its_number(size: int) -> None:
    batches = Numbered(size)
    for number in (7, 1 << 40):
        whole = batches.whole(number)
        assert size - 2 <= len(whole) <= size
        assert verify_batch(whole).record_count == 1
        assert number_of(memoryview(whole)) == number


def test_the_books_find_what_is_not_as_it_was_said() -> None:
    ledger = Ledger()
    for number, outcome in enumerate((200, 200, 200, 503, 503, 504, Ended.RESET)):
        ledger.add(number, outcome)
    found = ledger.compare([0, 1, 1, 4, 5, 9])
    assert found == {"lost": 1, "twice": 1, "refused and there": 1, "never sent": 1}
