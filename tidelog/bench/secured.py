"""Clusters that a benchmark starts, in plain text, with TLS, or with TLS, tokens and ACLs.

The clients' token is that of an ordinary user, since super users are not checked against ACLs. There are `ACLS` more
ACLs, for other users and topics.
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
"""ACLs that are created by one request."""
USER: Final = "User:bench"


class Level(StrEnum):
    """Security of the brokers that a benchmark starts: plain text, TLS, or TLS with tokens and ACLs."""

    PLAIN = "plain"
    TLS = "tls"
    LOGIN = "tls+token"


class Connection(SecurityParameters):
    """The keyword arguments with which a client connects to a cluster."""

    bootstrap_servers: Required[str]


class Secured(NamedTuple):
    """A running cluster, and how the measured client connects to it."""

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
    """Starts brokers, with a listener for Kafka's protocol if `kafka` is True, and stops them at the end of the
    block."""
    has_tls, is_closed = level is not Level.PLAIN, level is Level.LOGIN
    async with LocalCluster(
        brokers, settings=settings, start_timeout_s=start_timeout_s, tls=has_tls, login=is_closed, kafka=kafka
    ) as cluster:
        to = connection_of(cluster)
        yield Secured(cluster, await _let_in(cluster, to) if is_closed else to)


def connection_of(cluster: LocalCluster) -> Connection:
    """Returns the connection arguments of the cluster's administrator."""
    return cast("Connection", {"bootstrap_servers": cluster.bootstrap, **cluster.security})


async def _let_in(cluster: LocalCluster, to: Connection) -> Connection:
    """Creates the benchmark user's token and ACLs, and the ACLs of other users; returns the connection with
    that token."""
    acls = [*map(_of_others, range(ACLS)), *(allow(USER, "ALL", kind, "*") for kind in ("TOPIC", "GROUP", "CLUSTER"))]
    assert cluster.token_file is not None
    async with AdminClient(**to) as admin:
        for begin in range(0, len(acls), AT_ONCE):
            await admin.create_acls(acls[begin : begin + AT_ONCE])
        made = await admin.create_token(USER)
    file = cluster.token_file.with_name("bench.token")
    write_token(file, made.token)
    return {**to, "token_file": str(file)}


def at(to: Connection, url: str) -> Connection:
    """Returns the same connection arguments with the broker at `url` as the only bootstrap address."""
    return {**to, "bootstrap_servers": url}


def write_token(file: Path, token: str) -> None:
    """Writes a token to a file that only the current user may read."""
    file.touch(mode=0o600)
    file.write_text(token)


def allow(
    principal: str, operation: str, resource_type: str, name: str, pattern_type: str = "LITERAL"
) -> AclDescription:
    """Returns an ACL that allows a user one operation on the resources that match the name."""
    return AclDescription(
        resource_type=resource_type,
        resource_name=name,
        pattern_type=pattern_type,
        principal=principal,
        operation=operation,
        permission="ALLOW",
    )


def _of_others(number: int) -> AclDescription:
    """Returns the ACL with this number, for another user; every tenth is for a prefix of topic names."""
    pattern_type = "LITERAL" if number % 10 else "PREFIXED"
    return allow(f"User:other-{number % 100}", "READ", "TOPIC", f"others-{number}", pattern_type)


def session_to(
    connections_max: int, entropy: Entropy, bootstrap_servers: str, **security: Unpack[SecurityParameters]
) -> ClusterSession:
    """Returns a session of a client, not open yet, for a workload that uses parts of a client."""
    secure = Security(**security)
    return ClusterSession(
        bootstrap_servers,
        connections_max=connections_max,
        credentials=secure.credentials(read_secret),
        entropy=entropy,
        security=secure,
    )


@asynccontextmanager
async def connections_to(
    connections_max: int, bootstrap_servers: str, **security: Unpack[SecurityParameters]
) -> AsyncIterator[Connections]:
    """Opens a connection pool for a workload that sends requests itself, and closes it at the end of the block."""
    secure = Security(**security)
    connections = Connections(
        connections_max=connections_max,
        context=secure.context() if scheme_of(secure.addresses(bootstrap_servers)) == HTTPS else None,
        credentials=secure.credentials(read_secret),
    )
    await connections.open()
    try:
        yield connections
    finally:
        await connections.close()
