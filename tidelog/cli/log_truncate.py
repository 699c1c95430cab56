"""`tidelog log truncate`: deletes the beginning of a standalone replicated log.

Only the writer of a log knows which entries are no longer needed, for example because a later snapshot covers them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from tidelog.cli.log_replica import Address, SecretFile, Servers, make_client, parse_servers
from tidelog.cli.terminal import CommandError
from tidelog.model.errors import TidelogError

TRUNCATE_S_MAX = 30.0


def truncate(
    begin: Annotated[int, typer.Option("--to", min=0, metavar="P", help="The first position that is kept.")],
    servers: Servers = None,
    secret_file: SecretFile = None,
) -> None:
    """Delete the entries of a replicated log before a position, permanently.

    Every voter must run and have these entries on its disk; otherwise nothing is deleted, and the exit status is 1. A
    log that starts later already stays unchanged. Replicas that join afterwards have the log from this position on.
    Disk space is freed in segments of the journal (32 MiB).

    \b
    Examples:
      tidelog log truncate --servers a:5050,b:5050,c:5050 --to 100000
    """
    try:
        begins = asyncio.run(_truncate(parse_servers(servers), secret_file, begin))
    except TidelogError as error:
        raise CommandError(f"the log cannot be truncated: {error.message}") from None
    print(f"the log begins at position {begins}")


async def _truncate(servers: Sequence[Address], secret_file: str | None, begin: int) -> int:
    client = make_client(servers, secret_file)
    try:
        return await client.truncate(begin, deadline_s=TRUNCATE_S_MAX)
    finally:
        await client.close()
