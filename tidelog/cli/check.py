"""`tidelog check`: checks the history that the clients of a run recorded for lost, duplicate and reordered records.

The same checker is used for simulated runs, and for real brokers under injected faults.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Annotated

import typer

from tidelog.checker.anomaly import Anomaly
from tidelog.checker.operations import decode
from tidelog.checker.verdict import ACKNOWLEDGED_MIN, FAULTS_MIN, POLLS_MIN, Verdict, judge
from tidelog.cli.options import Json
from tidelog.cli.tables import print_table, show
from tidelog.cli.terminal import EXIT_DONE, EXIT_ERROR, CommandError

EXIT_VOID = 2
EXITS = {"valid": EXIT_DONE, "invalid": EXIT_ERROR, "void": EXIT_VOID}
SHOWN_MAX = 20
"""Maximum anomalies of each kind in the table; JSON has all."""


def check(
    path: Annotated[Path, typer.Argument(metavar="FILE", show_default=False, help="A history, in lines of JSON.")],
    acknowledged_min: Annotated[
        int, typer.Option(min=0, metavar="N", help="Void with fewer acknowledged batches.")
    ] = ACKNOWLEDGED_MIN,
    polls_min: Annotated[int, typer.Option(min=0, metavar="N", help="Void with fewer successful polls.")] = POLLS_MIN,
    faults_min: Annotated[int, typer.Option(min=0, metavar="N", help="Void with fewer faults.")] = FAULTS_MIN,
    as_json: Json = False,
) -> None:
    """Check a recorded history of clients: is any record lost, duplicate, or out of order?

    The history is recorded by tidelog.testing.Recording. Exit status 1 if something is wrong, 2 if too little happened
    for a verdict.

    \b
    Examples:
      tidelog check history.jsonl
      tidelog check --faults-min 0 --json history.jsonl
    """
    gc.disable()  # a million small objects that all live until the end: looking for garbage takes longer than judging
    try:
        verdict = judge(
            decode(path.read_bytes()),
            acknowledged_min=acknowledged_min,
            polls_min=polls_min,
            faults_min=faults_min,
        )
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise CommandError(f"{path} cannot be judged: {error}") from None
    finally:
        gc.enable()
    show(verdict, _print, as_json=as_json, document=_document)
    raise typer.Exit(EXITS[verdict.word])


def _document(verdict: Verdict) -> dict[str, object]:
    return {
        "verdict": verdict.word,
        "void": list(verdict.void),
        "acknowledged_batches": verdict.acknowledged,
        "polls": verdict.polls,
        "records_read": verdict.records_read,
        "views": verdict.views,
        "faults": verdict.faults,
        "realtime_lag": {"seconds": verdict.lag.seconds, "key": verdict.lag.key, "offset": verdict.lag.offset},
        "anomalies": [
            {"kind": anomaly.kind, "key": anomaly.key, "text": anomaly.text} for anomaly in verdict.anomalies
        ],
    }


def _print(verdict: Verdict) -> None:
    rows = [
        ("acknowledged batches", verdict.acknowledged),
        ("polls", verdict.polls),
        ("records read", verdict.records_read),
        ("replicas read at the end", verdict.views),
        ("faults", verdict.faults),
        *sorted(verdict.kinds.items()),
    ]
    print_table(["what happened", "times"], rows)
    lag = verdict.lag
    if lag.key:
        print(f"\nthe worst lag: {lag.reader} lacks offset {lag.offset} of {lag.key}, {lag.seconds:.3f} s old")
    for kind in verdict.kinds:
        _print_kind([anomaly for anomaly in verdict.anomalies if anomaly.kind == kind])
    for reason in verdict.void:
        print(f"\n{reason}")
    print(f"\n{verdict.word}")


def _print_kind(anomalies: list[Anomaly]) -> None:
    print()
    for anomaly in anomalies[:SHOWN_MAX]:
        print(anomaly)
    if len(anomalies) > SHOWN_MAX:
        print(f"and {len(anomalies) - SHOWN_MAX} more of these")
