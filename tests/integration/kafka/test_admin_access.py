"""ACLs, SCRAM credentials and quotas over Kafka's protocol are those that the cluster keeps for everybody."""

from __future__ import annotations

from hashlib import pbkdf2_hmac
from typing import Any

from tests.integration.kafka.admin_trees import ACL, TREES
from tests.integration.kafka.conftest import Client, KafkaSite
from tests.integration.kafka.test_versions import versions
from tidelog.broker.kafka.admin.codes import AdminCode
from tidelog.broker.kafka.admin.scram import NO_PASSWORD
from tidelog.broker.kafka.apis import Key
from tidelog.controller.access_commands import StoreUser
from tidelog.model.access import Acl
from tidelog.model.credentials import ScramKeys, User
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.quotas import Entity

ALICE = Acl("Topic", "Literal", "t", "User:alice", "*", "Read", "Allow")
FILTER = TREES[Key.DESCRIBE_ACLS]

# -- ACLs ------------------------------------------------------------------------------------------------------------


async def test_acls_are_made_shown_and_deleted(site: KafkaSite) -> None:
    client = await site.client()
    for version in versions(Key.CREATE_ACLS):
        wrong = [
            {**ACL, "resource_type": 5},
            {**ACL, "principal": "alice"},
            {**ACL, "host": "no host"},
            {**ACL, "operation": 1},
            {**ACL, "resource_pattern_type": 2},
            {**ACL, "resource_type": 4},
        ]
        answer = await client.ask(Key.CREATE_ACLS, version, creations=[ACL, *wrong])
        assert [each.error_code.value for each in answer.results] == [0] + [KafkaCode.INVALID_REQUEST] * len(wrong)
        assert site.broker.image.access.acls == (ALICE,)
        answer = await client.ask(Key.DESCRIBE_ACLS, version, **FILTER)
        (found,) = answer.resources
        assert (found.resource_type, found.resource_name, found.pattern_type) == (2, "t", 3)
        assert [(one.principal, one.host, one.operation, one.permission_type) for one in found.acls] == [
            ("User:alice", "*", 3, 3)
        ]
        filters = [{**FILTER, "operation": 0}, {**FILTER, "resource_type_filter": 5}, FILTER]
        answer = await client.ask(Key.DELETE_ACLS, version, filters=filters)
        told = [(each.error_code.value, len(each.matching_acls)) for each in answer.filter_results]
        assert told == [(KafkaCode.INVALID_REQUEST, 0), (0, 0), (0, 1)]
        assert site.broker.image.access.acls == ()


async def test_a_filter_matches_every_pattern_that_fits_a_name(site: KafkaSite) -> None:
    client = await site.client()
    patterns = [("orders", 3), ("ord", 4), ("*", 3), ("x", 4), ("other", 3)]
    acls = [{**ACL, "resource_name": name, "resource_pattern_type": pattern} for name, pattern in patterns]
    await client.ask(Key.CREATE_ACLS, 3, creations=acls)

    async def names(**words: Any) -> list[str]:
        answer = await client.ask(Key.DESCRIBE_ACLS, 3, **{**FILTER, **words})
        assert answer.error_code.value == 0
        return sorted(each.resource_name for each in answer.resources)

    assert await names(resource_name_filter="orders", pattern_type_filter=2) == ["*", "ord", "orders"]
    assert await names(resource_name_filter="ord") == ["ord"]
    assert await names(pattern_type_filter=4) == ["ord", "x"]
    assert await names(principal_filter="User:bob") == await names(host_filter="10.0.0.1") == []
    assert await names(operation=4) == await names(permission_type=2) == await names(resource_type_filter=6) == []
    answer = await client.ask(Key.DESCRIBE_ACLS, 3, **{**FILTER, "permission_type": 9})
    assert answer.error_code.value == KafkaCode.INVALID_REQUEST


async def test_so_many_acls_at_once_and_no_more(site: KafkaSite) -> None:
    client = await site.client()
    answer = await client.ask(Key.CREATE_ACLS, 3, creations=[ACL] * 251)
    assert {each.error_code.value for each in answer.results} == {KafkaCode.INVALID_REQUEST}
    answer = await client.ask(Key.DELETE_ACLS, 3, filters=[FILTER] * 251)
    assert {each.error_code.value for each in answer.filter_results} == {KafkaCode.INVALID_REQUEST}
    assert site.broker.image.access.acls == ()


# -- SCRAM -----------------------------------------------------------------------------------------------------------


def upsertion(name: str, mechanism: int = 1, **other: Any) -> dict[str, Any]:
    salted = pbkdf2_hmac(("sha256", "sha512")[mechanism - 1], b"a password", b"salt", 4_096) if mechanism < 3 else b""
    return {
        "name": name,
        "mechanism": mechanism,
        "iterations": 4_096,
        "salt": b"salt",
        "salted_password": salted,
        **other,
    }


async def alter(client: Client, upsertions: list[Any], deletions: list[tuple[str, int]] | None = None) -> Any:
    gone = [{"name": name, "mechanism": mechanism} for name, mechanism in deletions or ()]
    answer = await client.ask(Key.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=gone, upsertions=upsertions)
    return {each.user: each.error_code.value for each in answer.results}


async def test_a_user_gets_scram_keys_and_loses_them(site: KafkaSite) -> None:
    client = await site.client()
    assert await alter(client, [upsertion("alice"), upsertion("alice", 2), upsertion("bob")]) == {"alice": 0, "bob": 0}
    answer = await client.ask(Key.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)
    shown = {each.user: [(one.mechanism, one.iterations) for one in each.credential_infos] for each in answer.results}
    assert shown == {"alice": [(1, 4_096), (2, 4_096)], "bob": [(1, 4_096)]}
    names = [{"name": name} for name in ("alice", "no", "bob", "bob")]
    answer = await client.ask(Key.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=names)
    told = {each.user: each.error_code.value for each in answer.results}
    assert told == {"alice": 0, "no": KafkaCode.RESOURCE_NOT_FOUND, "bob": KafkaCode.DUPLICATE_RESOURCE}
    assert await alter(client, [], [("alice", 1), ("bob", 1), ("bob", 2)]) == {
        "alice": 0,
        "bob": KafkaCode.RESOURCE_NOT_FOUND,
    }
    assert [keys.mechanism for keys in site.broker.image.access.users["alice"].scram] == ["SCRAM-SHA-512"]
    assert await alter(client, [], [("alice", 2)]) == {"alice": 0}
    assert [*site.broker.image.access.users] == ["bob"]


async def test_the_hash_of_the_password_before_goes_with_its_keys(site: KafkaSite) -> None:
    client = await site.client()
    keys = ScramKeys("SCRAM-SHA-512", "00", "11", "22", 16_384)
    await site.broker.admin.change_access(StoreUser(User("alice", "the hash", (keys,)), is_new=True))
    assert await alter(client, [upsertion("alice")]) == {"alice": 0}
    after = site.broker.image.access.users["alice"]
    assert (after.password_hash, after.scram[1]) == (NO_PASSWORD, keys)


async def test_a_credential_that_is_none_is_refused(site: KafkaSite) -> None:
    client = await site.client()
    unfit = AdminCode.UNACCEPTABLE_CREDENTIAL
    asked = {
        "few": (upsertion("few", iterations=4_095), unfit),
        "many": (upsertion("many", iterations=1 << 30), unfit),
        "short": (upsertion("short", salted_password=b"x"), unfit),
        "bland": (upsertion("bland", salt=b""), unfit),
        "": (upsertion(""), unfit),
        "odd": (upsertion("odd", 7), KafkaCode.UNSUPPORTED_SASL_MECHANISM),
    }
    told = await alter(client, [each for each, _ in asked.values()])
    assert told == {name: int(code) for name, (_, code) in asked.items()}
    assert await alter(client, [upsertion("twice")] * 2) == {"twice": KafkaCode.DUPLICATE_RESOURCE}
    assert not site.broker.image.access.users


# -- quotas ----------------------------------------------------------------------------------------------------------


def entry(entity: dict[str, str | None], **rates: float | None) -> dict[str, Any]:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [{"key": key, "value": rate or 0.0, "remove": rate is None} for key, rate in rates.items()],
    }


async def quotas(client: Client, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    named = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    answer = await client.ask(Key.DESCRIBE_CLIENT_QUOTAS, 1, components=named, strict=strict)
    if answer.error_code.value:
        return answer.error_code.value
    return [
        ({each.entity_type: each.entity_name for each in one.entity}, {each.key: each.value for each in one.values})
        for one in answer.entries
    ]


async def test_quotas_are_given_shown_and_taken_back(site: KafkaSite) -> None:
    client = await site.client()
    for version in versions(Key.ALTER_CLIENT_QUOTAS):
        entries = [
            entry({"user": "alice"}, producer_byte_rate=1_000.0, connections=4.0),
            entry({"user": None, "client-id": "c"}, request_rate=5.0),
            entry({"ip": "10.0.0.1"}, connection_creation_rate=2.0),
            entry({"user": "bob"}, request_percentage=5.0),
            entry({"user": "bob", "ip": "10.0.0.1"}, request_rate=5.0),
            entry({"team": "x"}, request_rate=5.0),
            entry({}, request_rate=5.0),
            entry({"client-id": "nan"}, request_rate=float("nan")),
        ]
        answer = await client.ask(Key.ALTER_CLIENT_QUOTAS, version, entries=entries, validate_only=False)
        assert [each.error_code.value for each in answer.entries] == [0, 0, 0, 42, 42, 35, 42, 42]
    alice = ({"user": "alice"}, {"producer_byte_rate": 1_000.0, "connections": 4.0})
    shared = ({"user": None, "client-id": "c"}, {"request_rate": 5.0})
    address = ({"ip": "10.0.0.1"}, {"connection_creation_rate": 2.0})
    every = await quotas(client)
    assert len(every) == 3 and all(one in every for one in (alice, shared, address))
    assert await quotas(client, ("user", 0, "alice")) == [alice]
    assert await quotas(client, ("user", 1, None)) == await quotas(client, ("client-id", 2, None)) == [shared]
    assert await quotas(client, ("user", 1, None), strict=True) == await quotas(client, ("user", 0, "no")) == []
    assert await quotas(client, ("team", 0, "x")) == KafkaCode.UNSUPPORTED_VERSION
    assert await quotas(client, ("user", 9, None)) == KafkaCode.INVALID_REQUEST
    assert await quotas(client, ("user", 2, None), ("user", 2, None)) == KafkaCode.INVALID_REQUEST
    gone = [entry({"user": "alice"}, producer_byte_rate=None), entry({"ip": "10.0.0.1"}, connection_creation_rate=None)]
    for trial in (True, False):
        assert len(site.broker.image.quotas) == 3
        await client.ask(Key.ALTER_CLIENT_QUOTAS, 1, entries=gone, validate_only=trial)
    assert [quota.entity for quota in site.broker.image.quotas] == [Entity("<default>", "c"), Entity("alice")]
