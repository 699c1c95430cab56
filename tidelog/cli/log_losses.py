"""`tidelog log accept-loss` and `tidelog log losses`: an operator gives up lost records, and the audit records
of that."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer
from msgspec import to_builtins

from tidelog.admin import AdminClient
from tidelog.cli.connection import ask
from tidelog.cli.options import Bootstrap, Execute, Json
from tidelog.cli.tables import print_table, show
from tidelog.cli.terminal import EXIT_ERROR, UsageError, counted
from tidelog.transport.addresses import DEFAULT_BOOTSTRAP
from tidelog.transport.losses import AcceptedLoss, DamagedPiece, LossesJudged, Remains, Statement

TIME_SHOWN_MAX_MS = 253_402_300_799_000
"""The last representable time, the end of the year 9999 (ms)."""
OFFSETS = re.compile(r"(\d{1,19})(?:-(\d{1,19}))?", re.ASCII)


def accept_loss(
    topic: Annotated[str, typer.Option(metavar="TOPIC", help="The topic.")],
    partition: Annotated[int, typer.Option(min=0, metavar="P", help="The partition.")],
    offsets: Annotated[
        str | None,
        typer.Option(metavar="A-B", help="Only damage in these offsets, first and last. They are read first."),
    ] = None,
    even_though: Annotated[
        list[int] | None,
        typer.Option(min=0, metavar="NODE", help="A broker that may have a good copy and cannot be asked; repeatable."),
    ] = None,
    votes: Annotated[
        bool,
        typer.Option(
            "--votes",
            help="Nobody can lead the partition: go on from what is left, without the replicas that are gone.",
        ),
    ] = False,
    execute: Execute = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Give up batches that are damaged on every replica, so that readers skip them; or, with --votes, lost replicas.

    All replicas of the partition are asked for their state. Rejected if nothing is damaged, if a replica has an
    undamaged copy, and if one cannot be asked, unless --even-though names it. What is given up stays given up: a copy
    that turns up later is not shown. The user and the replicas' answers are recorded (`tidelog log losses`). Exit
    status 1 if it is, or would be, rejected.

    With --votes, a partition that can elect no leader continues from what the responding replicas have: its in-sync
    replicas are gone, or, with commit.protocol=paxos, a majority of its voters. What only the other replicas had is
    given up, also if they return. Rejected if there is a leader or one can be elected, and while a broker cannot be
    asked.

    \b
    Examples:
      tidelog log accept-loss --topic flights --partition 0
      tidelog log accept-loss --topic flights --partition 0 --offsets 1200-1299 --execute
      tidelog log accept-loss --topic flights --partition 0 --even-though 3 --execute
      tidelog log accept-loss --topic flights --partition 0 --votes
      tidelog log accept-loss --topic flights --partition 0 --votes --even-though 1 --execute
    """
    if votes and offsets is not None:
        raise UsageError("--votes is about a whole partition: --offsets does not go with it")
    parsed = None if offsets is None else _parsed(offsets)
    judged = ask(
        bootstrap,
        lambda admin: admin.accept_loss(
            topic, partition, parsed, even_though=even_though or (), votes=votes, validate_only=not execute
        ),
    )
    show(judged, lambda outcome: _print_judged(f"{topic}-{partition}", outcome, is_done=execute), as_json=as_json)
    if judged.refusals:
        raise typer.Exit(EXIT_ERROR)


def losses(
    topic: Annotated[str | None, typer.Option(metavar="TOPIC", help="Only this one's.")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """List the offsets that were given up, by whom, and the replicas' answers.

    `tidelog cluster describe` lists what `tidelog cluster recover` gave up of the metadata.

    \b
    Examples:
      tidelog log losses
      tidelog log losses --topic flights --json
    """

    async def look(admin: AdminClient) -> tuple[list[AcceptedLoss], int]:
        recoveries = () if topic is not None or as_json else (await admin.describe_cluster()).recoveries
        return await admin.list_losses(topic), len(recoveries)

    accepted, recoveries_count = ask(bootstrap, look)
    show(accepted, _print_losses, as_json=as_json, document=to_builtins)
    if recoveries_count:
        recovered = counted(recoveries_count, "time")
        print(f"the metadata log was recovered {recovered}: `tidelog cluster describe` lists what was given up with it")


def _parsed(offsets: str) -> tuple[int, int]:
    """Parses `A-B` or `A`, the first and last offset, and returns [start, end)."""
    match = OFFSETS.fullmatch(offsets)
    first = int(match[1]) if match else 0
    last = int(match[2] or first) if match else -1
    if last < first:
        raise UsageError(f"--offsets takes two numbers, the first and the last offset, as in 10-19, not {offsets!r}")
    return first, last + 1


def _print_judged(name: str, judged: LossesJudged, *, is_done: bool) -> None:
    if judged.pieces:
        print_table(["offsets", "newest record", "bytes", "replicas", "digest"], map(_piece_row, judged.pieces))
    for piece in judged.pieces:
        if piece.kept_because is not None:
            print(f"kept: {piece.kept_because}")
    for loss in judged.accepted_before:
        print(f"{_offsets(loss)} given up already, by {loss.accepted_by} at {shown_time(loss.accepted_at_ms)}")
    if judged.remains is not None:
        _print_remains(name, judged, judged.remains, is_done=is_done)
    for refusal in judged.refusals:
        print(f"refused: {refusal}")
    lost = [piece for piece in judged.pieces if piece.kept_because is None]
    offsets = sum(piece.end_offset - piece.start_offset for piece in lost)
    if judged.accepted and lost:
        print(f"{name}: {counted(offsets, 'offset')} given up")
    elif lost and not judged.refusals and not is_done:
        print(f"{name}: {counted(offsets, 'offset')} would be given up; --execute does it")
    if not judged.is_whole:
        print("there is more than one command gives up: repeat it")


def _print_remains(name: str, judged: LossesJudged, remains: Remains, *, is_done: bool) -> None:
    print_table(["broker", "has"], [[said.broker_id, said.status] for said in remains.statements])
    if judged.refusals or judged.accepted_before:
        return
    brokers = ", ".join(map(str, remains.brokers))
    goes_on = f"from offset {remains.end_offset} with {'brokers' if len(remains.brokers) > 1 else 'broker'} {brokers}"
    if remains.source is not None:
        goes_on += f", by the log of broker {remains.source}"
    if judged.accepted:
        print(f"{name} goes on {goes_on}; what others had behind it is given up")
    elif not is_done:
        print(f"{name} would go on {goes_on}; what others had behind it would be given up; --execute does it")


def _piece_row(piece: DamagedPiece) -> list[object]:
    newest = None if piece.max_timestamp is None or piece.max_timestamp < 0 else shown_time(piece.max_timestamp)
    return [_offsets(piece), newest, piece.bytes, _said(piece.statements), piece.digest]


def _print_losses(accepted: Sequence[AcceptedLoss]) -> None:
    if not accepted:
        print("nothing was given up")
        return
    rows = [
        [
            loss.topic_name,
            loss.partition_id,
            _offsets(loss),
            shown_time(loss.accepted_at_ms),
            f"{loss.accepted_by} via broker {loss.accepted_via}",
            _said(loss.statements),
            ", ".join(loss.digests) or None,
        ]
        for loss in accepted
    ]
    print_table(["topic", "partition", "offsets", "when", "who", "replicas", "digests"], rows)


def _offsets(of: DamagedPiece | AcceptedLoss) -> str:
    if isinstance(of, AcceptedLoss) and of.given_up == "votes":
        return "votes" if of.start_offset < 0 else f"votes, from {of.start_offset} on"
    return f"{of.start_offset}-{of.end_offset - 1}"


def _said(statements: Sequence[Statement]) -> str:
    return ", ".join(f"{said.broker_id} {said.status}" for said in statements)


def shown_time(timestamp_ms: int) -> str:
    if timestamp_ms > TIME_SHOWN_MAX_MS:
        return f"{timestamp_ms} ms"
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(sep=" ", timespec="seconds")
