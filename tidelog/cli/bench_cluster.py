"""Workloads of `tidelog bench` on their own clusters: failing leaders, a joining broker, a paused broker, a damaged
log."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.bench.failover import FailoverOptions, measure_failover
from tidelog.bench.move import MoveOptions, measure_move
from tidelog.bench.pause import PauseOptions, Whom, measure_pause
from tidelog.bench.repair import RepairOptions, measure_repair
from tidelog.bench.scale import ScaleOptions, measure_scale
from tidelog.cli.measuring import Partitions, ProtocolOption, ValueBytes, workload
from tidelog.model.cluster import ISR


@workload(measure_failover, FailoverOptions)
def failover(
    kills: Annotated[int, typer.Option(min=1, metavar="N", help="How many leaders are taken away.")] = 10,
    brokers: Annotated[int, typer.Option(min=3, max=9, metavar="N", help="Started for the run.")] = 3,
    value_bytes: ValueBytes = 100,
    protocol: ProtocolOption = ISR,
    graceful: Annotated[bool, typer.Option("--graceful", help="Stop leaders, do not kill them.")] = False,
) -> None:
    """Kill leaders under load.

    Shows for how long producers and consumers stall, on brokers started for the run, with three replicas.

    \b
    Examples:
      tidelog bench failover --kills 20 --protocol paxos
      tidelog bench failover --brokers 5 --kills 3 --graceful --json
    """


@workload(measure_move, MoveOptions)
def move(
    brokers: Annotated[int, typer.Option(min=1, max=8, metavar="N", help="One more joins them.")] = 5,
    partitions: Partitions = 60,
    protocol: ProtocolOption = ISR,
    data_mb: Annotated[int, typer.Option(min=1, metavar="MB", help="Written before, over all partitions.")] = 180,
    value_bytes: Annotated[int, typer.Option(min=20, metavar="BYTES", help="Size of a record's value in it.")] = 1000,
    throttle_mb_per_s: Annotated[
        float, typer.Option("--throttle", min=0, metavar="MB", help="Megabytes per second for each broker; 0: none.")
    ] = 2.0,
    calm_s: Annotated[
        float, typer.Option("--calm", min=0.1, metavar="S", help="How long the load runs before and after.")
    ] = 10.0,
) -> None:
    """Add a broker under load.

    Shows how many replicas move to it, whether the throttle is kept, the effect on clients, and whether all records are
    still there.

    \b
    Examples:
      tidelog bench move
      tidelog bench move --brokers 3 --partitions 12 --data-mb 60 --throttle 5 --json
    """


@workload(measure_pause, PauseOptions)
def pause(
    whom: Annotated[Whom, typer.Option(help="The role of the broker that sleeps.")] = Whom.FOLLOWER,
    pauses: Annotated[int, typer.Option(min=1, metavar="N", help="How many, one after another.")] = 3,
    paused_s: Annotated[float, typer.Option("--paused", min=0.1, metavar="S", help="How long each is.")] = 20.0,
    calm_s: Annotated[float, typer.Option("--calm", min=0.1, metavar="S", help="How long all is well before.")] = 10.0,
    value_bytes: ValueBytes = 100,
) -> None:
    """Pause one of three brokers under load.

    Shows the effect on one topic of each commit protocol: the latency of acknowledgements before and during the pause,
    the longest time without one, the time until the in-sync set continues without the paused broker, and for how long a
    consumer group commits no offsets.

    \b
    Examples:
      tidelog bench pause
      tidelog bench pause --whom leader --pauses 10 --paused 5 --json
    """


@workload(measure_repair, RepairOptions)
def repair(
    data_mb: Annotated[int, typer.Option(min=1, metavar="MB", help="Written to the partition before.")] = 1000,
    damaged: Annotated[int, typer.Option(min=1, metavar="N", help="How many batches rot on the leader's disk.")] = 1000,
    calm_s: Annotated[float, typer.Option("--calm", min=0.1, metavar="S", help="How long all is well before.")] = 10.0,
    value_bytes: ValueBytes = 100,
    protocol: ProtocolOption = ISR,
) -> None:
    """Damage batches of a partition under load.

    Shows the time until a verification has found all of them and the leader has repaired them from the copies of two
    other brokers, and the latency of acknowledgements before and meanwhile.

    \b
    Examples:
      tidelog bench repair
      tidelog bench repair --data-mb 50 --damaged 100 --protocol paxos --json
    """


@workload(measure_scale, ScaleOptions)
def scale(
    brokers: Annotated[int, typer.Option(min=3, max=1_000, metavar="N", help="Registered with the controller.")] = 100,
    partitions: Annotated[
        int, typer.Option(min=100, max=1_000_000, metavar="P", help="In topics of 100, with three replicas.")
    ] = 100_000,
) -> None:
    """Compute what a large cluster costs its controller.

    No broker is started: the controller's own code processes the commands of a cluster of that size, and the CPU time,
    and the bytes that every broker has to store and read, are measured.

    \b
    Examples:
      tidelog bench scale
      tidelog bench scale --brokers 30 --partitions 10000 --json
    """
