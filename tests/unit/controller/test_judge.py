"""What clients ask of the controller is judged where it is decided, by the metadata as they are there."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from tests.unit.controller.cluster import Cluster
from tidelog.broker.peer_service import MESSAGE_ADDITIONS, PEER_MESSAGES
from tidelog.config.schema import BrokerConfig
from tidelog.controller.access_commands import AddAcls, RemoveAcls, RemoveTokens, RemoveUser, StoreToken, StoreUser
from tidelog.controller.command_table import CLIENT_COMMANDS
from tidelog.controller.commands import (
    AddPartitions,
    AlterQuotas,
    AlterTopicConfigs,
    BrokerHeartbeat,
    ClientCommand,
    CreateTopic,
    DeleteTopic,
    NewTopic,
    RaiseLevel,
    RemoveBroker,
)
from tidelog.controller.judge import Judge, judge_of
from tidelog.controller.partition_commands import (
    AcceptLoss,
    AlterReassignments,
    ElectionType,
    ElectLeaders,
    NewReplicas,
    RegroupPartition,
)
from tidelog.model.access import CLUSTER, Acl, Caller, Operation, Principal, Resource
from tidelog.model.credentials import Token, User
from tidelog.model.errors import ForeignSender, NotAuthorized
from tidelog.transport.peer.frames import MessageCodec

ALICE = Caller(Principal("User", "alice"), "10.1.1.1")
ROOT = Caller(Principal("User", "root"), "10.1.1.1")
ORDERS = Resource("Topic", "orders")
MALLORYS = Resource("User", "mallory")
TOKEN = Token("t1", "hash", "User:mallory", 0)
MOVE, STAY = NewReplicas("id of orders", 0, [1]), NewReplicas("id of orders", 0, None)
ON_TOPIC = [(Operation.ALTER, ORDERS)]
ON_CLUSTER = [(Operation.ALTER, CLUSTER)]
TAKES: list[tuple[ClientCommand, list[tuple[Operation, Resource]]]] = [
    (CreateTopic(NewTopic("orders"), "a" * 32), [(Operation.CREATE, ORDERS), (Operation.CREATE, CLUSTER)]),
    (AddPartitions("orders", 1, 2), ON_TOPIC),
    (DeleteTopic("orders", "id of orders"), [(Operation.DELETE, ORDERS)]),
    (AlterTopicConfigs("orders", {}), [(Operation.ALTER_CONFIGS, ORDERS)]),
    (AlterQuotas([]), [(Operation.ALTER_CONFIGS, CLUSTER)]),
    (RemoveBroker(2), ON_CLUSTER),
    (RaiseLevel(), ON_CLUSTER),
    (ElectLeaders(ElectionType.PREFERRED), ON_CLUSTER),
    (AlterReassignments([MOVE]), ON_CLUSTER),
    (AlterReassignments([STAY], 0), ON_CLUSTER),
    (AlterReassignments([STAY]), [*ON_CLUSTER, *ON_TOPIC]),
    (AcceptLoss("id of orders", 0, (), "a", 1, 0), ON_TOPIC),
    (RegroupPartition("id of orders", 0, 0, (), 0, 1, (), "a", 1, 0), ON_TOPIC),
    (StoreUser(User("mallory", "hash", ()), is_new=True), ON_CLUSTER),
    (RemoveUser("mallory"), ON_CLUSTER),
    (StoreToken(TOKEN), [*ON_CLUSTER, (Operation.ALTER, MALLORYS)]),
    (RemoveTokens(["t1", "gone"]), [*ON_CLUSTER, (Operation.ALTER, MALLORYS)]),
    (AddAcls([]), ON_CLUSTER),
    (RemoveAcls([]), ON_CLUSTER),
]


def acl(operation: Operation, resource: Resource, principal: str = "User:alice", permission: str = "Allow") -> Acl:
    return Acl(resource.type, "Literal", resource.name, principal, "*", operation.value, permission)


def a_cluster() -> Cluster:
    cluster = Cluster()
    cluster.start(1)
    cluster.do(CreateTopic(NewTopic("orders", 1, 1), "id of orders"))
    cluster.do(StoreToken(TOKEN))
    return cluster


def by(caller: Caller, command: ClientCommand) -> ClientCommand:
    return msgspec.structs.replace(command, caller=caller)


def a_judge(*, without_acl: bool = False) -> Judge:
    return Judge([ROOT.principal], without_acl=without_acl)


def test_all_that_clients_ask_is_tried_here() -> None:
    assert {type(command) for command, _ in TAKES} == {*CLIENT_COMMANDS}


@pytest.mark.parametrize(("command", "rights"), TAKES, ids=lambda one: type(one).__name__)
def test_a_command_takes_the_right_of_its_route_and_no_other_will_do(
    command: ClientCommand, rights: list[tuple[Operation, Resource]]
) -> None:
    cluster, judge = a_cluster(), a_judge()
    judge.check(cluster.image, by(ROOT, command))
    others = [
        (operation, resource)
        for operation in Operation
        for resource in (CLUSTER, ORDERS, MALLORYS)
        if operation not in (Operation.NONE, Operation.ALL) and (operation, resource) not in rights
    ]
    for operation, resource in rights:
        cluster.do(AddAcls([acl(operation, resource)]))
        judge.check(cluster.image, by(ALICE, command))
        cluster.do(RemoveAcls([acl(operation, resource)]))
        with pytest.raises(NotAuthorized, match=r"User:alice may not .*; ask the cluster's administrator"):
            judge.check(cluster.image, by(ALICE, command))
    cluster.do(AddAcls([acl(operation, resource) for operation, resource in others]))
    with pytest.raises(NotAuthorized):
        judge.check(cluster.image, by(ALICE, command))


def test_hosts_and_denials_count_as_everywhere() -> None:
    cluster, judge = a_cluster(), a_judge()
    command = by(ALICE, DeleteTopic("orders"))
    cluster.do(AddAcls([acl(Operation.DELETE, ORDERS)._replace(host="10.1.1.0/24")]))
    judge.check(cluster.image, command)
    with pytest.raises(NotAuthorized):
        judge.check(cluster.image, by(ALICE._replace(host="10.2.1.1"), DeleteTopic("orders")))
    cluster.do(AddAcls([acl(Operation.ALL, ORDERS, "User:*", "Deny")]))
    with pytest.raises(NotAuthorized):
        judge.check(cluster.image, command)


def test_a_command_without_a_caller_is_refused_as_soon_as_all_brokers_name_theirs() -> None:
    cluster, judge = a_cluster(), a_judge()
    for command, _ in TAKES:
        with pytest.raises(ForeignSender, match="came without the caller"):
            judge.check(cluster.image, command)
        judge.check(replace(cluster.image, level=2), command)
    judge.check(cluster.image, BrokerHeartbeat(1, 1, 1))


def test_a_topic_that_is_not_there_is_for_those_who_may_alter_all() -> None:
    cluster, judge = a_cluster(), a_judge()
    loss = AcceptLoss("gone", 0, (), "a", 1, 0)
    cluster.do(AddAcls([acl(Operation.ALTER, ORDERS)]))
    for command in (loss, AlterReassignments([NewReplicas("gone", 0, None)])):
        with pytest.raises(NotAuthorized, match=r"may not Alter"):
            judge.check(cluster.image, by(ALICE, command))
    cluster.do(AddAcls([acl(Operation.ALTER, Resource("Topic", "*"))]))
    judge.check(cluster.image, by(ALICE, loss))


def test_settings_say_whether_there_is_a_judge() -> None:
    assert judge_of(BrokerConfig()) is None
    config = BrokerConfig.model_validate({"authorizer.enabled": True, "super.users": "User:root"})
    judge, image = judge_of(config), a_cluster().image
    assert judge is not None
    judge.check(image, by(ROOT, RaiseLevel()))
    with pytest.raises(NotAuthorized):
        judge.check(image, by(ALICE, RaiseLevel()))
    config = BrokerConfig.model_validate({"authorizer.enabled": True, "allow.everyone.if.no.acl.found": True})
    judge = judge_of(config)
    assert judge is not None
    judge.check(image, by(ALICE, RaiseLevel()))


def test_a_caller_travels_at_the_level_that_knows_it_and_comes_back_whole() -> None:
    codec = MessageCodec(PEER_MESSAGES, MESSAGE_ADDITIONS)
    for command, _ in TAKES:
        named = by(ALICE, command)
        assert codec.message(memoryview(codec.encode(named))).caller == ALICE  # type: ignore[attr-defined]  # it has one
    created = by(ALICE, CreateTopic(NewTopic("orders"), "a" * 32))
    before = codec.encode(created, 2)
    assert b"alice" not in before and b"caller" not in before
    assert codec.message(memoryview(before)) == CreateTopic(NewTopic("orders"), "a" * 32)
