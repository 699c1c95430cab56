"""`tidelog user`: users with passwords. A password comes from a prompt, standard input or a file, never from the
command line, where other users of the machine could read it."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from tidelog.adapters.secret_file import read_secret
from tidelog.admin import AdminClient
from tidelog.admin.access import UserDescription
from tidelog.cli.connection import ask
from tidelog.cli.options import Bootstrap, Json
from tidelog.cli.tables import print_table, show
from tidelog.cli.terminal import UsageError, say
from tidelog.transport.addresses import DEFAULT_BOOTSTRAP

STANDARD_INPUT = 0

app = typer.Typer(help="Make, list and remove users, and change their passwords.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
PasswordFile = Annotated[
    str | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="A file that only you can read (0600); - is standard input. Default: a prompt.",
        show_default=False,
    ),
]


@app.command()
def add(
    name: Name,
    password_file: PasswordFile = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Make a user, without any rights: `tidelog acl add` grants them.

    \b
    Examples:
      tidelog user add alice
      pass show tidelog/alice | tidelog user add alice --password-file -
    """
    password = _password(password_file)
    ask(bootstrap, lambda admin: admin.create_user(name, password))
    say({"user_name": name}, f"made user {name}", as_json=as_json)


@app.command("list")
def list_users(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """List the users that have a password.

    \b
    Example:
      tidelog user list --json
    """
    show(ask(bootstrap, AdminClient.list_users), print_users, as_json=as_json)


@app.command()
def passwd(
    name: Name,
    password_file: PasswordFile = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Change a user's password; the old one is rejected at once.

    \b
    Example:
      tidelog user passwd alice
    """
    password = _password(password_file)
    ask(bootstrap, lambda admin: admin.set_password(name, password))
    say({"user_name": name}, f"user {name} has another password", as_json=as_json)


@app.command()
def remove(name: Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Delete a user, and all its tokens. ACLs that name it stay.

    \b
    Example:
      tidelog user remove alice
    """
    ask(bootstrap, lambda admin: admin.delete_user(name))
    say({"user_name": name}, f"removed user {name}", as_json=as_json)


def print_users(users: Sequence[UserDescription]) -> None:
    """Prints a table of users, or that there are none."""
    if not users:
        print("there are no users")
        return
    print_table(["user", "scram"], [[user.user_name, ",".join(user.scram_mechanisms)] for user in users])


def _password(file: str | None) -> str:
    if file == "-":
        with open(STANDARD_INPUT, encoding="utf-8", closefd=False) as given:
            return given.readline().rstrip("\r\n")
    if file is not None:
        return read_secret(file)
    if not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask for the password; give --password-file FILE, or - for this input")
    password = getpass.getpass("Password: ")
    if getpass.getpass("Again: ") != password:
        raise UsageError("the two are not the same; nothing was done")
    return password
