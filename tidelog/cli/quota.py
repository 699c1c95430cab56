"""`tidelog quota`: lists, sets and removes the quotas of users, client ids and addresses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from tidelog.admin import AdminClient, QuotaDescription
from tidelog.cli.connection import ask
from tidelog.cli.options import UNITS, Bootstrap, Json
from tidelog.cli.tables import print_table, show
from tidelog.cli.terminal import UsageError, one_line, say
from tidelog.model.quotas import DEFAULT, Entity
from tidelog.transport.addresses import DEFAULT_BOOTSTRAP

app = typer.Typer(help="List, set and remove quotas: who may use how much of each broker.", no_args_is_help=True)

User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="A user.", show_default=False)]
DefaultUser = Annotated[bool, typer.Option("--default-user", help="All users without a quota of their own.")]
ClientId = Annotated[str | None, typer.Option("--client", metavar="ID", help="A client id.", show_default=False)]
DefaultClient = Annotated[bool, typer.Option("--default-client", help="All client ids without one of their own.")]
Address = Annotated[str | None, typer.Option("--address", metavar="IP", help="A client's address.", show_default=False)]
DefaultAddress = Annotated[bool, typer.Option("--default-address", help="All addresses without one of their own.")]

_RATE: Final = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)(B|KB|MB|GB)?(?:/s)?", re.IGNORECASE | re.ASCII)


@app.command("list")
def list_quotas(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """List all quotas.

    \b
    Examples:
      tidelog quota list
      tidelog quota list --json
    """
    show(ask(bootstrap, AdminClient.list_quotas), print_quotas, as_json=as_json)


@app.command("set")
def set_quota(
    rates: Annotated[list[str], typer.Argument(metavar="KEY=RATE...", show_default=False)],
    user: User = None,
    default_user: DefaultUser = False,
    client: ClientId = None,
    default_client: DefaultClient = False,
    address: Address = None,
    default_address: DefaultAddress = False,
    validate_only: Annotated[bool, typer.Option("--validate-only", help="Only see whether it can be set.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Set rates per second of a user, a client id, both, or an address; its other rates stay.

    Keys for users and client ids: producer_byte_rate, consumer_byte_rate, request_rate, controller_mutation_rate. For
    users only: connections, the maximum of open ones. For addresses: connection_creation_rate. Each broker enforces the
    rates separately.

    \b
    Examples:
      tidelog quota set --user alice producer_byte_rate=10MB consumer_byte_rate=50MB
      tidelog quota set --default-user request_rate=500 controller_mutation_rate=2.5
      tidelog quota set --user etl --default-client producer_byte_rate=500KB
      tidelog quota set --default-address connection_creation_rate=20
      tidelog quota set --default-user connections=50
    """
    entity = _entity((user, default_user), (client, default_client), (address, default_address))
    changes = _rates(rates)
    ask(bootstrap, lambda admin: admin.alter_quotas({entity: changes}, validate_only=validate_only))
    done = "may be set" if validate_only else "set"
    say({**entity._asdict(), "rates": changes}, f"{done}: the quota of {one_line(str(entity))}", as_json=as_json)


@app.command()
def remove(
    keys: Annotated[list[str] | None, typer.Argument(metavar="[KEY]...", show_default=False)] = None,
    user: User = None,
    default_user: DefaultUser = False,
    client: ClientId = None,
    default_client: DefaultClient = False,
    address: Address = None,
    default_address: DefaultAddress = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Remove rates, or the whole quota; then the next less specific quota applies, if there is one.

    \b
    Examples:
      tidelog quota remove --user alice producer_byte_rate
      tidelog quota remove --user alice
      tidelog quota remove --default-user --default-client
    """
    entity = _entity((user, default_user), (client, default_client), (address, default_address))

    async def take_back(admin: AdminClient) -> list[str]:
        """Removes the rates, and returns their keys."""
        rates = next((quota.rates for quota in await admin.list_quotas() if quota.entity == entity), {})
        gone = keys or list(rates)
        if gone:
            await admin.alter_quotas({entity: dict.fromkeys(gone)})
        return [key for key in gone if key in rates]

    gone = ask(bootstrap, take_back)
    name = one_line(str(entity))
    done = f"removed from the quota of {name}: {', '.join(gone)}" if gone else f"there is no such quota of {name}"
    say({**entity._asdict(), "removed": gone}, done, as_json=as_json)


def print_quotas(quotas: Sequence[QuotaDescription]) -> None:
    """Prints a line per rate."""
    rows = [
        [*(None if name is None else one_line(name) for name in quota.entity), key, f"{rate:.15g}"]
        for quota in quotas
        for key, rate in quota.rates.items()
    ]
    print_table(["user", "client", "address", "key", "at most"], rows, numbers=["at most"])


def _entity(*parts: tuple[str | None, bool]) -> Entity:
    """Returns the entity that the options name. Raises `UsageError` if they name none, or a part twice."""
    for name, is_default in parts:
        if name is not None and is_default:
            raise UsageError(f"{name} and its default are two entities; name one")
    entity = Entity(*(DEFAULT if is_default else name for name, is_default in parts))
    if entity == Entity():
        raise UsageError("say whose quota it is: --user, --client, both, or --address (or --default-user, ...)")
    return entity


def _rates(words: Sequence[str]) -> dict[str, float | None]:
    rates: dict[str, float | None] = {}
    for word in words:
        key, _, text = word.partition("=")
        match = _RATE.fullmatch(text)
        if match is None:
            raise UsageError(f"{word!r} is no rate; write it as KEY=RATE, as in producer_byte_rate=10MB")
        if key in rates:
            raise UsageError(f"{key} is set twice; keep one")
        rates[key] = float(match[1]) * UNITS[(match[2] or "B").upper()]
    return rates
