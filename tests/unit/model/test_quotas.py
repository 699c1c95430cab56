"""Quotas count by Kafka's precedence, and no client id gets around a bucket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.model.errors import InvalidRequest
from tidelog.model.quotas import (
    CONNECTIONS,
    DEFAULT,
    BucketName,
    Entity,
    Quota,
    QuotaTable,
    altered,
    canonical_address,
    check_rates,
    checked_entity,
)

KEY = "producer_byte_rate"
PRECEDENCE = [  # Kafka's, the most exact first
    ("alice", "app"),
    ("alice", DEFAULT),
    ("alice", None),
    (DEFAULT, "app"),
    (DEFAULT, DEFAULT),
    (DEFAULT, None),
    (None, "app"),
    (None, DEFAULT),
]
NAMES = st.sampled_from(["alice", "bob", "app", "", DEFAULT, "x" * 40])


def table(*entities: tuple[str | None, str | None]) -> QuotaTable:
    return QuotaTable(Quota(Entity(*entity), ((KEY, float(rate)),)) for rate, entity in enumerate(entities, start=1))


@given(st.permutations(range(len(PRECEDENCE))), st.integers(1, len(PRECEDENCE)))
def test_the_most_exact_entity_counts(order: list[int], count: int) -> None:
    chosen = order[:count]
    found = table(*(PRECEDENCE[i] for i in chosen)).of_client(KEY, "alice", "app")
    assert found is not None and found[1] == 1 + chosen.index(min(chosen))


@pytest.mark.parametrize("entity", PRECEDENCE)
def test_other_keys_and_others_names_do_not_count(entity: tuple[str | None, str | None]) -> None:
    quotas = table(entity)
    assert quotas.of_client("consumer_byte_rate", "alice", "app") is None
    assert (quotas.of_client(KEY, "bob", "other") is None) == (
        entity not in [(DEFAULT, DEFAULT), (DEFAULT, None), (None, DEFAULT)]
    )


@given(st.sets(st.sampled_from(PRECEDENCE), min_size=1), st.lists(st.text(max_size=8), max_size=60))
def test_client_ids_that_no_quota_names_have_one_bucket_of_their_user(
    entities: set[tuple[str | None, str | None]], client_ids: list[str]
) -> None:
    quotas = table(*sorted(entities, key=str))
    buckets = {
        found[0]
        for client_id in client_ids
        if client_id != "app" and (found := quotas.of_client(KEY, "alice", client_id)) is not None
    }
    assert len(buckets) <= 1


def test_each_user_under_a_default_has_a_bucket_of_its_own() -> None:
    quotas = table((DEFAULT, None))
    assert quotas.of_client(KEY, "alice", "app") == (BucketName(KEY, "alice", None), 1.0)
    assert quotas.of_client(KEY, "bob", "app") == (BucketName(KEY, "bob", None), 1.0)


def test_a_client_id_that_a_quota_names_is_shared_by_its_users() -> None:
    quotas = table((None, "app"))
    assert quotas.of_client(KEY, "alice", "app") == quotas.of_client(KEY, "bob", "app")


def test_an_address_has_its_own_quota_or_the_default() -> None:
    key = "connection_creation_rate"
    quotas = QuotaTable(
        [Quota(Entity(address="10.0.0.1"), ((key, 5.0),)), Quota(Entity(address=DEFAULT), ((key, 2.0),))]
    )
    assert quotas.of_address(key, "10.0.0.1") == (BucketName(key, None, None, "10.0.0.1"), 5.0)
    assert quotas.of_address(key, "10.0.0.2") == (BucketName(key, None, None, "10.0.0.2"), 2.0)
    assert quotas.of_client(KEY, "alice", "app") is None
    assert quotas.of_address(KEY, "10.0.0.1") is None
    without_default = QuotaTable([Quota(Entity(address="10.0.0.1"), ((key, 5.0),))])
    assert without_default.of_address(key, "10.0.0.2") is None


@given(
    st.lists(
        st.tuples(st.one_of(st.none(), NAMES), st.one_of(st.none(), NAMES), st.one_of(st.none(), st.floats(1, 9))),
        max_size=20,
    )
)
def test_quotas_are_what_was_said_last_in_one_order(changes: list[tuple[str | None, str | None, float | None]]) -> None:
    quotas: tuple[Quota, ...] = ()
    said: dict[Entity, float] = {}
    for user, client_id, rate in changes:
        entity = Entity(user, client_id)
        quotas = altered(quotas, entity, {KEY: rate})
        said.pop(entity, None)
        if rate is not None:
            said[entity] = rate
    assert {quota.entity: dict(quota.rates) for quota in quotas} == {each: {KEY: said[each]} for each in said}
    assert list(quotas) == sorted(quotas, key=lambda quota: tuple(name or "" for name in quota.entity))


@pytest.mark.parametrize(
    "entity",
    [
        Entity(),
        Entity(user=""),
        Entity(client_id=""),
        Entity(user="a\nb"),
        Entity(user="\x1b[31m"),
        Entity(user="x" * 257),
        Entity(address="localhost"),
        Entity(address=""),
        Entity(user="a", address="10.0.0.1"),
    ],
)
def test_what_is_no_entity_is_refused(entity: Entity) -> None:
    with pytest.raises(InvalidRequest):
        checked_entity(entity)


@pytest.mark.parametrize(
    ("entity", "changes"),
    [
        (Entity("alice"), {}),
        (Entity("alice"), {"request_percentage": 5.0}),
        (Entity("alice"), {"connection_creation_rate": 5.0}),
        (Entity(address=DEFAULT), {KEY: 5.0}),
        (Entity("alice"), {CONNECTIONS: 0.5}),
        (Entity("alice"), {CONNECTIONS: 1.5}),
        (Entity("alice"), {KEY: 0.0}),
        (Entity("alice"), {KEY: -1.0}),
        (Entity("alice"), {KEY: float("nan")}),
        (Entity("alice"), {KEY: float("inf")}),
        (Entity("alice"), {KEY: 2.0**60}),
    ],
)
def test_what_is_no_rate_is_refused(entity: Entity, changes: dict[str, float | None]) -> None:
    with pytest.raises(InvalidRequest):
        check_rates(entity, changes)


def test_an_address_has_one_spelling() -> None:
    assert checked_entity(Entity(address="2001:DB8::0:1")) == Entity(address="2001:db8::1")
    assert checked_entity(Entity(address=DEFAULT)) == Entity(address=DEFAULT)
    assert canonical_address("::ffff:10.0.0.1") == "10.0.0.1"
    assert canonical_address("") == ""
