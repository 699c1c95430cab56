"""`tidelog cluster recover`: restarts a cluster whose majority of voters is lost, by the operator's decision."""

from __future__ import annotations

import getpass
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from tidelog.adapters.system import SystemEntropy, host_name
from tidelog.cli.data_dir import unused
from tidelog.cli.imports import imported
from tidelog.cli.options import Execute, Json
from tidelog.cli.terminal import CommandError, print_json
from tidelog.model.errors import TidelogError
from tidelog.storage.data_directory import check_format
from tidelog.storage.disk_files import DiskFiles
from tidelog.storage.log_manager import LogManager

if TYPE_CHECKING:
    from tidelog.broker.metadata.recovery import RecoveryPlan
    from tidelog.broker.metadata.remains import Remains

OPEN_FILES_MAX = 256


def recover(
    data_dir: Annotated[
        list[str], typer.Option("--data-dir", metavar="DIR", help="A broker's data directory; one for each.")
    ],
    execute: Execute = False,
    as_json: Json = False,
) -> None:
    """Recover the metadata log when a majority of its voters is lost permanently.

    All brokers must be stopped, and the data directories of all surviving brokers be given, on one machine. The cluster
    keeps its id and continues from the latest metadata in these directories; what is given up is shown first. Brokers
    that were not given are rejected afterwards. Nothing is removed from any directory.

    \b
    Examples:
      tidelog cluster recover --data-dir b1/data --data-dir b2/data --data-dir b3/data
      tidelog cluster recover --data-dir b1/data --data-dir b2/data --data-dir b3/data --execute
    """
    names = [str(Path(name)) for name in dict.fromkeys(data_dir)]
    for name in names:
        if not Path(name).is_dir():
            raise CommandError(f"{name} is no directory; --data-dir names one that a broker keeps its data in")
    with ExitStack() as stack:
        try:
            managers = _claimed(stack, names, execute=execute)
            plan = _plan(names)
            if execute:
                by = f"{getpass.getuser()}@{host_name()}"
                imported("tidelog.broker.metadata.recovery").carry_out(plan, managers, int(time.time() * 1000), by)
        except TidelogError as error:
            raise CommandError(f"{error.message} ({error.code})") from None
        except OSError as error:
            raise CommandError(f"{error.filename}: {error.strerror}; the command can be repeated") from None
    if as_json:
        print_json(_document(plan, is_done=execute))
    else:
        _print(plan, is_done=execute)


def _claimed(stack: ExitStack, names: list[str], *, execute: bool) -> dict[str, LogManager]:
    """Locks the directories against brokers, and opens them; in a dry run without changing anything."""
    managers = {}
    for name in names:
        check_format(DiskFiles(name))
        if not execute:
            stack.enter_context(unused(name))
            continue
        manager = LogManager(DiskFiles(name), open_max=OPEN_FILES_MAX, new_incarnation=lambda: uuid4().hex)
        stack.callback(manager.close, {})
        manager.identity.settle()
        managers[name] = manager
    return managers


def _plan(names: list[str]) -> RecoveryPlan:
    look = imported("tidelog.broker.metadata.remains").look
    plan: RecoveryPlan = imported("tidelog.broker.metadata.recovery").plan_recovery(
        [look(name, DiskFiles(name)) for name in names], SystemEntropy()
    )
    return plan


def _document(plan: RecoveryPlan, *, is_done: bool) -> dict[str, Any]:
    return {
        "cluster_id": plan.cluster_id,
        "generation": plan.generation,
        "recovery_id": plan.recovery_id if is_done else None,
        "position": plan.restored.position,
        "directories": [
            {
                "data_dir": remains.name,
                "broker_id": remains.node_id,
                "position": remains.position if remains.has_log or remains.snapshot else None,
                "damage": remains.damage,
            }
            for remains in plan.given
        ],
        "unproven": list(plan.restored.unproven),
        "given_up": list(plan.given_up),
        "topics": list(plan.restored.image.topics),
        "is_done": is_done,
    }


def _end(remains: Remains) -> str:
    if remains.has_log:
        return f"its metadata log ends at position {remains.position}"
    snapshot = "" if remains.snapshot is None else f"; a snapshot goes up to position {remains.position}"
    return f"no metadata log can be read there{snapshot}"


def _print(plan: RecoveryPlan, *, is_done: bool) -> None:
    image = plan.restored.image
    recovery = f" (recovery {plan.recovery_id})" if is_done else ""
    print(
        f"cluster {plan.cluster_id}: generation {plan.generation}{recovery}, from position {plan.restored.position}\n"
    )
    for remains in plan.given:
        print(f"{remains.name}: broker {remains.node_id}, {_end(remains)}")
        for damage in remains.damage:
            print(f"  {damage}")
    print(f"\ngoes on with {len(image.topics)} topics: {', '.join(image.topics) or 'none'}")
    print(f"the first voter is broker {plan.base.node_id}, in {plan.base.name}")
    if plan.restored.unproven:
        positions = ", ".join(map(str, plan.restored.unproven))
        print(f"taken over, though no directory knows them to be chosen: positions {positions}")
    print("\ngiven up:")
    for sentence in plan.given_up:
        print(f"  {sentence}")
    print("\ndone; start the brokers" if is_done else "\nnothing was changed; --execute does it")
