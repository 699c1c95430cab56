"""Clusters that a workload starts, as open or as closed as it is told: plain text, TLS, or TLS with tokens and ACLs.

The token that clients show is that of a user who is no super user, since super users are not judged by ACLs, and it is
one of many: `ACLS` that name other users and other topics lie beside those that let it in.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple, cast

from tidelog.adapters.secret_file import read_secret
from tidelog.admin import AdminClient
from tidelog.admin.access import AclDescription
from tidelog.testing import LocalCluster
from tidelog.transport.addresses import HTTPS
from tidelog.transport.connections import Connections
from tidelog.transport.security import Security, SecurityParameters, scheme_of

ACLS: Final = 1_000
AT_ONCE: Final = 250
"""So many ACLs are made by one request."""
USER: Final = "User:bench"
PLAIN_TEXT: Final = SecurityParameters()


class Level(StrEnum):
    """How brokers that are started for a run are secured."""

    PLAIN = "plain"
    TLS = "tls"
    LOGIN = "tls+token"


class Secured(NamedTuple):
    """A cluster that runs, and how a client that is measured connects to it."""

    cluster: LocalCluster
    security: SecurityParameters


@asynccontextmanager
async def secured_cluster(
    level: Level, brokers: int = 1, *, settings: Mapping[str, str] | None = None
) -> AsyncIterator[Secured]:
    """Starts brokers, and has them stop at the end."""
    is_closed = level is Level.LOGIN
    async with LocalCluster(brokers, settings=settings, tls=level is not Level.PLAIN, login=is_closed) as cluster:
        yield Secured(cluster, await _let_in(cluster) if is_closed else cast("SecurityParameters", cluster.security))


async def _let_in(cluster: LocalCluster) -> SecurityParameters:
    """Makes a user's token and ACLs, and those of others."""
    acls = [*map(_of_others, range(ACLS)), *(_of_the_user(kind) for kind in ("TOPIC", "GROUP", "CLUSTER"))]
    assert cluster.token_file is not None
    async with AdminClient(cluster.bootstrap, **cluster.security) as admin:
        for begin in range(0, len(acls), AT_ONCE):
            await admin.create_acls(acls[begin : begin + AT_ONCE])
        made = await admin.create_token(USER)
    file = cluster.token_file.with_name("bench.token")
    write_token(file, made.token)
    return cast("SecurityParameters", {**cluster.security, "token_file": str(file)})


def write_token(file: Path, token: str) -> None:
    """Writes a file that only this user may read."""
    file.touch(mode=0o600)
    file.write_text(token)


def _of_others(number: int) -> AclDescription:
    """Returns one of many: every tenth is about topics whose names begin alike."""
    return AclDescription(
        resource_type="TOPIC",
        resource_name=f"others-{number}",
        pattern_type="LITERAL" if number % 10 else "PREFIXED",
        principal=f"User:other-{number % 100}",
        operation="READ",
        permission="ALLOW",
    )


def _of_the_user(kind: str) -> AclDescription:
    return AclDescription(
        resource_type=kind,
        resource_name="*",
        pattern_type="LITERAL",
        principal=USER,
        operation="ALL",
        permission="ALLOW",
    )


def connections_to(bootstrap: str, security: SecurityParameters, connections_max: int) -> Connections:
    """Returns a pool of connections for requests that a workload makes itself; not open yet."""
    secure = Security(**security)
    return Connections(
        connections_max=connections_max,
        context=secure.context() if scheme_of(secure.addresses(bootstrap)) == HTTPS else None,
        credentials=secure.credentials(read_secret),
    )
