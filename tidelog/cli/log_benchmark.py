"""`tidelog log benchmark`: runs the workload of `tidelog.bench.log`, after the benchmark tool of Mesos'
replicated log."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.imports import imported
from tidelog.cli.log_replica import SecretFile, parse_servers
from tidelog.cli.options import Json
from tidelog.cli.tables import count_progress, print_table
from tidelog.cli.terminal import CommandError, UsageError, print_json
from tidelog.config.errors import ConfigError

if TYPE_CHECKING:
    from tidelog.bench.log import LogRun

SIZE = re.compile(r"(\d+)\s*(B|KB|MB)?", re.IGNORECASE)
UNITS = {"B": 1, "KB": 1_000, "MB": 1_000_000}
BYTES_MAX = 4_000_000
"""Maximum bytes of one append, the limit of a value sent between brokers."""
HEAD = ("bytes", "appends", "appends/s", "mean ms", "p50 ms", "p99 ms", "p999 ms", "in fsync")


class Type(StrEnum):
    """The content of the appended bytes."""

    ZERO = "zero"
    ONE = "one"
    RANDOM = "random"


def benchmark(
    sizes: Annotated[
        Path | None, typer.Option("--input", metavar="FILE", help="What to append: a size a line, as 100B or 2MB.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="A line per append: bytes, milliseconds, Unix time of its end."),
    ] = None,
    kind: Annotated[Type, typer.Option("--type", help="The bytes that are appended.")] = Type.ZERO,
    replicas: Annotated[int, typer.Option(min=1, max=9, metavar="N", help="Processes, on this machine.")] = 3,
    directory: Annotated[
        Path, typer.Option(metavar="DIR", help="The disk to measure: replicas live in it as long as this takes.")
    ] = Path(),
    servers: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT,...",
            help="Measure a log that runs; entries are added to it.",
            show_default=False,
        ),
    ] = None,
    secret_file: SecretFile = None,
    as_json: Json = False,
) -> None:
    """Measure appends to a replicated log, one at a time.

    Each append is durable on a majority of the replicas before the next starts. Without --input: 1,000 appends each of
    10 B, 100 B, 1 KB, 10 KB and 50 KB. No broker is needed. Without --servers it starts its own replicas and removes
    them afterwards; with it, each time includes a round trip to the leader.

    \b
    Examples:
      tidelog log benchmark
      tidelog log benchmark --replicas 5 --type random --json
      tidelog log benchmark --input sizes.txt --output trace.tsv --directory /var/lib/tidelog
      tidelog log benchmark --servers a:5050,b:5050,c:5050
    """
    log = imported("tidelog.bench.log")
    runs = log.DEFAULT_RUNS if sizes is None else [_read_sizes(sizes)]
    running = () if servers is None else parse_servers(servers)
    options = log.LogOptions(
        runs=runs, replicas=replicas, kind=kind.value, directory=directory, servers=running, secret_file=secret_file
    )
    try:
        with count_progress() as progress:
            bar = progress.add_task("measuring", total=None)
            done = log.run_log(options, lambda count, total: progress.update(bar, completed=count, total=total))
    except (log.BenchmarkFailed, ConfigError) as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"no replicas can live in {directory}: {error.strerror}") from None
    if trace is not None:
        _write_trace(trace, done)
    results = [run.result(options) for run in done]
    if as_json:
        print_json([{"parameters": dict(result.parameters), "figures": dict(result.figures)} for result in results])
    else:
        print_table(HEAD, [_row(result.parameters, result.figures) for result in results], numbers=HEAD)


def _row(parameters: Mapping[str, object], figures: Mapping[str, float]) -> list[object]:
    size = "mixed" if parameters["bytes"] is None else parameters["bytes"]
    times = [f"{figures[name]:.2f}" for name in ("mean_ms", "p50_ms", "p99_ms", "p999_ms")]
    share = f"{figures['fsync_share']:.0%}" if "fsync_share" in figures else None
    return [size, parameters["appends"], f"{figures['appends_per_s']:,.0f}", *times, share]


def _read_sizes(path: Path) -> tuple[int, ...]:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    sizes = tuple(parse_size(line, f"{path}:{number}") for number, line in enumerate(lines, start=1) if line.strip())
    if not sizes:
        raise UsageError(f"{path} has no sizes; write one a line, such as 100B")
    return sizes


def parse_size(text: str, where: str) -> int:
    """Returns the bytes of a size such as 100, 100B, 2KB or 2MB (powers of ten). Raises `UsageError` with `where`, its
    place in the input."""
    match = SIZE.fullmatch(text.strip())
    size = int(match[1]) * UNITS[(match[2] or "B").upper()] if match else 0
    if not 1 <= size <= BYTES_MAX:
        raise UsageError(f"{where}: {text.strip()!r} is no size from 1B to 4MB")
    return size


def _write_trace(path: Path, runs: Sequence[LogRun]) -> None:
    lines = []
    for run in runs:
        moment_s = run.measured.started_s
        for size, seconds in zip(run.sizes, run.measured.seconds, strict=True):
            moment_s += seconds
            lines.append(f"{size}\t{1000 * seconds:.3f}\t{moment_s:.6f}\n")
    try:
        path.write_text("".join(lines))
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}") from None
