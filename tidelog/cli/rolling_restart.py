"""`tidelog cluster restart`: restarts the brokers one after the other, and waits for each."""

from __future__ import annotations

import asyncio
import shlex
import sys
from typing import Annotated, Final

import typer

from tidelog.admin import AdminClient
from tidelog.admin.rolling import not_back, not_whole, restart_order
from tidelog.cli.cluster_watch import ClusterWatch
from tidelog.cli.connection import ask
from tidelog.cli.options import Bootstrap, Json
from tidelog.cli.terminal import CommandError, UsageError, print_json
from tidelog.transport.addresses import DEFAULT_BOOTSTRAP

WAIT_S: Final = 300.0


def restart(
    command: Annotated[
        str,
        typer.Option(
            metavar="COMMAND",
            help="Restarts one broker, run by a shell; {node}, {host} and {rack} stand for the broker's.",
        ),
    ],
    rolling: Annotated[bool, typer.Option("--rolling", help="One after the other; there is no other way.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be run, in order.")] = False,
    wait_s: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", min=1.0, help="The longest wait, for each broker.")
    ] = WAIT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Restart all brokers, one after the other, without interrupting clients.

    Rack by rack, the controller last. Before each broker it waits until all replicas are in sync, all voters live and
    all brokers up to date; afterwards until that broker is back, and all of that holds again. It stops at the first
    failure, with exit status 1; the remaining brokers keep running unchanged.

    \b
    Examples:
      tidelog cluster restart --rolling --command 'ssh {host} systemctl restart tidelog'
      tidelog cluster restart --rolling --command 'systemctl restart tidelog@{node}' --dry-run
    """
    if not rolling:
        raise UsageError("brokers that all stop at once serve nobody; say --rolling to have one after the other")
    _filled(command, 0, "", "")
    steps = ask(bootstrap, lambda admin: Restart(admin, command, wait_s, is_quiet=as_json).run(is_dry=dry_run))
    if as_json:
        print_json({"brokers": steps, "outcome": "planned" if dry_run else "restarted"})
    elif dry_run:
        for step in steps:
            print(f"broker {step['broker_id']}: {step['command']}")


def _filled(command: str, node: int, host: str, rack: str) -> str:
    try:
        return command.format(node=node, host=shlex.quote(host), rack=shlex.quote(rack))
    except (KeyError, IndexError, ValueError, AttributeError):
        raise UsageError("--command may hold {node}, {host} and {rack}; other braces are written twice") from None


class Restart:
    """The state of one rolling restart: it stops and starts the brokers of a cluster one after the other."""

    def __init__(self, admin: AdminClient, command: str, wait_s: float, *, is_quiet: bool) -> None:
        self._admin = admin
        self._command = command
        self._wait_s = wait_s
        self._watch = ClusterWatch(admin, wait_s)
        self._is_quiet = is_quiet

    async def run(self, *, is_dry: bool) -> list[dict[str, object]]:
        """Restarts all brokers, and returns the command run for each. Raises `CommandError` at the first failure."""
        cluster = await self._admin.describe_cluster()
        brokers = {broker.broker_id: broker for broker in cluster.brokers}
        steps: list[dict[str, object]] = []
        for node in restart_order(cluster):
            line = _filled(self._command, node, brokers[node].host, brokers[node].rack or "")
            if not is_dry:
                await self._restart(node, line)
            steps.append({"broker_id": node, "command": line})
        return steps

    async def _restart(self, node: int, line: str) -> None:
        before = await self._watch.until(not_whole, f"broker {node} was not restarted")
        self._say(f"broker {node}: {line}")
        await self._execute(node, line)
        epoch = before.epoch_of(node)
        await self._watch.until(
            lambda state: not_back(state, node, epoch), f"broker {node} did not come back as it was"
        )
        self._say(f"broker {node}: is back")

    async def _execute(self, node: int, line: str) -> None:
        process = await asyncio.create_subprocess_shell(line, stdin=asyncio.subprocess.DEVNULL, stdout=sys.stderr)
        try:
            async with asyncio.timeout(self._wait_s):
                status = await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise CommandError(f"broker {node}: the command did not end in {self._wait_s:g} s: {line}") from None
        if status:
            raise CommandError(f"broker {node}: the command ended with status {status}: {line}")

    def _say(self, text: str) -> None:
        if not self._is_quiet:
            print(text, flush=True)
