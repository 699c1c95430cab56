"""One damage at a time, everywhere: nothing wrong is served, nothing good is lost, and the log goes on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest

from tests.sim.storage.sampling import SAMPLED_IF_SLOW
from tests.sim.storage.sweep import Sweep
from tidelog.sim.kit import rot
from tidelog.sim.kit.medium import Medium
from tidelog.sim.storage.log_driver import DIRECTORY

SEGMENT_BYTES = {"one segment": 1 << 30, "several segments": 1_500}
SAMPLED = 101
"""Every so many cases in the default run: coprime to the number of faults, so that all of them come by."""


@pytest.fixture(scope="module", params=SEGMENT_BYTES, ids=lambda name: name.replace(" ", "-"))
def sweep(request: pytest.FixtureRequest) -> Sweep:
    return Sweep(SEGMENT_BYTES[request.param])


def check_each(sweep: Sweep, every: int) -> None:
    failures = []
    for case in list(sweep.cases())[::every]:
        try:
            sweep.check_case(case)
        except Exception as error:  # noqa: BLE001 - all failures are shown together
            failures.append(f"{case}: {type(error).__name__}: {error}")
    assert not failures, f"{len(failures)} cases, such as:\n" + "\n".join(failures[:20])


def test_damage_to_a_sample_of_byte_ranges(sweep: Sweep) -> None:
    check_each(sweep, SAMPLED)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_damage_to_a_fifth_of_all_byte_ranges(sweep: Sweep) -> None:
    check_each(sweep, SAMPLED_IF_SLOW)


# -- whole files -----------------------------------------------------------------------------------------------------


def test_a_sound_log_passes(sweep: Sweep) -> None:
    sweep.check(lambda medium: None)


def damage_to(path: str, how: Callable[[Medium, str], None]) -> Callable[[Medium], None]:
    return lambda medium: how(medium, path)


@pytest.mark.parametrize("suffix", [".log", ".catalog", "metainfo.0", "metainfo.1"])
@pytest.mark.parametrize("how", [rot.lose, lambda medium, path: rot.truncate(medium, path, 0)], ids=["lost", "emptied"])
def test_any_one_file_lost_or_emptied(sweep: Sweep, suffix: str, how: Callable[[Medium, str], None]) -> None:
    for path in sweep.content:
        if path.endswith(suffix):
            sweep.check(damage_to(path, how))


def test_both_metainfo_copies_lost(sweep: Sweep) -> None:
    def damage(medium: Medium) -> None:
        for name in ("metainfo.0", "metainfo.1"):
            rot.lose(medium, f"{DIRECTORY}/{name}")

    sweep.check(damage)


def test_both_files_of_any_one_segment_lost() -> None:
    sweep = Sweep(SEGMENT_BYTES["several segments"])
    for path in sweep.content:
        if path.endswith(".log"):

            def damage(medium: Medium, path: str = path) -> None:
                rot.lose(medium, path)
                rot.lose(medium, path.replace(".log", ".catalog"))

            sweep.check(damage)


@pytest.mark.parametrize("suffix", [".log", ".catalog"])
def test_files_of_two_segments_swapped(suffix: str) -> None:
    sweep = Sweep(SEGMENT_BYTES["several segments"])
    paths = [path for path in sweep.content if path.endswith(suffix)]
    for first, second in pairwise(paths):
        sweep.check(partial(_swap, first=first, second=second))


def _swap(medium: Medium, first: str, second: str) -> None:
    a, b = medium.walk()[first], medium.walk()[second]
    a.data, b.data = b.data, a.data
    a.durable, b.durable = b.durable, a.durable


def test_every_batch_damaged_in_its_own_way() -> None:
    """All copies of everything bad: the log still opens, serves nothing, and takes appends."""
    sweep = Sweep(SEGMENT_BYTES["several segments"])

    def damage(medium: Medium) -> None:
        for path, content in sweep.content.items():
            if path.endswith(".log"):
                for position in range(0, len(content), 50):
                    rot.flip_bit(medium, path, position, position % 8)

    sweep.check(damage)
