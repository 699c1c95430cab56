"""`tidelog acl`: lists and changes access rights, through the admin client."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import msgspec
import typer

from tidelog.admin import AdminClient
from tidelog.admin.access import AclDescription
from tidelog.cli.connection import ask
from tidelog.cli.options import Bootstrap, Json
from tidelog.cli.tables import print_table, show
from tidelog.cli.terminal import UsageError, counted, print_json, say
from tidelog.model.access import CLUSTER_NAME
from tidelog.transport.addresses import DEFAULT_BOOTSTRAP

app = typer.Typer(help="Say who may do what: add, list, remove and check ACLs.", no_args_is_help=True)


class Permission(StrEnum):
    """The effect of an ACL on matching requests."""

    ALLOW = "allow"
    DENY = "deny"


Topic = Annotated[str | None, typer.Option(metavar="NAME", help="A topic; * is all of them.", show_default=False)]
Group = Annotated[str | None, typer.Option(metavar="NAME", help="A consumer group; * is all.", show_default=False)]
User = Annotated[str | None, typer.Option(metavar="NAME", help="The tokens of a user.", show_default=False)]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Prefix = Annotated[bool, typer.Option("--prefix", help="All names that begin so.")]
Principal = Annotated[str, typer.Option(metavar="USER", help="User:alice; User:* is everybody.", show_default=False)]
AnyPrincipal = Annotated[str | None, typer.Option(metavar="USER", help="User:alice.", show_default=False)]
Operations = Annotated[
    list[str],
    typer.Option(
        "--operation",
        metavar="OP",
        help="read, write, create, delete, alter, describe, describe-configs, alter-configs, all. Repeatable.",
        show_default=False,
    ),
]
Host = Annotated[str, typer.Option(metavar="ADDRESS", help="An address, a network such as 10.0.0.0/8, or *.")]
ACL_HOST = "*"


@app.command()
def add(
    principal: Principal,
    operation: Operations,
    topic: Topic = None,
    group: Group = None,
    cluster: Cluster = False,
    user: User = None,
    prefix: Prefix = False,
    host: Host = ACL_HOST,
    permission: Annotated[Permission, typer.Option(help="deny wins over allow.")] = Permission.ALLOW,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Add ACLs that allow or deny a principal operations on a resource.

    \b
    Examples:
      tidelog acl add --principal User:alice --operation read --topic orders
      tidelog acl add --principal User:alice --operation read --group billing
      tidelog acl add --principal User:etl --operation write --topic staging- --prefix --host 10.0.0.0/8
    """
    kind, name = _resource(topic, group, user, cluster=cluster)
    acls = [
        AclDescription(
            resource_type=kind,
            resource_name=name,
            pattern_type="PREFIXED" if prefix else "LITERAL",
            principal=principal,
            host=host,
            operation=_word(text),
            permission=permission.value.upper(),
        )
        for text in operation
    ]
    ask(bootstrap, lambda admin: admin.create_acls(acls))
    say(msgspec.to_builtins(acls), f"added {counted(len(acls), 'ACL')} of {principal}", as_json=as_json)


@app.command("list")
def list_acls(
    principal: AnyPrincipal = None,
    topic: Topic = None,
    group: Group = None,
    cluster: Cluster = False,
    user: User = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """List ACLs: all, those of a principal, or those that match a resource.

    \b
    Examples:
      tidelog acl list
      tidelog acl list --principal User:alice --json
      tidelog acl list --topic orders
    """
    words = _words(principal, topic, group, user, cluster=cluster)
    show(ask(bootstrap, lambda admin: admin.list_acls(**words)), print_acls, as_json=as_json)


@app.command()
def remove(
    principal: Principal,
    operation: Annotated[
        list[str] | None, typer.Option("--operation", metavar="OP", help="Default: all.", show_default=False)
    ] = None,
    topic: Topic = None,
    group: Group = None,
    cluster: Cluster = False,
    user: User = None,
    prefix: Prefix = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Remove ACLs of a principal on a resource, and show them.

    \b
    Examples:
      tidelog acl remove --principal User:alice --topic orders
      tidelog acl remove --principal User:etl --operation write --topic staging- --prefix
    """
    kind, name = _resource(topic, group, user, cluster=cluster)
    words = {
        "resource_type": kind,
        "resource_name": name,
        "pattern_type": "PREFIXED" if prefix else "LITERAL",
        "principal": principal,
        "permission": "ANY",
    }

    async def delete(admin: AdminClient) -> list[AclDescription]:
        words_of_all = map(_word, operation or ["any"])
        return [gone for word in words_of_all for gone in await admin.delete_acls(**words, operation=word)]

    removed = ask(bootstrap, delete)
    if as_json:
        print_json(msgspec.to_builtins(removed))
    elif removed:
        print_acls(removed)
        print(f"\nremoved {counted(len(removed), 'ACL')}")
    else:
        print("there was no such ACL")


@app.command()
def check(
    principal: Principal,
    operation: Annotated[str, typer.Option(metavar="OP", help="As in `add`.", show_default=False)],
    topic: Topic = None,
    group: Group = None,
    cluster: Cluster = False,
    user: User = None,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where it calls from.", show_default=False)] = "",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Check whether a principal may perform an operation, by the ACLs in force. Exits with 1 if not.

    \b
    Example:
      tidelog acl check --principal User:alice --operation read --topic orders --host 10.0.0.7
    """
    kind, name = _resource(topic, group, user, cluster=cluster)
    word = _word(operation)
    is_allowed = ask(bootstrap, lambda admin: admin.check_access(principal, word, kind, name, host))
    said = "may" if is_allowed else "may not"
    say({"is_allowed": is_allowed}, f"{principal} {said} {word} {kind} {name}", as_json=as_json)
    if not is_allowed:
        raise typer.Exit(1)


def print_acls(acls: Sequence[AclDescription]) -> None:
    """Prints a table of ACLs, or that there are none."""
    if not acls:
        print("there are no ACLs")
        return
    rows = [
        [acl.principal, acl.permission, acl.operation, acl.resource_type, acl.resource_name, acl.pattern_type, acl.host]
        for acl in acls
    ]
    print_table(["principal", "permission", "operation", "resource", "name", "pattern", "host"], rows)


def _resource(topic: str | None, group: str | None, user: str | None, *, cluster: bool) -> tuple[str, str]:
    named = [
        (kind, name)
        for kind, name in (
            ("TOPIC", topic),
            ("GROUP", group),
            ("USER", user),
            ("CLUSTER", CLUSTER_NAME if cluster else None),
        )
        if name is not None
    ]
    if len(named) != 1:
        raise UsageError("name one resource: --topic, --group, --user or --cluster")
    return named[0]


def _words(
    principal: str | None, topic: str | None, group: str | None, user: str | None, *, cluster: bool
) -> dict[str, str]:
    words = {} if principal is None else {"principal": principal}
    if topic is not None or group is not None or user is not None or cluster:
        kind, name = _resource(topic, group, user, cluster=cluster)
        words |= {"resource_type": kind, "resource_name": name, "pattern_type": "MATCH"}
    return words


def _word(operation: str) -> str:
    return operation.upper().replace("-", "_")
