"""`tidelog log benchmark` with real replicas, as people call it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Cli
from tidelog.cli.log_benchmark import parse_size
from tidelog.cli.terminal import UsageError


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Cli:
    """Commands that need no broker; they run in `tmp_path`."""
    return Cli("http://127.0.0.1:1", tmp_path, monkeypatch, capfdbinary)


@pytest.mark.e2e
@pytest.mark.process
def test_three_replicas_agree_on_each_append(offline: Cli, tmp_path: Path) -> None:
    sizes, trace = tmp_path / "sizes", tmp_path / "trace"
    sizes.write_text("10B\n\n2KB\n 100 \n2MB\n")
    words = ("--input", "sizes", "--output", "trace", "--type", "random", "--json")
    (run,) = json.loads(offline.succeed("log", "benchmark", *words))
    assert run["parameters"] == {"bytes": None, "appends": 4, "replicas": 3, "kind": "random"}
    assert run["figures"]["appends_per_s"] > 0 and 0 < run["figures"]["fsync_share"] < 1
    lines = [line.split("\t") for line in trace.read_text().splitlines()]
    assert [int(size) for size, _, _ in lines] == [10, 2000, 100, 2_000_000]
    mean_ms = sum(float(ms) for _, ms, _ in lines) / len(lines)
    assert run["figures"]["mean_ms"] == pytest.approx(mean_ms, abs=0.01)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sizes", "trace"], "the replicas' data are gone"


@pytest.mark.e2e
@pytest.mark.process
def test_a_table_for_people(offline: Cli, tmp_path: Path) -> None:
    (tmp_path / "sizes").write_text("1KB\n" * 3)
    out = offline.succeed("log", "benchmark", "--input", "sizes", "--replicas", "1").decode()
    head, row = out.splitlines()
    assert head.split()[:3] == ["BYTES", "APPENDS", "APPENDS/S"] and row.split()[:2] == ["1000", "3"]


@pytest.mark.parametrize(("text", "size"), [("1", 1), ("100B", 100), ("2kb", 2000), (" 4MB ", 4_000_000)])
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text, "") == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5KB", "2GB", "5MB", "ten"])
def test_what_is_no_size_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(UsageError, match="here:3"):
        parse_size(text, "here:3")


def test_a_file_that_helps_nobody(offline: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    for name in ("empty", "missing"):
        (line,) = offline.fail("log", "benchmark", "--input", name, status=2)
        assert name in line
    (line,) = offline.fail("log", "benchmark", "--directory", "missing")
    assert "missing" in line
