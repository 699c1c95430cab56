"""`tidelog bench`: runs the workloads of `tidelog.bench`, with a progress bar, and prints the results as a table."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.bench.consume import ConsumeOptions, measure_consume
from tidelog.bench.latency import LatencyOptions, measure_latency
from tidelog.bench.produce import ProduceOptions, measure_produce
from tidelog.bench.raw import RawOptions, measure_raw
from tidelog.cli.bench_cluster import failover, move, pause, repair, scale
from tidelog.cli.bench_groups import idle_consumers, rebalance
from tidelog.cli.bench_partitions import partitions
from tidelog.cli.bench_security import guesses, revocation, security
from tidelog.cli.measuring import (
    AcksOption,
    BatchBytes,
    Brokers,
    Compression,
    DurabilityOption,
    Partitions,
    ProtocolOption,
    Records,
    ValueBytes,
    report,
    workload,
)
from tidelog.cli.options import Acks, Codec, Durability, Transport, Way
from tidelog.model.cluster import ISR

app = typer.Typer(invoke_without_command=True)


@app.callback()
def bench(context: typer.Context) -> None:
    """Measure a broker: throughput, latency, and what they cost.

    Without a workload: produce, consume and latency, one after the other, each on a broker started for it.

    \b
    Examples:
      tidelog bench
      tidelog bench produce --records 2000000 --compression zstd
      tidelog bench latency --bootstrap http://127.0.0.1:8083 --json
      tidelog bench raw --brokers 3 --security tls+token
      tidelog bench latency --brokers 3 --durability replicated --no-reads
      tidelog bench latency --brokers 3 --protocol paxos --no-reads
    """
    if context.invoked_subcommand is None:
        report(measure_produce, ProduceOptions())
        report(measure_consume, ConsumeOptions())
        report(measure_latency, LatencyOptions())


@app.command()
@workload(measure_produce, ProduceOptions)
def produce(
    records: Records = 1_000_000,
    value_bytes: ValueBytes = 100,
    brokers: Brokers = 1,
    partitions: Partitions = 1,
    protocol: ProtocolOption = ISR,
    durability: DurabilityOption = Durability.FSYNCED,
    acks: AcksOption = Acks.ALL,
    compression: Compression = Codec.NONE,
    linger_ms: Annotated[float, typer.Option(min=0, metavar="MS", help="How long a batch may wait to fill.")] = 5,
    batch_bytes: BatchBytes = 65536,
    at_once: Annotated[int, typer.Option(min=1, metavar="N", help="More than 1: by send_batch, so many.")] = 1,
    transport: Transport = Way.AUTO,
) -> None:
    """Measure the throughput of a producer.

    Every record is acknowledged. The latency is that of records waiting in a full producer.

    \b
    Example:
      tidelog bench produce --brokers 3 --records 2000000 --partitions 3 --compression zstd
    """


@app.command()
@workload(measure_consume, ConsumeOptions)
def consume(
    records: Records = 1_000_000,
    value_bytes: ValueBytes = 100,
    partitions: Partitions = 1,
    compression: Compression = Codec.NONE,
    batches: Annotated[bool, typer.Option("--batches", help="Take whole batches, no object a record.")] = False,
    transport: Transport = Way.AUTO,
) -> None:
    """Measure the throughput of a consumer.

    Without --topic the records are written first, outside the measurement.

    \b
    Example:
      tidelog bench consume --bootstrap http://127.0.0.1:8082 --topic flights --records 300000
    """


@app.command()
@workload(measure_latency, LatencyOptions)
def latency(
    records: Records = 5_000,
    value_bytes: ValueBytes = 100,
    tasks: Annotated[int, typer.Option(min=1, metavar="N", help="How many send at the same time.")] = 1,
    reads: Annotated[bool, typer.Option("--reads/--no-reads", help="Whether a consumer takes part.")] = True,
    brokers: Brokers = 1,
    protocol: ProtocolOption = ISR,
    durability: DurabilityOption = Durability.FSYNCED,
    acks: AcksOption = Acks.ALL,
    transport: Transport = Way.AUTO,
) -> None:
    """Measure the latency of single records.

    Shows the time until a record is acknowledged, and until a consumer has received it.

    \b
    Example:
      tidelog bench latency --brokers 3 --durability replicated --tasks 16
    """


@app.command()
@workload(measure_raw, RawOptions)
def raw(
    requests: Annotated[int, typer.Option(min=1, metavar="N", help="How many.")] = 2_000,
    batches: Annotated[int, typer.Option(min=1, metavar="N", help="In each request.")] = 1,
    batch_bytes: BatchBytes = 65536,
    value_bytes: ValueBytes = 100,
    in_flight: Annotated[int, typer.Option(min=1, metavar="N", help="Requests at one time.")] = 8,
    brokers: Brokers = 1,
    partitions: Partitions = 1,
    protocol: ProtocolOption = ISR,
    durability: DurabilityOption = Durability.FSYNCED,
    acks: AcksOption = Acks.ALL,
) -> None:
    """Measure produce requests with batches encoded beforehand.

    Shows the throughput of the broker without the cost of a producer.

    \b
    Example:
      tidelog bench raw --batch-bytes 1000000 --in-flight 4
    """


app.command()(failover)
app.command()(move)
app.command()(partitions)
app.command()(pause)
app.command()(repair)
app.command()(scale)
app.command()(security)
app.command()(revocation)
app.command()(guesses)
app.command()(rebalance)
app.command()(idle_consumers)
