"""`tidelog log init` and `tidelog log replica`: a standalone replicated log, after the tools of Mesos.

Mesos' `initialize` lets a replica vote even if it has forgotten its promises, and its `replica` takes the size of the
group from the operator at each start. Here a replica votes if all others agree that the log is new, or if the log
itself lists it as a voter. So `--quorum` is only checked.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.imports import imported
from tidelog.cli.terminal import CommandError, UsageError, counted, one_line
from tidelog.config.errors import ConfigError
from tidelog.config.values import split_address
from tidelog.model.errors import TidelogError

if TYPE_CHECKING:
    from tidelog.broker.consensus.messages import QuorumDescribed
    from tidelog.standalone.client import LogClient

Address = tuple[str, int]
Directory = Annotated[str, typer.Option("--path", metavar="DIR", help="The replica's directory.", show_default=False)]
Servers = Annotated[
    str | None,
    typer.Option(
        "--servers",
        metavar="HOST:PORT,...",
        help="All replicas of the log, in one order everywhere, this one included.",
        show_default=False,
    ),
]
SecretFile = Annotated[
    str | None,
    typer.Option(
        "--secret-file",
        metavar="FILE",
        help="The secret of the log's replicas and their programs, with mode 600; the same for all.",
        show_default=False,
    ),
]


def init(path: Directory, servers: Servers = None, secret_file: SecretFile = None) -> None:
    """Create an empty replica of a new log, which may found it with others.

    DIR must be empty, or not exist. With --servers this is rejected if one of them already knows the log: promises of a
    lost disk remain binding, so a replica whose disk was wiped is not initialised but started with an empty directory;
    it joins again, catches up, and then votes.

    \b
    Examples:
      tidelog log init --path r1
      tidelog log init --path r1 --servers 10.0.0.1:5050,10.0.0.2:5050,10.0.0.3:5050
    """
    silent = 0 if servers is None else _refuse_known(parse_servers(servers), secret_file)
    process = imported("tidelog.standalone.process")
    try:
        process.initialise_directory(path)
    except TidelogError as error:
        raise CommandError(f"{path} cannot be initialised: {error.message}") from None
    except OSError as error:
        raise CommandError(f"{path} cannot be initialised: {error.strerror}") from None
    if silent:
        print(f"notice: {counted(silent, 'server')} did not answer, and may know a log", file=sys.stderr)
    print(f"{path}: an empty replica, which may found a log; `tidelog log replica --path {path}` runs it")


def _refuse_known(servers: Sequence[Address], secret_file: str | None) -> int:
    """Returns the number of servers that did not respond. Raises `CommandError` if a responding one already has
    a log."""
    described = asyncio.run(_describe(servers, secret_file))
    for (host, port), quorum in zip(servers, described, strict=True):
        if quorum is not None and quorum.cluster_id:
            raise CommandError(
                f"the replica at {host}:{port} is of log {quorum.cluster_id}, which is not to be begun again. To bring "
                "back a replica that lost its disk, run `tidelog log replica` on an empty directory without `init`"
            )
    return sum(quorum is None for quorum in described)


async def _describe(servers: Sequence[Address], secret_file: str | None) -> list[QuorumDescribed | None]:
    client = make_client(servers, secret_file)
    try:
        described = await client.describe()
        if client.refusal:
            raise CommandError(f"a server refuses this program: {client.refusal}")
        return described
    finally:
        await client.close()


def make_client(servers: Sequence[Address], secret_file: str | None) -> LogClient:
    """Returns a client of a replicated log, on a running event loop. Raises `CommandError` if the secret's file is
    invalid."""
    try:
        client: LogClient = imported("tidelog.standalone.process").make_client(servers, secret_file)
    except ConfigError as error:
        raise CommandError(error.message) from None
    return client


def replica(
    path: Directory,
    servers: Servers = None,
    quorum: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="How many make a majority; checked.", show_default=False)
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Which of the servers this is; it remembers.", show_default=False),
    ] = None,
    secret_file: SecretFile = None,
    allow_insecure: Annotated[
        bool, typer.Option("--allow-insecure", help="Let strangers on other machines reach it, without a secret.")
    ] = False,
) -> None:
    """Run one replica of a log, until SIGTERM or Ctrl-C.

    Initialised replicas found the log together, once all of them run. One with an empty directory asks the others for
    their log, follows it, and votes when it has caught up: as a new voter that replaces the former one of this server.
    It prints one line when it votes: tidelog: replica HOST:PORT votes log=ID node=N

    \b
    Examples:
      tidelog log replica --path r1 --quorum 1 --servers 127.0.0.1:5051
      tidelog log replica --path r2 --quorum 2 --servers a:5050,b:5050,c:5050 --listen b:5050 --secret-file log.secret
    """
    addresses = parse_servers(servers)
    _check_quorum(quorum, len(addresses))
    process = imported("tidelog.standalone.process")
    node_id = _position(path, addresses, listen)
    try:
        failure: str = process.run_replica(
            node_id, path, addresses, partial(print, flush=True), secret_file, allow_insecure=allow_insecure
        )
    except TidelogError as error:
        raise CommandError(f"{path}: {one_line(error.message)}") from None
    except OSError as error:
        raise CommandError(f"the replica cannot run: {error}") from None
    if failure:
        raise CommandError(failure)


def parse_servers(text: str | None) -> list[Address]:
    """Parses `--servers`. Raises `UsageError`."""
    if text is None:
        raise UsageError("--servers is missing; name all replicas of the log, as in --servers a:5050,b:5050,c:5050")
    addresses = []
    for word in text.split(","):
        try:
            address = split_address(word.strip())
        except ValueError as error:
            raise UsageError(f"--servers {word.strip()!r}: {error}") from None
        if address[1] == 0 or address in addresses:
            raise UsageError(f"--servers {word.strip()!r}: each server has an address, and a port, of its own")
        addresses.append(address)
    return addresses


def _check_quorum(quorum: int | None, servers: int) -> None:
    majority = servers // 2 + 1
    if quorum not in (None, majority):
        raise UsageError(
            f"--quorum {quorum} is no majority of {counted(servers, 'server')}, which is {majority}: with fewer two "
            "values could be chosen, with more nothing is won"
        )


def _position(path: str, servers: Sequence[Address], listen: str | None) -> int:
    """Returns the position of this server among the servers, counted from 1: by --listen, by its directory, or the only
    one."""
    if listen is not None:
        (address,) = parse_servers(listen)
        if address not in servers:
            raise UsageError(f"--listen {listen} is none of --servers")
        return servers.index(address) + 1
    node_id: int = imported("tidelog.standalone.process").node_id_of(path) if Path(path).is_dir() else 0
    if node_id > len(servers):
        raise UsageError(f"{path} belongs to server {node_id}, and --servers names only {len(servers)}")
    if not node_id and len(servers) > 1:
        raise UsageError("--listen is missing; say which of --servers this replica is")
    return node_id or 1
