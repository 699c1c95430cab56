"""`tidelog log`: reads and verifies the logs on the disk of a stopped broker, and standalone replicated logs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import Annotated

import typer

from tidelog.cli.data_dir import StoredLog, containing, stored
from tidelog.cli.log_benchmark import benchmark
from tidelog.cli.log_cluster import broker_document, print_brokers, verify_cluster
from tidelog.cli.log_files import check_files
from tidelog.cli.log_losses import accept_loss, losses
from tidelog.cli.log_read import read
from tidelog.cli.log_replica import init, replica
from tidelog.cli.log_slots import Objects, batch_records, explained, payload_objects
from tidelog.cli.log_truncate import truncate
from tidelog.cli.options import Bootstrap, Json
from tidelog.cli.tables import byte_progress, print_table
from tidelog.cli.terminal import EXIT_ERROR, CommandError, UsageError, counted, print_json
from tidelog.model.errors import TidelogError
from tidelog.storage.dump import Dumped, dump_batches, dump_rows
from tidelog.storage.segment import Damage
from tidelog.storage.slot_store import SlotStore
from tidelog.storage.verify import verify as verify_log
from tidelog.transport.addresses import DEFAULT_BOOTSTRAP

app = typer.Typer(
    help="Look into the data of a stopped broker; verify it, or a cluster's; run, read and measure a replicated log.",
    no_args_is_help=True,
)
for _command in (init, replica, read, truncate, benchmark, accept_loss, losses):
    app.command()(_command)

DEFAULT_DATA_DIR = "tidelog-data"
DAMAGE_SHOWN_MAX = 20

DataDir = Annotated[str, typer.Option(metavar="DIR", envvar="TIDELOG_LOG_DIR", help="Where the broker keeps its data.")]


@dataclass(slots=True)
class Check:
    """The result of verifying one log. `damage` are offsets lost on this disk, `findings` sentences about them.
    `rewritten` are damaged entries without a loss, since a later entry has the same slot."""

    topic: str
    partition: int
    directory: str
    is_journal: bool
    log_start_offset: int = 0
    log_end_offset: int = 0
    segments: int = 0
    bytes: int = 0
    bad_rows: int = 0
    damage: list[Damage] = field(default_factory=list)
    rewritten: list[Damage] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    error: str | None = None
    amnesia: str | None = None
    """For a journal: the reason why its Paxos replica has forgotten its promises; None if it has not."""

    @property
    def name(self) -> str:
        """The displayed name of the log."""
        return f"journal:{self.topic}" if self.is_journal else self.topic

    @property
    def is_whole(self) -> bool:
        """True if nothing is damaged. A tail torn by a crash is no damage: it was never acknowledged."""
        return not (self.damage or self.bad_rows or self.error or self.amnesia)


@app.command()
def verify(
    data_dir: DataDir = DEFAULT_DATA_DIR,
    is_of_cluster: Annotated[
        bool, typer.Option("--cluster", help="Compare the replicas of a running cluster instead.")
    ] = False,
    topic: Annotated[str | None, typer.Option(metavar="TOPIC", help="With --cluster: only this one.")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Read and check all files in a data directory.

    Nothing is changed. Exit status 1 if anything is damaged. A tail torn by a crash is no damage: it was never
    acknowledged, and the next start of the broker removes it. Metainfo, snapshots of the metadata and the directory's
    identity are read as well, in both copies where there are two.

    With --cluster, running brokers read and check their replicas up to the high watermark, and the replicas are
    compared. Brokers repair damage while an undamaged copy is left; damage that is repaired within ten seconds is
    reported but is no failure. Offsets with one undamaged copy or none are listed. Without --topic, journals, the
    metadata log, its snapshots and all small files in two copies are verified on each broker as well. Exit status 1 if
    damage remains, a replica differs, or a broker cannot be asked.

    \b
    Examples:
      tidelog log verify
      tidelog log verify --data-dir /var/lib/tidelog --json
      tidelog log verify --cluster --topic flights
    """
    if is_of_cluster:
        if not verify_cluster(bootstrap, topic, as_json=as_json):
            raise typer.Exit(EXIT_ERROR)
        return
    if topic is not None:
        raise UsageError("--topic goes with --cluster; the logs of a data directory are verified together")
    with stored(data_dir) as logs, byte_progress() as progress:
        bar = progress.add_task("verifying", total=sum(log.log_bytes() for log in logs))
        checks = [_check(log, lambda size: progress.advance(bar, size)) for log in logs]
        files = check_files(logs)
    if as_json:
        print_json([*({**asdict(check), "is_whole": check.is_whole} for check in checks), broker_document(files)])
    else:
        _print_checks(checks)
        print()
        print_brokers([files])
    if not (files.is_whole and all(check.is_whole for check in checks)):
        raise typer.Exit(EXIT_ERROR)


@app.command()
def dump(
    path: Annotated[str | None, typer.Argument(metavar="[LOG]", help="A log's directory.", show_default=False)] = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    topic: Annotated[str | None, typer.Option(metavar="TOPIC", help="Only this one's logs.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, metavar="P", help="Only this partition.")] = None,
    with_records: Annotated[bool, typer.Option("--records", help="Each batch's records as well.")] = False,
    with_rows: Annotated[bool, typer.Option("--rows", help="The rows of the catalogs instead of the batches.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
) -> None:
    """Print the contents of log files, batch by batch.

    \b
    Examples:
      tidelog log dump --topic flights --partition 0 --records
      tidelog log dump tidelog-data/metadata --records
      tidelog log dump --rows --json
    """
    if with_rows and with_records:
        raise UsageError("--rows and --records exclude each other: rows say nothing about single records")
    with stored(data_dir) if path is None else containing(path) as logs:
        chosen = [log for log in logs if log.is_of(topic, partition)]
        if not chosen:
            raise CommandError("no log is of that topic and partition; `tidelog log verify` lists all there are")
        for log in chosen:
            if not as_json:
                print(f"{log} in {log.directory}")
            for dumped, records in _rows(log) if with_rows else _batches(log, with_records=with_records):
                _print_dumped(log, dumped, records, as_json=as_json)


# -- verify ------------------------------------------------------------------------------------------------------------


def _check(log: StoredLog, advance: Callable[[int], object]) -> Check:
    check = Check(log.name, log.identity.partition, log.directory, log.is_journal)
    done = 0
    try:
        with log.opened() as (opened, report):
            check.log_start_offset, check.log_end_offset = opened.log_start_offset, opened.log_end_offset
            check.segments, check.bytes = len(opened.segments), opened.log_bytes
            check.damage, check.findings = list(report.damage), report.findings
            for step in verify_log(opened):
                advance(step.bytes_done - done)
                done = step.bytes_done
                check.bad_rows += step.bad_rows
                if step.damage is not None:
                    check.damage.append(step.damage)
        if log.is_journal or (log.has_slots and check.damage):
            _replay(log, check)
    except (OSError, TidelogError) as error:
        check.error = str(error)
    check.damage, check.rewritten = _merged(check.damage), _merged(check.rewritten)
    return check


def _replay(log: StoredLog, check: Check) -> None:
    """Reads the entries of a journal or of the metadata log as a broker does at its start. Moves damage that a later
    entry of the same slot has replaced to `check.rewritten`, and detects a replica that has forgotten its promises
    (`check.amnesia`)."""
    store, stored = SlotStore.look(log.files, log.directory, log.identity)
    with closing(store):
        if not stored.is_amnesiac:
            check.rewritten = [damage for damage in check.damage if store.is_rewritten(damage.start, damage.end)]
            check.damage = [damage for damage in check.damage if damage not in check.rewritten]
        elif log.is_journal:
            check.amnesia = stored.report.findings[-1]


def _merged(damage: list[Damage]) -> list[Damage]:
    """Returns the damaged ranges in order, with overlapping ones merged, since opening and reading the log find the
    same damage."""
    merged: list[Damage] = []
    for damaged in sorted(damage, key=lambda damaged: (damaged.start, damaged.end)):
        if merged and damaged.start <= merged[-1].end:
            merged[-1] = Damage(merged[-1].start, max(merged[-1].end, damaged.end), merged[-1].reason)
        else:
            merged.append(damaged)
    return merged


def _print_checks(checks: list[Check]) -> None:
    rows = [
        [
            check.name,
            check.partition,
            check.log_start_offset,
            check.log_end_offset,
            check.segments,
            check.bytes,
            "whole" if check.is_whole else "DAMAGED",
        ]
        for check in checks
    ]
    print_table(["topic", "partition", "start", "end", "segments", "bytes", "state"], rows)
    for check in checks:
        for line in _explained(check):
            print(f"{check.name}-{check.partition}: {line}")
    damaged = sum(not check.is_whole for check in checks)
    if damaged:
        print(f"{damaged} of {counted(len(checks), 'log')} damaged; a broker serves everything that is not")
    else:
        print(f"{counted(len(checks), 'log')}, all whole")


def _explained(check: Check) -> Iterator[str]:
    if check.error is not None:
        yield f"cannot be opened: {check.error}"
    if check.amnesia is not None:
        yield f"its replica must not vote any more: {check.amnesia}"
    unit = "entries" if check.is_journal else "offsets"
    for damage in check.damage[:DAMAGE_SHOWN_MAX]:
        yield f"{unit} {damage.start}-{damage.end - 1} are lost: {damage.reason}"
    if len(check.damage) > DAMAGE_SHOWN_MAX:
        yield f"and {len(check.damage) - DAMAGE_SHOWN_MAX} more ranges of {unit}; --json lists all"
    if check.rewritten:
        shown = ", ".join(f"{damage.start}-{damage.end - 1}" for damage in check.rewritten[:DAMAGE_SHOWN_MAX])
        more = "" if len(check.rewritten) <= DAMAGE_SHOWN_MAX else " and more"
        yield f"entries {shown}{more} are damaged and were rewritten behind; nothing is lost"
    if check.bad_rows:
        yield f"{counted(check.bad_rows, 'catalog row')} damaged; no record is lost by that alone"
    yield from (f"the next start will say: {finding}" for finding in check.findings)


# -- dump --------------------------------------------------------------------------------------------------------------

Entry = tuple[Dumped, Objects]


def _rows(log: StoredLog) -> Iterator[Entry]:
    return ((row, []) for row in dump_rows(log.files, log.directory, log.identity))


def _batches(log: StoredLog, *, with_records: bool) -> Iterator[Entry]:
    with log.opened() as (opened, _):
        for dumped, data in dump_batches(opened):
            shown = explained(dumped)
            yield shown, _records(log, shown, data) if with_records and data else []


def _records(log: StoredLog, dumped: Dumped, data: bytes) -> Objects:
    if dumped.kind == "BATCH":
        return list(batch_records(log, data))
    return payload_objects(log, str(dumped.fields.get("value")), data)


def _print_dumped(log: StoredLog, dumped: Dumped, records: Objects, *, as_json: bool) -> None:
    if as_json:
        identity = {"topic": log.name, "partition": log.identity.partition, "is_journal": log.is_journal}
        print(json.dumps({**identity, **dumped.as_json(), **({"records": records} if records else {})}))
        return
    print(f"  {dumped}")
    for record in records:
        print(f"    {json.dumps(record, ensure_ascii=False)}")
