"""`tidelog token`: creates, lists and revokes tokens, whose secrets are shown once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer

from tidelog.admin import AdminClient
from tidelog.admin.access import TokenDescription
from tidelog.cli.connection import ask
from tidelog.cli.options import Bootstrap, Json
from tidelog.cli.tables import print_table, show
from tidelog.cli.terminal import CommandError, print_json, say
from tidelog.transport.addresses import DEFAULT_BOOTSTRAP

app = typer.Typer(help="Make, list and revoke tokens.", no_args_is_help=True)

DAY_MS = 24 * 60 * 60 * 1000


@app.command()
def add(
    principal: Annotated[str, typer.Argument(metavar="PRINCIPAL", help="User:alice", show_default=False)],
    days: Annotated[int | None, typer.Option(min=1, metavar="N", help="It ends after so many.")] = None,
    description: Annotated[str, typer.Option(metavar="TEXT", help="What it is for.", show_default=False)] = "",
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="FILE", help="Write it to a new file (0600) instead.", show_default=False),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Make a token, and show it once: the cluster stores only a hash.

    \b
    Examples:
      tidelog token add User:etl --days 90 --description "nightly job" --to etl.token
      tidelog token add User:etl --json | jq -r .token
    """
    lifetime_ms = None if days is None else days * DAY_MS
    made = ask(bootstrap, lambda admin: admin.create_token(principal, lifetime_ms=lifetime_ms, description=description))
    document = msgspec.to_builtins(made)
    if to is not None:
        _write_new(to, made.token)
        del document["token"]
    if as_json:
        print_json(document)
    else:
        print(f"token {made.token_id} of {principal} is in {to}" if to is not None else made.token)


@app.command("list")
def list_tokens(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """List the tokens that you may manage, without their secrets.

    \b
    Example:
      tidelog token list
    """
    show(ask(bootstrap, AdminClient.list_tokens), print_tokens, as_json=as_json)


@app.command()
def revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="What stands before the dot.", show_default=False)],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Revoke a token: within a second, all brokers reject it.

    \b
    Example:
      tidelog token revoke 5f0c9a3be21d4476
    """
    ask(bootstrap, lambda admin: admin.revoke_token(token_id))
    say({"token_id": token_id}, f"revoked token {token_id}", as_json=as_json)


def print_tokens(tokens: Sequence[TokenDescription]) -> None:
    """Prints a table of tokens, or that there are none."""
    if not tokens:
        print("there are no tokens")
        return
    rows = [
        [
            token.token_id,
            token.principal,
            _moment(token.created_at_ms),
            None if token.expires_at_ms is None else _moment(token.expires_at_ms),
            token.description or None,
        ]
        for token in tokens
    ]
    print_table(["token", "principal", "made", "ends", "description"], rows)


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def _write_new(path: str, token: str) -> None:
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{token}\n")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}; the token was made: revoke it") from None
