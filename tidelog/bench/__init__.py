"""Benchmarks of a broker, running or started for the purpose, through the same clients that users have.

Each workload is a coroutine function from options to a `Result`; `run` runs it, and `append_history` stores the result.
"""

from tidelog.bench.consume import ConsumeOptions, measure_consume
from tidelog.bench.failover import FailoverOptions, measure_failover
from tidelog.bench.guesses import GuessesOptions, measure_guesses
from tidelog.bench.history import append_history
from tidelog.bench.idle_consumers import IdleConsumersOptions, measure_idle_consumers
from tidelog.bench.latency import LatencyOptions, measure_latency
from tidelog.bench.move import MoveOptions, measure_move
from tidelog.bench.partition_options import PartitionsOptions
from tidelog.bench.partitions import measure_partitions
from tidelog.bench.pause import PauseOptions, Whom, measure_pause
from tidelog.bench.produce import ProduceOptions, measure_produce
from tidelog.bench.raw import RawOptions, measure_raw
from tidelog.bench.rebalance import RebalanceOptions, measure_rebalance
from tidelog.bench.repair import RepairOptions, measure_repair
from tidelog.bench.result import Result, Workload, run
from tidelog.bench.revocation import RevocationOptions, measure_revocation
from tidelog.bench.scale import ScaleOptions, measure_scale
from tidelog.bench.secured import Level
from tidelog.bench.security import SecurityOptions, measure_security

__all__ = [
    "ConsumeOptions",
    "FailoverOptions",
    "GuessesOptions",
    "IdleConsumersOptions",
    "LatencyOptions",
    "Level",
    "MoveOptions",
    "PartitionsOptions",
    "PauseOptions",
    "ProduceOptions",
    "RawOptions",
    "RebalanceOptions",
    "RepairOptions",
    "Result",
    "RevocationOptions",
    "ScaleOptions",
    "SecurityOptions",
    "Whom",
    "Workload",
    "append_history",
    "measure_consume",
    "measure_failover",
    "measure_guesses",
    "measure_idle_consumers",
    "measure_latency",
    "measure_move",
    "measure_partitions",
    "measure_pause",
    "measure_produce",
    "measure_raw",
    "measure_rebalance",
    "measure_repair",
    "measure_revocation",
    "measure_scale",
    "measure_security",
    "run",
]
