"""Every call of Kafka's protocol, asked by everybody: before a login, after a login that failed, by a user who was
removed, by a user without rights, by one who has just the right that the table here names, and by a super user. The
oracle is a broker without access control. The sister of the matrices of routes and of peer messages: a new call without
a line here fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from tests.integration.http.conftest import ROOT
from tests.integration.kafka.admin_trees import TREES
from tests.integration.kafka.conftest import Client, KafkaSite, codes, read_answer, request_frame, started
from tests.integration.kafka.data_trees import data_trees
from tests.integration.kafka.groups.conftest import GROUP, QUICK
from tests.integration.kafka.test_security import PASSWORD, RIGHTS, SASL, logged_in, logging_in
from tidelog.broker.kafka.apis import APIS, BEFORE_LOGIN, Key
from tidelog.controller.access_commands import AddAcls, RemoveAcls, RemoveUser, StoreUser
from tidelog.model.access import CLUSTER, Acl, Operation, Resource
from tidelog.model.kafka_codes import KafkaCode

TOPIC: Final = Resource("Topic", "t")
OF_GROUP: Final = Resource("Group", GROUP)
TOPIC_DENIED: Final = KafkaCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED: Final = KafkaCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_DENIED: Final = KafkaCode.CLUSTER_AUTHORIZATION_FAILED
CLOSED: Final = frozenset({-1})
"""Stands for a connection that was closed without an answer."""


@dataclass(frozen=True)
class Line:
    """Says which rights a call takes, and what a user without them is told: nothing, where what they may not see is not
    there."""

    rights: tuple[tuple[Operation, Resource], ...]
    denied: frozenset[int] = field(default=frozenset({0}))


def line(operation: Operation, resource: Resource, *denied: int) -> Line:
    return Line(((operation, resource),), frozenset(denied or (0,)))


OF_ANSWER: Final = 0
"""The code of the answer as a whole, beside those of its entries."""
FREE: Final = Line(())
"""Takes no right."""
READ_IN_GROUP: Final = line(Operation.READ, OF_GROUP, GROUP_DENIED)
LINES: Final[dict[Key, Line]] = {
    Key.API_VERSIONS: FREE,
    Key.DESCRIBE_CLUSTER: FREE,
    Key.METADATA: line(Operation.DESCRIBE, TOPIC, TOPIC_DENIED, OF_ANSWER),
    Key.PRODUCE: line(Operation.WRITE, TOPIC, TOPIC_DENIED),
    Key.FETCH: line(Operation.READ, TOPIC, TOPIC_DENIED, OF_ANSWER),
    Key.LIST_OFFSETS: line(Operation.DESCRIBE, TOPIC, TOPIC_DENIED),
    Key.OFFSET_FOR_LEADER_EPOCH: line(Operation.DESCRIBE, TOPIC, TOPIC_DENIED),
    Key.INIT_PRODUCER_ID: line(Operation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_DENIED),
    Key.FIND_COORDINATOR: line(Operation.DESCRIBE, OF_GROUP, GROUP_DENIED),
    Key.OFFSET_COMMIT: Line(((Operation.READ, OF_GROUP), (Operation.READ, TOPIC)), frozenset({TOPIC_DENIED})),
    Key.OFFSET_FETCH: Line(((Operation.DESCRIBE, OF_GROUP), (Operation.DESCRIBE, TOPIC)), frozenset({GROUP_DENIED})),
    Key.JOIN_GROUP: READ_IN_GROUP,
    Key.HEARTBEAT: READ_IN_GROUP,
    Key.LEAVE_GROUP: READ_IN_GROUP,
    Key.SYNC_GROUP: READ_IN_GROUP,
    Key.CONSUMER_GROUP_HEARTBEAT: Line(
        ((Operation.READ, OF_GROUP), (Operation.READ, TOPIC)), frozenset({GROUP_DENIED})
    ),
    Key.DESCRIBE_GROUPS: line(Operation.DESCRIBE, OF_GROUP, GROUP_DENIED),
    Key.CONSUMER_GROUP_DESCRIBE: line(Operation.DESCRIBE, OF_GROUP, GROUP_DENIED),
    Key.LIST_GROUPS: line(Operation.DESCRIBE, OF_GROUP),
    Key.OFFSET_DELETE: Line(((Operation.DELETE, OF_GROUP), (Operation.READ, TOPIC)), frozenset({GROUP_DENIED})),
    Key.DELETE_GROUPS: line(Operation.DELETE, OF_GROUP, GROUP_DENIED),
    Key.CREATE_TOPICS: line(Operation.CREATE, Resource("Topic", "new"), TOPIC_DENIED),
    Key.CREATE_PARTITIONS: line(Operation.ALTER, TOPIC, TOPIC_DENIED),
    Key.DESCRIBE_TOPIC_PARTITIONS: line(Operation.DESCRIBE, TOPIC, TOPIC_DENIED),
    Key.DESCRIBE_CONFIGS: Line(
        ((Operation.DESCRIBE_CONFIGS, TOPIC), (Operation.DESCRIBE_CONFIGS, CLUSTER)),
        frozenset({TOPIC_DENIED, CLUSTER_DENIED}),
    ),
    Key.INCREMENTAL_ALTER_CONFIGS: Line(
        ((Operation.ALTER_CONFIGS, TOPIC), (Operation.ALTER_CONFIGS, CLUSTER)),
        frozenset({TOPIC_DENIED, CLUSTER_DENIED}),
    ),
    Key.ALTER_CONFIGS: line(Operation.ALTER_CONFIGS, TOPIC, TOPIC_DENIED),
    Key.DESCRIBE_LOG_DIRS: line(Operation.DESCRIBE, CLUSTER, CLUSTER_DENIED),
    Key.LIST_CONFIG_RESOURCES: line(Operation.DESCRIBE_CONFIGS, CLUSTER, CLUSTER_DENIED),
    Key.ALTER_REPLICA_LOG_DIRS: line(Operation.ALTER, CLUSTER, CLUSTER_DENIED),
    Key.DESCRIBE_QUORUM: line(Operation.DESCRIBE, CLUSTER, CLUSTER_DENIED),
    Key.DESCRIBE_PRODUCERS: line(Operation.READ, TOPIC, TOPIC_DENIED),
    Key.DELETE_RECORDS: line(Operation.DELETE, TOPIC, TOPIC_DENIED),
    Key.ELECT_LEADERS: line(Operation.ALTER, CLUSTER, CLUSTER_DENIED),
    Key.ALTER_PARTITION_REASSIGNMENTS: line(Operation.ALTER, CLUSTER, CLUSTER_DENIED, OF_ANSWER),
    Key.LIST_PARTITION_REASSIGNMENTS: line(Operation.DESCRIBE, TOPIC),
    Key.DESCRIBE_ACLS: line(Operation.DESCRIBE, CLUSTER, CLUSTER_DENIED),
    Key.CREATE_ACLS: line(Operation.ALTER, CLUSTER, CLUSTER_DENIED),
    Key.DELETE_ACLS: line(Operation.ALTER, CLUSTER, CLUSTER_DENIED),
    Key.DESCRIBE_USER_SCRAM_CREDENTIALS: line(Operation.DESCRIBE, CLUSTER, CLUSTER_DENIED),
    Key.ALTER_USER_SCRAM_CREDENTIALS: line(Operation.ALTER, CLUSTER, CLUSTER_DENIED),
    Key.DESCRIBE_CLIENT_QUOTAS: line(Operation.DESCRIBE_CONFIGS, CLUSTER, CLUSTER_DENIED),
    Key.ALTER_CLIENT_QUOTAS: line(Operation.ALTER_CONFIGS, CLUSTER, CLUSTER_DENIED),
    Key.DELETE_TOPICS: line(Operation.DELETE, TOPIC, TOPIC_DENIED),
}
"""In the order in which they are asked: a topic is deleted at the end."""
LOGIN: Final = {Key.SASL_HANDSHAKE, Key.SASL_AUTHENTICATE}


@dataclass
class Sites:
    """A broker with access control and another without."""

    guarded: KafkaSite
    open: KafkaSite

    def trees(self, site: KafkaSite) -> dict[Key, dict[str, Any]]:
        """Returns a request of each call, about this broker's topic."""
        return {**TREES, **data_trees(UUID(site.broker.topic("t").topic_id))}


@asynccontextmanager
async def both() -> AsyncIterator[Sites]:
    async with started({**SASL, **RIGHTS, **QUICK}) as guarded, started(QUICK) as open_to_all:
        for name in ("other", "right", "root", "revoked"):
            user = await guarded.broker.face.login.made_user(name, PASSWORD)
            await guarded.broker.admin.by(ROOT).change_access(StoreUser(user, True))
        yield Sites(guarded, open_to_all)


async def told(client: Client, key: Key, tree: dict[str, Any], *, is_entitled: bool = False) -> frozenset[int]:
    """Returns all codes of the answer; `CLOSED` if there is none."""
    version = APIS[key].newest
    client.send(request_frame(key, version, tree))
    frame = await client.receive()
    if not frame:
        return CLOSED
    assert is_entitled or b"hidden" not in frame
    return frozenset(codes(read_answer(key, version, frame)))


def test_each_call_has_its_line() -> None:
    assert {*LINES} | LOGIN == {*APIS}


async def test_strangers_are_answered_to_nothing_but_how_to_log_in() -> None:
    """F100, at the listener of Kafka's clients."""
    async with both() as sites:
        guarded, trees = sites.guarded, sites.trees(sites.guarded)
        removed = {key: await logged_in(guarded, "revoked") for key in APIS}
        await guarded.broker.admin.by(ROOT).change_access(RemoveUser("revoked"))
        wrong = []
        for key, tree in trees.items():
            for who, client in (("nobody", await guarded.client()), ("revoked", removed[key])):
                found = await told(client, key, tree)
                if (found == CLOSED) is (who == "nobody" and key in BEFORE_LOGIN):
                    wrong.append((key.label, who, found))
        assert not wrong, "\n".join(map(str, wrong))
        bad, code = await logging_in(guarded, "root", "wrong")
        assert code == KafkaCode.SASL_AUTHENTICATION_FAILED
        for key, tree in trees.items():
            bad.send(request_frame(key, APIS[key].newest, tree))
        assert await bad.receive() == b""
        assert guarded.led().log_end_offset == 0


async def test_everybody_who_logged_in_at_every_call() -> None:
    """F100, at the listener of Kafka's clients."""
    async with both() as sites:
        for site in (sites.guarded, sites.open):
            await site.topic("hidden")
        other, right, root = [await logged_in(sites.guarded, name) for name in ("other", "right", "root")]
        anybody = await sites.open.client()
        ours, theirs = sites.trees(sites.guarded), sites.trees(sites.open)
        wrong = []
        for key, of in LINES.items():
            due = {
                "right": await told(anybody, key, theirs[key], is_entitled=True),
                "root": await told(anybody, key, theirs[key], is_entitled=True),
            }
            due["other"] = of.denied if of.rights else due["right"]
            found = {"other": await told(other, key, ours[key])}
            acls = [acl_of(operation, resource) for operation, resource in of.rights]
            access = sites.guarded.broker.admin.by(ROOT).change_access
            if acls:
                await access(AddAcls(acls))
            found["right"] = await told(right, key, ours[key], is_entitled=True)
            if acls:
                await access(RemoveAcls(acls))
            found["root"] = await told(root, key, ours[key], is_entitled=True)
            wrong += [(key.label, who, found[who], due[who]) for who in due if found[who] != due[who]]
        assert not wrong, "\n".join(map(str, wrong))
        for key in LOGIN:
            again = await logged_in(sites.guarded, "other")
            assert await told(again, key, ours[key]) == {KafkaCode.ILLEGAL_SASL_STATE}, "once a connection"
            assert await again.receive() == b""


def acl_of(operation: Operation, resource: Resource) -> Acl:
    return Acl(resource.type, "Literal", resource.name, "User:right", "*", operation.value, "Allow")
