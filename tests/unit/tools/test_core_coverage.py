"""Rooms are measured by their files, and none may fall below its floor."""

from __future__ import annotations

from typing import Any

from tools.core_coverage import Reach, below, floors, raised, rooms, unreached


def file(*, lines: int, branches: int, reached: tuple[int, int], missing: tuple[list[int], list[list[int]]]) -> Any:
    summary = {"num_statements": lines, "num_branches": branches}
    summary |= {"covered_lines": reached[0], "covered_branches": reached[1]}
    return {"summary": summary, "missing_lines": missing[0], "missing_branches": missing[1]}


REPORT = {
    "files": {
        "tidelog/groups/a.py": file(lines=10, branches=4, reached=(10, 3), missing=([], [[7, -1]])),
        "tidelog/groups/b.py": file(lines=6, branches=0, reached=(6, 0), missing=([], [])),
        "tidelog/groups/classic/c.py": file(lines=5, branches=2, reached=(4, 1), missing=([9, 11], [[8, 9], [3, 5]])),
    }
}


def test_a_room_is_the_sum_of_its_files() -> None:
    assert rooms(REPORT) == {"groups": Reach(16, 4, 19), "groups/classic": Reach(5, 2, 5)}


def test_the_share_is_rounded_down() -> None:
    assert Reach(9_999, 1, 9_999).percent == 99.9
    assert Reach(9_999, 1, 10_000).percent == 100.0
    assert Reach().percent == 100.0


def test_a_branch_to_a_line_that_is_named_is_not_named_again() -> None:
    assert list(unreached(REPORT)) == [
        "tidelog/groups/a.py: 7 -> exit",
        "tidelog/groups/classic/c.py: 9, 11",
        "tidelog/groups/classic/c.py: 3 -> 5",
    ]


def test_a_room_below_its_floor_is_named_and_one_without_a_floor_must_be_full() -> None:
    allowed = floors("groups 95.0\n")
    assert below({"groups": Reach(20, 0, 19), "placement": Reach(20, 0, 20)}, allowed) == []
    assert below({"groups": Reach(20, 0, 18), "placement": Reach(20, 0, 19)}, allowed) == ["groups", "placement"]


def test_floors_rise_and_never_fall() -> None:
    found = {"groups": Reach(20, 0, 19), "model": Reach(10, 0, 5), "placement": Reach(1, 0, 1)}
    assert raised(found, {"groups": 90.0, "model": 60.0, "gone": 1.0}) == "groups 95.0\nmodel 60.0\nplacement 100.0\n"
