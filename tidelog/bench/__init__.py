"""Measuring a broker, one that runs or one started for the purpose, through the same clients that users have.

Each workload is a function from options to a `Result`; `append_history` keeps results for comparison.
"""

from tidelog.bench.consume import ConsumeOptions, run_consume
from tidelog.bench.failover import FailoverOptions, run_failover
from tidelog.bench.history import append_history
from tidelog.bench.idle_consumers import IdleConsumersOptions, run_idle_consumers
from tidelog.bench.latency import LatencyOptions, run_latency
from tidelog.bench.move import MoveOptions, run_move
from tidelog.bench.pause import PauseOptions, run_pause
from tidelog.bench.produce import ProduceOptions, run_produce
from tidelog.bench.raw import RawOptions, run_raw
from tidelog.bench.rebalance import RebalanceOptions, run_rebalance
from tidelog.bench.result import Result

__all__ = [
    "ConsumeOptions",
    "FailoverOptions",
    "IdleConsumersOptions",
    "LatencyOptions",
    "MoveOptions",
    "PauseOptions",
    "ProduceOptions",
    "RawOptions",
    "RebalanceOptions",
    "Result",
    "append_history",
    "run_consume",
    "run_failover",
    "run_idle_consumers",
    "run_latency",
    "run_move",
    "run_pause",
    "run_produce",
    "run_raw",
    "run_rebalance",
]
