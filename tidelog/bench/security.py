"""Benchmark workload `security`: the costs of TLS, tokens and ACLs, compared with brokers without them.

Three clusters of three brokers run at the same time: one in plain text, one with TLS everywhere, and one whose clients
also send a token and are checked against a thousand ACLs. The same burst of work is repeated on each in turn, each
round beginning with another one, so that other load of the machine affects all alike. Losses are computed from the
bursts of one round, and the median of the rounds is reported. A burst is prebuilt batches, of records of 100 or of
1,000 bytes, as fast as the brokers take them, or single records, one at a time.

Then new connections (`handshakes.py`) and permission checks (`rights.py`) are measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from typing import Final

from tidelog.bench.handshakes import measure_handshakes
from tidelog.bench.latency import LatencyOptions, send_to
from tidelog.bench.raw import RawOptions, post_to
from tidelog.bench.result import Progress, Result
from tidelog.bench.rights import measure_rights
from tidelog.bench.secured import ACLS, Level
from tidelog.bench.target import HTTP_ONLY, Target, TargetOptions, open_target

BROKERS: Final = 3
SIZES: Final = (100, 1_000)
NAMES: Final[Mapping[Level, str]] = {Level.PLAIN: "plain", Level.TLS: "tls", Level.LOGIN: "token"}
LAST_STEPS: Final = 2
Figures = Mapping[str, float]
COSTS: Final = {"broker_cpu_s_per_gb": "brokers_cpu_s_per_gb", "client_cpu_s_per_gb": "client_cpu_s_per_gb"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityOptions:
    """Options of the workload `security`. In each of `rounds` rounds each cluster gets, for each record size,
    `requests` requests of `batches` batches of `batch_bytes` bytes, and `records` single records. Each round of
    connections opens `connections`."""

    rounds: int = 7
    requests: int = 300
    batches: int = 4
    batch_bytes: int = 65536
    records: int = 300
    connections: int = 1_000
    protocol: str = "isr"


@dataclass(frozen=True, slots=True)
class Bursts:
    """Throughput and latency of bursts of produce requests to one cluster, with an entry for each round."""

    posted: dict[int, list[Figures]] = field(default_factory=lambda: {size: [] for size in SIZES})
    """Figures of the batch bursts, by record size in bytes."""
    single: list[Figures] = field(default_factory=list)


async def measure_security(options: SecurityOptions, progress: Progress) -> Result:
    """Runs the workload `security` and returns its figures."""
    bursts = {level: Bursts() for level in Level}
    done, total = 0, options.rounds * len(Level) + LAST_STEPS
    async with AsyncExitStack() as stack:
        targets = [(level, await stack.enter_async_context(open_target(_target(options, level)))) for level in Level]
        for number in range(options.rounds):
            turn = number % len(targets)
            for level, target in (*targets[turn:], *targets[:turn]):
                await _burst(target, options, bursts[level])
                done += 1
                progress(done, total)
    figures = figures_of(bursts)
    figures |= await measure_handshakes(options.connections, options.rounds)
    progress(total - 1, total)
    figures |= measure_rights(ACLS)
    progress(total, total)
    return Result("security", asdict(options), figures)


def _target(options: SecurityOptions, level: Level) -> TargetOptions:
    return TargetOptions(
        brokers=BROKERS, partitions=BROKERS, protocol=options.protocol, security=level, transport=HTTP_ONLY
    )


async def _burst(target: Target, options: SecurityOptions, bursts: Bursts) -> None:
    for size in SIZES:
        posting = RawOptions(
            requests=options.requests,
            batches=options.batches,
            batch_bytes=options.batch_bytes,
            value_bytes=size,
            partitions=BROKERS,
        )
        bursts.posted[size].append((await post_to(target, posting)).figures)
    sending = LatencyOptions(records=options.records, reads=False)
    bursts.single.append((await send_to(target, sending)).figures)


def figures_of(bursts: Mapping[Level, Bursts]) -> dict[str, float]:
    """Returns the medians over the rounds, and the medians of each round's loss compared with plain text."""
    figures: dict[str, float] = {}
    for level, name in NAMES.items():
        measured, plain = bursts[level], bursts[Level.PLAIN]
        for size in SIZES:
            label = f"{name}_{size}b"
            figures[f"{label}_mb_per_s"] = _median(measured.posted[size], "mb_per_s")
            if level is not Level.PLAIN:
                kept = _ratio(measured.posted[size], plain.posted[size], "mb_per_s")
                figures[f"{label}_mb_lost_percent"] = 100 * (1 - kept)
            for cost, said in COSTS.items():
                figures[f"{label}_{said}"] = _median(measured.posted[size], cost)
        for percentile in ("p50", "p99"):
            figures[f"{name}_single_{percentile}_ms"] = _median(measured.single, f"ack_{percentile}_ms")
        if level is not Level.PLAIN:
            figures[f"{name}_single_p50_ratio"] = _ratio(measured.single, plain.single, "ack_p50_ms")
    return figures


def _median(rounds: list[Figures], name: str) -> float:
    return statistics.median(figures[name] for figures in rounds)


def _ratio(rounds: list[Figures], plain: list[Figures], name: str) -> float:
    """Returns the median over the rounds of the figure `name` divided by the same figure in plain text."""
    return statistics.median(figures[name] / reference[name] for figures, reference in zip(rounds, plain, strict=True))
