from __future__ import annotations

import gc
import json
from pathlib import Path

import pytest

from tests.unit.checker.story import Story
from tests.unit.checker.test_verdict import busy
from tests.unit.cli.conftest import Tidelog
from tidelog.checker import encode


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.jsonl"


def save(story: Story, path: Path) -> str:
    path.write_bytes(encode(story.recorder.operations))
    return str(path)


def test_a_good_run(tidelog: Tidelog, path: Path) -> None:
    ran = tidelog("check", save(busy(), path))
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.endswith("\nvalid\n")
    assert gc.isenabled()


def test_a_bad_run_says_what_is_wrong(tidelog: Tidelog, path: Path) -> None:
    story = busy()
    story.poll("reader", (100, "ghost"))
    ran = tidelog("check", save(story, path))
    assert ran.status == 1
    assert "phantom: t-0: ghost at 100 was never sent there" in ran.out
    assert ran.out.endswith("\ninvalid\n")
    document = json.loads(tidelog("check", "--json", str(path)).out)
    assert (document["verdict"], [found["kind"] for found in document["anomalies"]]) == ("invalid", ["phantom"])


def test_many_anomalies_of_a_kind_are_cut_short_on_paper(tidelog: Tidelog, path: Path) -> None:
    story = busy()
    story.poll("reader", *((100 + number, f"ghost {number}") for number in range(30)))
    assert "and 10 more of these" in tidelog("check", save(story, path)).out


def test_a_run_that_proves_nothing(tidelog: Tidelog, path: Path) -> None:
    ran = tidelog("check", save(busy(faults=0), path))
    assert ran.status == 2
    assert "0 faults, 1 at least are needed" in ran.out
    assert tidelog("check", "--faults-min", "0", str(path)).status == 0


@pytest.mark.parametrize("content", [b"{}", b"\xff"])
def test_no_history(tidelog: Tidelog, path: Path, content: bytes) -> None:
    path.write_bytes(content)
    ran = tidelog("check", str(path))
    assert (ran.status, ran.out) == (1, "")
    assert "cannot be judged" in ran.err


def test_no_file(tidelog: Tidelog, path: Path) -> None:
    ran = tidelog("check", str(path))
    assert (ran.status, ran.out, ran.err) == (1, "", f"error: cannot read {path}: No such file or directory\n")
