"""Waiting for a cluster: `tidelog cluster wait`, and the waits of `tidelog cluster restart`.

The condition: the brokers are live, all voters are live, and all replicas are in sync.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Annotated, Final

import typer

from tidelog.admin import AdminClient
from tidelog.admin.rolling import ClusterState, not_whole
from tidelog.cli.connection import connected, run
from tidelog.cli.options import Bootstrap, Json
from tidelog.cli.security import client_arguments
from tidelog.cli.terminal import CommandError, print_json
from tidelog.model.errors import TidelogError
from tidelog.transport.addresses import DEFAULT_BOOTSTRAP

WAIT_S: Final = 60.0
LOOK_S: Final = 0.5


def wait(
    brokers: Annotated[int, typer.Option(metavar="NUMBER", min=1, help="At least so many brokers.")] = 1,
    wait_s: Annotated[float, typer.Option("--wait", metavar="SECONDS", min=1.0, help="The longest wait.")] = WAIT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Wait until the brokers are live, all voters are live, and all replicas are in sync.

    For scripts that have just started or stopped brokers. Exit status 1 on timeout, with a message about what is
    missing.

    \b
    Examples:
      tidelog start & tidelog cluster wait
      tidelog cluster wait --brokers 3 --wait 120
    """

    def trouble(state: ClusterState) -> str:
        number = len(state.cluster.brokers)
        return not_whole(state) or (f"{number} of {brokers} brokers have joined" if number < brokers else "")

    cluster = run(_connect_and_wait(bootstrap, wait_s, trouble)).cluster
    if as_json:
        print_json({"cluster_id": cluster.cluster_id, "brokers": [broker.broker_id for broker in cluster.brokers]})
    else:
        number = len(cluster.brokers)
        print(f"cluster {cluster.cluster_id} is whole: {number} broker{'s' if number > 1 else ''}")


async def _connect_and_wait(bootstrap: str, wait_s: float, trouble: Callable[[ClusterState], str]) -> ClusterState:
    failure, ends_s = "the cluster is not whole", time.monotonic() + wait_s
    while True:
        try:
            async with connected(AdminClient(bootstrap, **client_arguments()), bootstrap) as admin:
                return await ClusterWatch(admin, wait_s).until(trouble, failure, ends_s)
        except TidelogError as error:  # no broker serves yet
            if time.monotonic() >= ends_s:
                raise CommandError(f"{failure}: after {wait_s:g} s, {error.message}") from error
        await asyncio.sleep(LOOK_S)


class ClusterWatch:
    """Polls the state of a cluster."""

    def __init__(self, admin: AdminClient, wait_s: float) -> None:
        self._admin = admin
        self._wait_s = wait_s

    async def until(
        self, trouble: Callable[[ClusterState], str], failure: str, ends_s: float | None = None
    ) -> ClusterState:
        """Waits until `trouble` returns an empty text, and returns the cluster's state. Raises `CommandError` after
        `ends_s`, which is `wait_s` from now by default."""
        if ends_s is None:
            ends_s = time.monotonic() + self._wait_s
        while True:
            try:
                state = await self._look()
                reason = trouble(state)
                if not reason:
                    return state
            except TidelogError as error:
                reason = f"the cluster does not answer: {error.message}"
            if time.monotonic() >= ends_s:
                raise CommandError(f"{failure}: after {self._wait_s:g} s, {reason}")
            await asyncio.sleep(LOOK_S)

    async def _look(self) -> ClusterState:
        cluster = await self._admin.describe_cluster()
        states = await self._admin.broker_states(cluster.brokers)
        positions = {node: None if state is None else state.metadata_position for node, state in states.items()}
        return ClusterState(cluster, await self._admin.describe_topics(), positions)
