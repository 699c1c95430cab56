"""Workloads of `tidelog bench` about consumer groups, on clusters started for them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tidelog.bench.idle_consumers import IdleConsumersOptions, measure_idle_consumers
from tidelog.bench.rebalance import RebalanceOptions, measure_rebalance
from tidelog.cli.measuring import Brokers, Partitions, Records, ValueBytes, workload


class Assignor(StrEnum):
    """The assignor of a consumer group."""

    UNIFORM = "uniform"
    RANGE = "range"
    ROUNDROBIN = "roundrobin"


@workload(measure_rebalance, RebalanceOptions)
def rebalance(
    members: Annotated[int, typer.Option(min=2, metavar="N", help="In the group; they join at once.")] = 100,
    partitions: Partitions = 1000,
    brokers: Brokers = 3,
    rounds: Annotated[int, typer.Option(min=1, metavar="N", help="How often one joins, and one leaves.")] = 5,
    assignor: Annotated[Assignor, typer.Option(help="What the members ask for.")] = Assignor.UNIFORM,
) -> None:
    """Measure rebalances of a group that members join and leave.

    Shows the time until the assignment is stable, the number of moved partitions and the least possible one, the number
    of heartbeats, and for how long the coordinator blocks other requests.

    \b
    Examples:
      tidelog bench rebalance
      tidelog bench rebalance --members 500 --partitions 5000 --rounds 3 --json
    """


@workload(measure_idle_consumers, IdleConsumersOptions)
def idle_consumers(
    instances: Annotated[int, typer.Option(min=1, metavar="N", help="All of them subscribe.")] = 1000,
    groups: Annotated[int, typer.Option(min=1, metavar="N", help="Over which they are spread evenly.")] = 50,
    brokers: Brokers = 3,
    partitions: Partitions = 24,
    rounds: Annotated[int, typer.Option(min=1, metavar="N", help="Pairs: without the instances, and with them.")] = 3,
    records: Records = 2_000,
    value_bytes: ValueBytes = 100,
    at_once: Annotated[int, typer.Option(min=1, metavar="N", help="Instances being made at one time.")] = 16,
) -> None:
    """Measure idle REST consumer instances.

    Shows the memory per instance, how fast instances are created, and the effect on producers. --records are written in
    each half of a round.

    \b
    Examples:
      tidelog bench idle-consumers
      tidelog bench idle-consumers --instances 5000 --groups 1 --json
    """
