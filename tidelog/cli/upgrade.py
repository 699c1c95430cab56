"""`tidelog cluster upgrade`: raises the cluster's feature level to that of its brokers' new version."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.admin.results import LevelRaised
from tidelog.cli.connection import ask
from tidelog.cli.options import Bootstrap, Json
from tidelog.cli.tables import show
from tidelog.cli.terminal import UsageError
from tidelog.transport.addresses import DEFAULT_BOOTSTRAP


def upgrade(
    finalize: Annotated[bool, typer.Option("--finalize", help="Raise the feature level, for good.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show whether it can be raised.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Raise the feature level of the cluster, after its brokers were upgraded one by one.

    Until then brokers of the old version may return. Afterwards the cluster writes metadata that they cannot read, and
    rejects them. Nothing is raised unless all registered brokers support the new level; those that do not are named.

    \b
    Examples:
      tidelog cluster upgrade --dry-run
      tidelog cluster upgrade --finalize
    """
    if finalize == dry_run:
        raise UsageError("give either --dry-run, to see whether the level can be raised, or --finalize, to raise it")

    raised = ask(bootstrap, lambda admin: admin.raise_feature_level(validate_only=dry_run))
    show(raised, lambda raised: _print(raised, dry_run=dry_run), as_json=as_json)


def _print(raised: LevelRaised, *, dry_run: bool) -> None:
    if raised.before == raised.feature_level:
        print(f"the cluster is at feature level {raised.feature_level}, the highest that its brokers speak")
    elif dry_run:
        print(f"the feature level would be raised from {raised.before} to {raised.feature_level}")
    else:
        print(f"the feature level was raised from {raised.before} to {raised.feature_level}")
