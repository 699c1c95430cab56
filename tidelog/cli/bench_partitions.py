"""The workload of `tidelog bench` about many partitions, on clusters started for it."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.bench.partition_options import PartitionsOptions, counts_of
from tidelog.bench.partitions import measure_partitions
from tidelog.cli.measuring import Brokers, ProtocolOption, Records, ValueBytes, workload
from tidelog.model.cluster import ISR

PARTITIONS_MAX = 100_000


def _checked_counts(latency_at: str) -> str:
    try:
        counts = counts_of(latency_at)
    except ValueError:
        raise typer.BadParameter(f"{latency_at!r} is not numbers with commas between, such as 1,100,1000") from None
    if counts and counts[-1] > PARTITIONS_MAX:
        raise typer.BadParameter(f"{counts[-1]} is more than {PARTITIONS_MAX}")
    return latency_at


@workload(measure_partitions, PartitionsOptions)
def partitions(
    brokers: Brokers = 1,
    partitions: Annotated[
        int, typer.Option(min=0, max=PARTITIONS_MAX, metavar="P", help="Made, written, read again. 0: not measured.")
    ] = 10_000,
    topic_partitions: Annotated[int, typer.Option(min=1, metavar="P", help="Of one topic of them.")] = 1_000,
    protocol: ProtocolOption = ISR,
    idle_s: Annotated[
        float, typer.Option("--idle", min=0, metavar="S", help="How long brokers are watched while nobody asks.")
    ] = 10.0,
    spread: Annotated[
        int, typer.Option(min=0, max=10_000, metavar="N", help="Partitions of one producer. 0: not measured.")
    ] = 1_000,
    records: Records = 1_000_000,
    latency_at: Annotated[
        str,
        typer.Option(
            callback=_checked_counts, metavar="P,P,...", help="Sizes of the cluster at which one partition is written."
        ),
    ] = "",
    latency_records: Annotated[int, typer.Option(min=1, metavar="N", help="One at a time, at each size.")] = 1_000,
    value_bytes: ValueBytes = 100,
) -> None:
    """Measure many partitions.

    Shows the effect of their creation on a client of another topic, their memory and idle CPU time, the time for one
    record to each of them, and the start after all brokers were killed. Then, on other brokers, --records of one
    producer over --spread partitions; and with --latency-at the latency of one partition beside so many others.

    \b
    Examples:
      tidelog bench partitions --brokers 3
      tidelog bench partitions --partitions 0 --spread 10000 --records 2000000
      tidelog bench partitions --partitions 0 --spread 0 --latency-at 1,100,1000,10000 --json
    """
