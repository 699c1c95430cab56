"""Clusters that a workload starts, as open or as closed as it is told: plain text, TLS, or TLS with tokens and ACLs.

The token that clients show is that of a user who is no super user, since super users are not judged by ACLs, and it is
one of many: `ACLS` that name other users and other topics lie beside those that let it in.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple, Required, Unpack, cast

from tidelog.adapters.secret_file import read_secret
from tidelog.admin import AdminClient
from tidelog.admin.access import AclDescription
from tidelog.model.ports import Entropy
from tidelog.testing import LocalCluster
from tidelog.testing.broker_process import START_TIMEOUT_S
from tidelog.transport.addresses import HTTPS
from tidelog.transport.connections import Connections
from tidelog.transport.security import Security, SecurityParameters, scheme_of
from tidelog.transport.session import ClusterSession

ACLS: Final = 1_000
AT_ONCE: Final = 250
"""So many ACLs are made by one request."""
USER: Final = "User:bench"


class Level(StrEnum):
    """How brokers that are started for a run are secured."""

    PLAIN = "plain"
    TLS = "tls"
    LOGIN = "tls+token"


class Connection(SecurityParameters):
    """The keyword arguments by which a client connects."""

    bootstrap_servers: Required[str]


class Secured(NamedTuple):
    """A cluster that runs, and how a client that is measured connects to it."""

    cluster: LocalCluster
    to: Connection


@asynccontextmanager
async def secured_cluster(
    level: Level,
    brokers: int = 1,
    *,
    settings: Mapping[str, str] | None = None,
    start_timeout_s: float = START_TIMEOUT_S,
    kafka: bool = False,
) -> AsyncIterator[Secured]:
    """Starts brokers, with a listener for Kafka's protocol if `kafka` says so, and has them stop at the end."""
    has_tls, is_closed = level is not Level.PLAIN, level is Level.LOGIN
    async with LocalCluster(
        brokers, settings=settings, start_timeout_s=start_timeout_s, tls=has_tls, login=is_closed, kafka=kafka
    ) as cluster:
        to = connection_of(cluster)
        yield Secured(cluster, await _let_in(cluster, to) if is_closed else to)


def connection_of(cluster: LocalCluster) -> Connection:
    """Returns how whoever has started a cluster connects to it."""
    return cast("Connection", {"bootstrap_servers": cluster.bootstrap, **cluster.security})


async def _let_in(cluster: LocalCluster, to: Connection) -> Connection:
    """Makes a user's token and ACLs, and those of others."""
    acls = [*map(_of_others, range(ACLS)), *(_of_the_user(kind) for kind in ("TOPIC", "GROUP", "CLUSTER"))]
    assert cluster.token_file is not None
    async with AdminClient(**to) as admin:
        for begin in range(0, len(acls), AT_ONCE):
            await admin.create_acls(acls[begin : begin + AT_ONCE])
        made = await admin.create_token(USER)
    file = cluster.token_file.with_name("bench.token")
    write_token(file, made.token)
    return {**to, "token_file": str(file)}


def at(to: Connection, url: str) -> Connection:
    """Returns the connection to this one broker."""
    return {**to, "bootstrap_servers": url}


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


def session_to(
    connections_max: int, entropy: Entropy, bootstrap_servers: str, **security: Unpack[SecurityParameters]
) -> ClusterSession:
    """Returns a client's session, for a workload that is made of a client's parts; not open yet."""
    secure = Security(**security)
    return ClusterSession(
        bootstrap_servers,
        connections_max=connections_max,
        credentials=secure.credentials(read_secret),
        entropy=entropy,
        security=secure,
    )


def connections_to(connections_max: int, bootstrap_servers: str, **security: Unpack[SecurityParameters]) -> Connections:
    """Returns a pool of connections for requests that a workload makes itself; not open yet."""
    secure = Security(**security)
    return Connections(
        connections_max=connections_max,
        context=secure.context() if scheme_of(secure.addresses(bootstrap_servers)) == HTTPS else None,
        credentials=secure.credentials(read_secret),
    )
