"""`tidelog tls`: a private CA, and certificates for the brokers and clients of one cluster."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Final

import typer

from tidelog.cli.imports import imported
from tidelog.cli.options import Json
from tidelog.cli.tables import print_table, show
from tidelog.cli.terminal import CommandError, UsageError
from tidelog.model.broker_names import NEEDS_LIBRARY
from tidelog.model.errors import InvalidRequest

app = typer.Typer(help="Make a private CA, and certificates for brokers and clients.", no_args_is_help=True)

DIRECTORY: Final = Path("tls")

Directory = Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where the CA is, and what it makes.")]
Hosts = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        metavar="HOST",
        help="A name or address that clients reach the broker by. Repeatable. Default: localhost, 127.0.0.1, ::1.",
        show_default=False,
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Write over what is there.")]


@app.command()
def init(
    directory: Directory = DIRECTORY,
    cluster: Annotated[
        str, typer.Option(metavar="NAME", help="Of the cluster, in its brokers' certificates.")
    ] = "tidelog",
    brokers: Annotated[int, typer.Option(min=0, max=1000, metavar="N", help="Issue to brokers 1 to N, too.")] = 0,
    hosts: Hosts = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make a CA, valid for 10 years: DIR/ca.pem, which all trust, and DIR/ca-key.pem, its private key.

    Whoever has the key can make certificates for brokers: keep it where certificates are made, not on the brokers.

    \b
    Examples:
      tidelog tls init
      tidelog tls init --brokers 3
      tidelog tls init --dir /etc/tidelog/tls --cluster payments
    """
    certificates = _certificates()

    def make() -> list[Any]:
        made = certificates.make_authority(directory, cluster, force=force)
        authority = certificates.load_authority(directory)
        issued = [
            certificates.issue_broker(directory, authority, node_id, hosts or (), force=force)
            for node_id in range(1, brokers + 1)
        ]
        return [made, *issued]

    _show(make, as_json=as_json)


@app.command()
def issue(
    broker: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="To the broker with this node.id.", show_default=False)
    ] = None,
    client: Annotated[
        str | None, typer.Option(metavar="NAME", help="To a client of this name.", show_default=False)
    ] = None,
    hosts: Hosts = None,
    directory: Directory = DIRECTORY,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make a key and a certificate, valid for a year: DIR/broker-N.pem or DIR/client-NAME.pem.

    \b
    Examples:
      tidelog tls issue --broker 1 --host localhost --host 10.0.0.1
      tidelog tls issue --client alice
    """
    if (broker is None) == (client is None):
        raise UsageError("give either --broker, the node id of a broker, or --client, the name of a client")
    if client is not None and hosts:
        raise UsageError("--host is for brokers: a client is not reached by a name")
    certificates = _certificates()

    def make() -> list[Any]:
        authority = certificates.load_authority(directory)
        if client is not None:
            return [certificates.issue_client(directory, authority, client, force=force)]
        return [certificates.issue_broker(directory, authority, broker, hosts or (), force=force)]

    _show(make, as_json=as_json)


@app.command()
def renew(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="What `tidelog tls` has made.")],
    keep_key: Annotated[
        bool, typer.Option("--keep-key", help="Keep the private key; else there is a new one.")
    ] = False,
    directory: Directory = DIRECTORY,
    as_json: Json = False,
) -> None:
    """Renew certificates, with the same names, in place of the old ones.

    A running broker loads them within seconds, and keeps its connections. ca.pem always keeps its key, so certificates
    signed by it stay valid.

    \b
    Examples:
      tidelog tls renew tls/broker-1.pem tls/broker-2.pem tls/broker-3.pem
      tidelog tls renew --keep-key tls/client-alice.pem
    """
    certificates = _certificates()

    def make() -> list[Any]:
        authority = certificates.load_authority(directory)
        return [certificates.renew(file, authority, keep_key=keep_key) for file in files]

    _show(make, as_json=as_json)


def _certificates() -> ModuleType:
    try:
        return imported("tidelog.adapters.certificates")
    except ImportError:
        raise CommandError(NEEDS_LIBRARY) from None


def _show(make: Any, *, as_json: bool) -> None:
    try:
        made = make()
    except InvalidRequest as error:
        raise CommandError(error.message) from None
    show(
        made,
        _print,
        as_json=as_json,
        document=lambda certificates: [_document(certificate) for certificate in certificates],
    )


def _print(made: list[Any]) -> None:
    rows = [
        [certificate.file, certificate.subject, ", ".join(certificate.names) or None, f"{certificate.expires:%Y-%m-%d}"]
        for certificate in made
    ]
    print_table(["file", "subject", "names", "good until"], rows)


def _document(made: Any) -> dict[str, Any]:
    return {
        "file": str(made.file),
        "subject": made.subject,
        "names": list(made.names),
        "expires_at": made.expires.isoformat(),
    }
