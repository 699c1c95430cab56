"""One damage at a time, and a peer with good copies: all comes back, nothing wrong is ever served, whatever crashes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import pytest

from tests import series
from tests.scrubbing import scrub_piece
from tests.sim.storage.sampling import SAMPLED_IF_SLOW
from tests.sim.storage.sweep import BATCHES, PRODUCER_ID, Case, Sweep
from tidelog.model.batch_header import iter_batches
from tidelog.model.errors import DamagedBatch
from tidelog.sim.kit import rot
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.faults import Crashed
from tidelog.sim.kit.medium import Medium
from tidelog.sim.storage.log_driver import LogDriver
from tidelog.storage.repair import Repair
from tidelog.storage.segment import Damage

SEGMENT_BYTES = {"one segment": 1 << 30, "several segments": 1_500}
SAMPLED = 211
"""Every so many cases in the default run: coprime to the number of faults, so that all of them come by."""
SCRUB_BYTES = 700

Damaging = Callable[[Medium], object]


@pytest.fixture(scope="module", params=SEGMENT_BYTES, ids=lambda name: name.replace(" ", "-"))
def sweep(request: pytest.FixtureRequest) -> Sweep:
    return Sweep(SEGMENT_BYTES[request.param])


def damaged(sweep: Sweep, damage: Damaging) -> SimDisk:
    disk = SimDisk(0)
    for path, content in sweep.content.items():
        rot.plant(disk.medium, path, content)
    damage(disk.medium)
    return disk


def driver_of(disk: SimDisk) -> LogDriver:
    return LogDriver(disk, segment_bytes=1 << 30, producer_id=PRODUCER_ID)


def scrub(driver: LogDriver) -> None:
    for _ in range(20 * BATCHES):
        if scrub_piece(driver.log, SCRUB_BYTES).has_finished:
            return
    pytest.fail("a round never ends")


def repair_all(driver: LogDriver, expected: dict[int, bytes]) -> list[Repair]:
    """As a broker does: scrubs, asks a peer for what is damaged, and puts it back."""
    scrub(driver)
    verdicts = []
    for damage in driver.log.damaged_ranges():
        for base, data in expected.items():
            if damage.start <= base < damage.end:
                verdicts.append(driver.log.repair(data))
    scrub(driver)
    return verdicts


def check_never_wrong(driver: LogDriver, expected: dict[int, bytes]) -> int:
    """Each batch is right, or is answered with an error; returns how many are right."""
    right = 0
    for base, data in expected.items():
        with suppress(DamagedBatch):
            (batch,) = iter_batches(driver.log.read(base, 1, driver.log.log_end_offset).data)
            assert bytes(batch.data) == data, f"wrong bytes at offset {base}"
            right += 1
    return right


def check_repaired(sweep: Sweep, damage: Damaging) -> None:
    driver = driver_of(damaged(sweep, damage))
    check_never_wrong(driver, sweep.expected)
    verdicts = repair_all(driver, sweep.expected)
    assert set(verdicts) <= {Repair.DONE, Repair.NOT_NEEDED}, verdicts
    for stop in (None, driver.kill, driver.crash):
        if stop is not None:
            stop()
            driver.open()
        assert driver.log.offline_reason is None
        assert driver.log.damaged_ranges() == []
        assert check_never_wrong(driver, sweep.expected) == BATCHES
    driver.check_producer(driver.read_all())
    assert _digests(driver) == _digests(driver_of(damaged(sweep, lambda medium: None))), "rows are as they were, too"


def _digests(driver: LogDriver) -> list[bytes]:
    entries = list(driver.log.entries(driver.log.log_start_offset))
    assert not any(isinstance(entry, Damage) for entry in entries)
    return [entry.digest for entry in entries if not isinstance(entry, Damage)]


def _strike(medium: Medium, case: Case) -> None:
    case.fault.does(medium, case.path, case.start, case.end)


def check_each(sweep: Sweep, every: int) -> None:
    failures = []
    for case in list(sweep.cases())[::every]:
        try:
            check_repaired(sweep, partial(_strike, case=case))
        except Exception as error:  # noqa: BLE001 - all failures are shown together
            failures.append(f"{case}: {type(error).__name__}: {error}")
    assert not failures, f"{len(failures)} cases, such as:\n" + "\n".join(failures[:20])


def test_damage_to_a_sample_of_byte_ranges_is_repaired(sweep: Sweep) -> None:
    check_each(sweep, SAMPLED)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_damage_to_a_fifth_of_all_byte_ranges_is_repaired(sweep: Sweep) -> None:
    check_each(sweep, SAMPLED_IF_SLOW)


@pytest.mark.parametrize("suffix", [".log", ".catalog", "metainfo.0", "metainfo.1"])
@pytest.mark.parametrize("how", [rot.lose, partial(rot.truncate, size=0)], ids=["lost", "emptied"])
def test_any_one_file_lost_or_emptied_is_repaired(sweep: Sweep, suffix: str, how: Callable[..., None]) -> None:
    for path in sweep.content:
        if path.endswith(suffix):
            check_repaired(sweep, partial(how, path=path))


def test_every_batch_damaged_in_its_own_way_is_repaired(sweep: Sweep) -> None:
    def damage(medium: Medium) -> None:
        for path, content in sweep.content.items():
            if path.endswith(".log"):
                for position in range(0, len(content), 50):
                    rot.flip_bit(medium, path, position, position % 8)

    check_repaired(sweep, damage)


# -- crashes ---------------------------------------------------------------------------------------------------------


def harm_a_batch(medium: Medium) -> None:
    path = next(path for path in medium.walk() if path.endswith(".log"))
    rot.overwrite(medium, path, 100, b"\xff" * 900)


def harm_rows(medium: Medium) -> None:
    path = next(path for path in medium.walk() if path.endswith(".catalog"))
    rot.overwrite(medium, path, 3 * 128, b"\xff" * (9 * 128))


@pytest.mark.parametrize("harm", [harm_a_batch, harm_rows])
@series.seeds(3, 8)
def test_a_crash_at_any_operation_of_a_repair_leaves_it_done_or_to_do(
    sweep: Sweep, harm: Damaging, seeds: Sequence[int]
) -> None:
    """What was damaged is damaged or repaired then, all else is as it was, and a repair after it succeeds."""
    counting = driver_of(damaged(sweep, harm))
    sound = check_never_wrong(counting, sweep.expected)
    before = counting.disk.operations
    repair_all(counting, sweep.expected)
    operations = counting.disk.operations - before
    assert operations
    for operation in range(1, operations + 1):
        for seed in seeds:
            disk = damaged(sweep, harm)
            disk.medium.random.seed(seed)
            driver = driver_of(disk)
            driver.disk.crash_at(operation)
            with suppress(Crashed):
                repair_all(driver, sweep.expected)
            driver.crash()
            driver.open()
            assert check_never_wrong(driver, sweep.expected) >= sound
            repair_all(driver, sweep.expected)
            assert driver.log.damaged_ranges() == []
            assert check_never_wrong(driver, sweep.expected) == BATCHES
