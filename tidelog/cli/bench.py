"""`tidelog bench`: the workloads of `tidelog.bench`, with a progress bar and their figures as a table."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tidelog.bench import (
    ConsumeOptions,
    FailoverOptions,
    LatencyOptions,
    MoveOptions,
    ProduceOptions,
    RawOptions,
    Result,
    append_history,
    run_consume,
    run_failover,
    run_latency,
    run_move,
    run_produce,
    run_raw,
)
from tidelog.cli.options import Acks, Codec, Durability, Json
from tidelog.cli.tables import count_progress, print_table
from tidelog.cli.terminal import CommandError, print_json
from tidelog.testing import BrokerFailed

app = typer.Typer(invoke_without_command=True)

Bootstrap = Annotated[
    str | None, typer.Option(metavar="URL", help="A running broker. Default: one started for the run.")
]
Topic = Annotated[str | None, typer.Option(metavar="TOPIC", help="Default: one made for the run.", show_default=False)]
Partitions = Annotated[int, typer.Option(min=1, metavar="P", help="Of the topic made for the run.")]
Brokers = Annotated[
    int, typer.Option(min=1, max=9, metavar="N", help="Started for the run; up to three hold a replica each.")
]
DurabilityOption = Annotated[Durability, typer.Option(help="ack.durability of the topic made for the run.")]
Records = Annotated[int, typer.Option(min=1, metavar="N", help="How many records.")]
ValueBytes = Annotated[int, typer.Option(min=1, metavar="BYTES", help="Size of a record's value.")]
AcksOption = Annotated[Acks, typer.Option(help="What to wait for.")]
Compression = Annotated[Codec, typer.Option(help="Of whole batches.")]
BatchBytes = Annotated[int, typer.Option(min=1, metavar="BYTES", help="A batch of this size is full.")]
History = Annotated[Path | None, typer.Option(metavar="FILE", help="Add a line of JSON to this file.")]


Progress = Callable[[int, int], None]


@app.callback()
def bench(context: typer.Context) -> None:
    """Measure a broker: throughput, latency, and what they cost.

    Without a workload: produce, consume and latency, one after the other, each on a broker started for it.

    \b
    Examples:
      tidelog bench
      tidelog bench produce --records 2000000 --compression zstd
      tidelog bench latency --bootstrap http://10.0.0.5:8082 --json
      tidelog bench latency --brokers 3 --durability replicated --no-reads
    """
    if context.invoked_subcommand is None:
        _measure(partial(run_produce, ProduceOptions()))
        _measure(partial(run_consume, ConsumeOptions()))
        _measure(partial(run_latency, LatencyOptions()))


@app.command()
def produce(
    records: Records = 1_000_000,
    value_bytes: ValueBytes = 100,
    brokers: Brokers = 1,
    partitions: Partitions = 1,
    durability: DurabilityOption = Durability.FSYNCED,
    acks: AcksOption = Acks.ALL,
    compression: Compression = Codec.NONE,
    linger_ms: Annotated[float, typer.Option(min=0, metavar="MS", help="How long a batch may wait to fill.")] = 5,
    batch_bytes: BatchBytes = 65536,
    at_once: Annotated[int, typer.Option(min=1, metavar="N", help="More than 1: by send_batch, so many.")] = 1,
    topic: Topic = None,
    bootstrap: Bootstrap = None,
    history: History = None,
    as_json: Json = False,
) -> None:
    """Write records as fast as possible.

    Every one is acknowledged. Latency is that of records that wait in a full producer.

    \b
    Example:
      tidelog bench produce --brokers 3 --records 2000000 --partitions 3 --compression zstd
    """
    options = ProduceOptions(
        bootstrap=bootstrap,
        topic=topic,
        brokers=brokers,
        partitions=partitions,
        durability=durability.value,
        records=records,
        value_bytes=value_bytes,
        at_once=at_once,
        acks=acks.value,
        linger_ms=linger_ms,
        batch_bytes=batch_bytes,
        compression=compression.value,
    )
    _measure(partial(run_produce, options), history=history, as_json=as_json)


@app.command()
def consume(
    records: Records = 1_000_000,
    value_bytes: ValueBytes = 100,
    partitions: Partitions = 1,
    compression: Compression = Codec.NONE,
    topic: Topic = None,
    bootstrap: Bootstrap = None,
    history: History = None,
    as_json: Json = False,
) -> None:
    """Read records as fast as they come.

    Without --topic they are written first, outside the measurement.

    \b
    Example:
      tidelog bench consume --bootstrap http://127.0.0.1:8082 --topic flights --records 300000
    """
    options = ConsumeOptions(
        bootstrap=bootstrap,
        topic=topic,
        partitions=partitions,
        records=records,
        value_bytes=value_bytes,
        compression=compression.value,
    )
    _measure(partial(run_consume, options), history=history, as_json=as_json)


@app.command()
def latency(
    records: Records = 5_000,
    value_bytes: ValueBytes = 100,
    tasks: Annotated[int, typer.Option(min=1, metavar="N", help="How many send at the same time.")] = 1,
    reads: Annotated[bool, typer.Option("--reads/--no-reads", help="Whether a consumer takes part.")] = True,
    brokers: Brokers = 1,
    durability: DurabilityOption = Durability.FSYNCED,
    acks: AcksOption = Acks.ALL,
    topic: Topic = None,
    bootstrap: Bootstrap = None,
    history: History = None,
    as_json: Json = False,
) -> None:
    """Write one record at a time.

    How long until it is acknowledged, and until a consumer has it.

    \b
    Example:
      tidelog bench latency --brokers 3 --durability replicated --tasks 16
    """
    options = LatencyOptions(
        bootstrap=bootstrap,
        topic=topic,
        brokers=brokers,
        durability=durability.value,
        records=records,
        value_bytes=value_bytes,
        tasks=tasks,
        reads=reads,
        acks=acks.value,
    )
    _measure(partial(run_latency, options), history=history, as_json=as_json)


@app.command()
def raw(
    requests: Annotated[int, typer.Option(min=1, metavar="N", help="How many.")] = 2_000,
    batches: Annotated[int, typer.Option(min=1, metavar="N", help="In each request.")] = 1,
    batch_bytes: BatchBytes = 65536,
    value_bytes: ValueBytes = 100,
    in_flight: Annotated[int, typer.Option(min=1, metavar="N", help="Requests at one time.")] = 8,
    brokers: Brokers = 1,
    partitions: Partitions = 1,
    durability: DurabilityOption = Durability.FSYNCED,
    acks: AcksOption = Acks.ALL,
    topic: Topic = None,
    bootstrap: Bootstrap = None,
    history: History = None,
    as_json: Json = False,
) -> None:
    """Post batches that were made beforehand.

    What the broker can take, whatever a producer costs.

    \b
    Example:
      tidelog bench raw --batch-bytes 1000000 --in-flight 4
    """
    options = RawOptions(
        bootstrap=bootstrap,
        topic=topic,
        brokers=brokers,
        partitions=partitions,
        durability=durability.value,
        requests=requests,
        batches=batches,
        batch_bytes=batch_bytes,
        value_bytes=value_bytes,
        in_flight=in_flight,
        acks=acks.value,
    )
    _measure(partial(run_raw, options), history=history, as_json=as_json)


@app.command()
def failover(
    kills: Annotated[int, typer.Option(min=1, metavar="N", help="How many leaders are taken away.")] = 10,
    brokers: Annotated[int, typer.Option(min=3, max=9, metavar="N", help="Started for the run.")] = 3,
    value_bytes: ValueBytes = 100,
    graceful: Annotated[bool, typer.Option("--graceful", help="Stop leaders, do not kill them.")] = False,
    history: History = None,
    as_json: Json = False,
) -> None:
    """Kill leaders under load.

    How long producers and consumers stand still, on brokers started for it, with replicas on three.

    \b
    Examples:
      tidelog bench failover --kills 20
      tidelog bench failover --brokers 5 --kills 3 --graceful --json
    """
    options = FailoverOptions(kills=kills, brokers=brokers, value_bytes=value_bytes, graceful=graceful)
    _measure(partial(run_failover, options), history=history, as_json=as_json)


@app.command()
def move(
    brokers: Annotated[int, typer.Option(min=1, max=8, metavar="N", help="One more joins them.")] = 5,
    partitions: Partitions = 60,
    data_mb: Annotated[int, typer.Option(min=1, metavar="MB", help="Written before, over all partitions.")] = 180,
    value_bytes: Annotated[int, typer.Option(min=20, metavar="BYTES", help="Size of a record's value in it.")] = 1000,
    throttle_mb_per_s: Annotated[
        float, typer.Option("--throttle", min=0, metavar="MB", help="Megabytes per second for each broker; 0: none.")
    ] = 2.0,
    calm_s: Annotated[
        float, typer.Option("--calm", min=0.1, metavar="S", help="How long the load runs before and after.")
    ] = 10.0,
    history: History = None,
    as_json: Json = False,
) -> None:
    """Have a broker join under load.

    How many replicas move to it, how well the throttle is kept, what the load notices, and whether all of it is there.

    \b
    Examples:
      tidelog bench move
      tidelog bench move --brokers 3 --partitions 12 --data-mb 60 --throttle 5 --json
    """
    options = MoveOptions(
        brokers=brokers,
        partitions=partitions,
        data_mb=data_mb,
        value_bytes=value_bytes,
        throttle_mb_per_s=throttle_mb_per_s,
        calm_s=calm_s,
    )
    _measure(partial(run_move, options), history=history, as_json=as_json)


def _measure(run: Callable[[Progress], Result], *, history: Path | None = None, as_json: bool = False) -> None:
    try:
        with count_progress() as progress:
            bar = progress.add_task("measuring", total=None)
            result = run(lambda done, total: progress.update(bar, completed=done, total=total))
    except BrokerFailed as error:
        raise CommandError(str(error)) from None
    if history is not None:
        append_history(result, history)
    if as_json:
        print_json(
            {"workload": result.workload, "parameters": dict(result.parameters), "figures": dict(result.figures)}
        )
    else:
        print_table([result.workload, ""], result.lines(), numbers=[""])
        print()
