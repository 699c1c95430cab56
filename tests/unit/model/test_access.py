"""Kafka's rules of access, by example, and the index against their definition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.model.access import (
    ALLOW,
    ANY_NAME,
    ANYBODY,
    ANYWHERE,
    DENY,
    LITERAL,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    PREFIXED,
    Acl,
    AclIndex,
    Caller,
    Operation,
    Principal,
    Resource,
    check_acl,
    check_principal,
    may,
)
from tidelog.model.errors import InvalidRequest

ALICE = Principal("User", "alice")
CALLER = Caller(ALICE, "10.0.0.7")
ORDERS = Resource("Topic", "orders")


def acl(operation: str = "Read", permission: str = ALLOW, **fields: str) -> Acl:
    usual = {
        "resource_type": "Topic",
        "pattern_type": LITERAL,
        "resource_name": "orders",
        "principal": "User:alice",
        "host": ANYWHERE,
    }
    return Acl(**{**usual, **fields}, operation=operation, permission=permission)


def alice_may(operation: Operation, *acls: Acl, without_acl: bool = False) -> bool:
    answers = {
        may(acls, (), CALLER, operation, ORDERS, without_acl=without_acl),
        AclIndex(acls, (), without_acl=without_acl).may(CALLER, operation, ORDERS),
    }
    assert len(answers) == 1
    return answers.pop()


def test_what_nothing_allows_is_not_allowed() -> None:
    assert not alice_may(Operation.READ)
    assert alice_may(Operation.READ, without_acl=True)
    assert not alice_may(Operation.READ, acl("Write"), without_acl=True), "an ACL fits the resource"
    assert not alice_may(Operation.READ, acl(principal="User:bob"))


def test_a_denial_wins() -> None:
    assert alice_may(Operation.READ, acl())
    assert not alice_may(Operation.READ, acl(), acl(permission=DENY, principal=ANYBODY))
    assert not alice_may(Operation.READ, acl(), acl("All", DENY, pattern_type=PREFIXED, resource_name="ord"))


@pytest.mark.parametrize("operation", ["Read", "Write", "Delete", "Alter"])
def test_describe_follows_from_others(operation: str) -> None:
    assert alice_may(Operation.DESCRIBE, acl(operation))
    assert not alice_may(Operation.DESCRIBE_CONFIGS, acl(operation))
    assert alice_may(Operation.DESCRIBE, acl("Describe"), acl(operation, DENY)), "a denial implies nothing"


def test_describe_configs_follows_from_alter_configs() -> None:
    assert alice_may(Operation.DESCRIBE_CONFIGS, acl("AlterConfigs"))
    assert not alice_may(Operation.DESCRIBE, acl("AlterConfigs"))
    assert not alice_may(Operation.ALTER_CONFIGS, acl("DescribeConfigs"))


def test_patterns() -> None:
    assert alice_may(Operation.READ, acl(pattern_type=PREFIXED, resource_name="ord"))
    assert not alice_may(Operation.READ, acl(pattern_type=PREFIXED, resource_name="orders-"))
    assert alice_may(Operation.READ, acl(resource_name=ANY_NAME))
    assert not alice_may(Operation.READ, acl(resource_name="ord"))
    assert not alice_may(Operation.READ, acl(resource_type="Group"))


def test_hosts() -> None:
    assert alice_may(Operation.READ, acl(host="10.0.0.7"))
    assert alice_may(Operation.READ, acl(host="10.0.0.0/24"))
    assert not alice_may(Operation.READ, acl(host="10.0.1.0/24"))
    assert not alice_may(Operation.READ, acl(host="fe80::/10"))
    assert not may([acl(host="10.0.0.0/8")], (), Caller(ALICE, ""), Operation.READ, ORDERS)


def test_a_super_user_may_everything() -> None:
    denied = [acl("All", DENY)]
    assert may(denied, (ALICE,), CALLER, Operation.WRITE, ORDERS)
    assert AclIndex(denied, (ALICE,)).may(CALLER, Operation.WRITE, ORDERS)
    assert AclIndex(denied, (ALICE,)).may_any(CALLER, Operation.WRITE, "Topic")


def test_any_of_a_type() -> None:
    def may_write_any(*acls: Acl) -> bool:
        return AclIndex(acls).may_any(CALLER, Operation.WRITE, "Topic")

    assert not may_write_any(acl("Read"))
    assert may_write_any(acl("Write"))
    assert may_write_any(acl("Write"), acl("Write", DENY, resource_name="other"))
    assert not may_write_any(acl("Write"), acl("Write", DENY))
    assert not may_write_any(acl("Write"), acl("Write", DENY, resource_name=ANY_NAME))
    assert not may_write_any(acl("Write"), acl("Write", DENY, pattern_type=PREFIXED, resource_name="or"))
    assert may_write_any(
        acl("Write", pattern_type=PREFIXED, resource_name="or"), acl("Write", DENY, resource_name="or")
    )


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (acl("Fly"), "'Fly' is no operation"),
        (acl("None"), "'None' is no operation"),
        (acl(permission="Perhaps"), "'Perhaps' is no permission"),
        (acl(resource_type="Broker"), "'Broker' is no resource type"),
        (acl(pattern_type="Regex"), "'Regex' is no pattern type"),
        (acl(principal="alice"), "write it as User:alice"),
        (acl(principal="User:a\nb"), "write it as User:alice"),
        (acl(host="10.0.0.1/8"), "has host bits set"),
        (acl(host="example.com"), "no address, no network"),
        (acl(resource_name=""), "1 to 249"),
        (acl(resource_type="Cluster"), "is called kafka-cluster"),
    ],
)
def test_a_wrong_acl_is_refused(wrong: Acl, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        check_acl(wrong)


def test_hosts_have_one_spelling() -> None:
    assert check_acl(acl(host="FE80:0:0::1")).host == "fe80::1"
    assert check_acl(acl(host="fe80:0::/10")).host == "fe80::/10"
    assert check_acl(acl()).host == ANYWHERE
    assert str(check_principal("User:CN=a:b")) == "User:CN=a:b"


NAMES = st.sampled_from(["a", "ab", "abc", "b", ANY_NAME])
TYPES = st.sampled_from(["Topic", "Group"])
PEOPLE = st.sampled_from(["User:a", "User:b"])
ACLS = st.builds(
    Acl,
    TYPES,
    st.sampled_from(PATTERN_TYPES),
    NAMES,
    st.one_of(PEOPLE, st.just(ANYBODY)),
    st.sampled_from([ANYWHERE, "10.0.0.1", "10.0.0.0/30"]),
    st.sampled_from(OPERATIONS),
    st.sampled_from(PERMISSIONS),
)
CALLERS = st.builds(Caller, PEOPLE.map(check_principal), st.sampled_from(["10.0.0.1", "10.0.0.2", "10.9.9.9"]))
QUESTIONS = st.tuples(CALLERS, st.sampled_from(Operation), st.builds(Resource, TYPES, NAMES))


@given(
    st.lists(ACLS, max_size=12),
    st.lists(ACLS, max_size=12),
    st.lists(QUESTIONS, min_size=1, max_size=20),
    st.booleans(),
)
def test_the_index_says_what_the_definition_says(
    before: list[Acl], acls: list[Acl], questions: list[tuple[Caller, Operation, Resource]], without_acl: bool
) -> None:
    index = AclIndex([*before, *acls[::2]], (check_principal("User:b"),), without_acl=without_acl)
    index.set(acls)
    for caller, operation, resource in [*questions, *questions]:
        expected = may(acls, (check_principal("User:b"),), caller, operation, resource, without_acl=without_acl)
        assert index.may(caller, operation, resource) == expected


@pytest.mark.parametrize("is_any_asked_first", [True, False])
def test_whether_any_is_allowed_says_nothing_of_a_name_that_looks_like_all(is_any_asked_first: bool) -> None:
    """A request may name a topic `*`, and is asked about it before it is refused."""
    index = AclIndex([acl("Write")])
    for is_about_any in (is_any_asked_first, not is_any_asked_first):
        if is_about_any:
            assert index.may_any(CALLER, Operation.WRITE, "Topic")
        else:
            assert not index.may(CALLER, Operation.WRITE, Resource("Topic", ANY_NAME))


def test_no_more_is_remembered_than_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.model.access.DECISIONS_MAX", 3)
    index = AclIndex([acl("Write")])
    callers = [Caller(ALICE, f"10.0.0.{number}") for number in range(10)]
    for caller in callers:
        assert index.may_any(caller, Operation.WRITE, "Topic")
        assert len(index._decisions) <= 3
    for caller in callers:
        assert index.may(caller, Operation.WRITE, ORDERS)
        assert len(index._decisions) <= 3


def test_a_check_looks_at_one_acl_of_a_thousand() -> None:
    acls = [acl(resource_name=f"topic-{n}", principal=f"User:{n % 50}") for n in range(900)]
    acls += [acl(resource_name=f"topic-{n}-", pattern_type=PREFIXED) for n in range(99)]
    index = AclIndex([*acls, acl()])
    assert list(index._about(index._fitting(ORDERS), CALLER)) == [acl()]
