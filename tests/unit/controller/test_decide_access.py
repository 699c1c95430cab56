"""Users, tokens and ACLs in the metadata: made once, bounded, and kept from brokers that do not know them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.controller.cluster import Cluster
from tidelog.config.schema import BrokerConfig
from tidelog.controller.access_commands import (
    AddAcls,
    RemoveAcls,
    RemoveTokens,
    RemoveUser,
    StoreToken,
    StoreUser,
)
from tidelog.controller.commands import Command, SpokenLevels
from tidelog.controller.records import LevelRaised, UserStored, encode_record
from tidelog.controller.snapshot import decode_image, encode_image
from tidelog.model.access import Acl
from tidelog.model.credentials import NO_ACCESS, Access, ScramKeys, Token, User
from tidelog.model.errors import InvalidRequest, NotFound, UnsupportedLevel
from tidelog.model.levels import LevelRange

ALICE = User("alice", "$argon2id$1", (ScramKeys("SCRAM-SHA-256", "00", "01", "02", 16_384),))
TOKEN = Token("t1", "ff", "User:alice", created_ms=1_000)
ACL = Acl("Topic", "Literal", "orders", "User:alice", "*", "Read", "Allow")


def done(cluster: Cluster, *commands: Command) -> Access:
    """Does each command twice: the second time nothing may happen."""
    for command in commands:
        cluster.do(command)
        once = cluster.image
        cluster.do(command)
        assert cluster.image == once
    return cluster.image.access


def test_a_user_is_made_changed_and_removed_with_its_tokens() -> None:
    cluster = Cluster()
    assert done(cluster, StoreUser(ALICE, is_new=True)).users == {"alice": ALICE}
    changed = User("alice", "$argon2id$2")
    assert done(cluster, StoreUser(changed, is_new=False)).users == {"alice": changed}
    with pytest.raises(InvalidRequest, match="there is a user 'alice' already"):
        cluster.do(StoreUser(ALICE, is_new=True))
    with pytest.raises(NotFound, match="there is no user 'bob'"):
        cluster.do(StoreUser(User("bob", "h"), is_new=False))
    done(cluster, StoreToken(TOKEN), StoreToken(Token("t2", "fe", "User:bob", 1_000)))
    access = done(cluster, RemoveUser("alice"))
    assert (list(access.users), list(access.tokens)) == ([], ["t2"])


def test_tokens_and_acls_are_made_and_removed() -> None:
    cluster = Cluster()
    assert done(cluster, StoreToken(TOKEN)).tokens == {"t1": TOKEN}
    assert done(cluster, RemoveTokens(["t1", "t9"])).tokens == {}
    other = ACL._replace(resource_name="a")
    assert done(cluster, AddAcls([ACL, other, ACL])).acls == (other, ACL)
    assert done(cluster, RemoveAcls([ACL])).acls == (other,)
    with pytest.raises(InvalidRequest, match="'Fly' is no operation"):
        cluster.do(AddAcls([ACL, ACL._replace(operation="Fly")]))
    assert cluster.image.access.acls == (other,)


def test_there_are_bounds() -> None:
    cluster = Cluster(config=BrokerConfig(users_max=1, tokens_max=1, acls_max=1))
    done(cluster, StoreUser(ALICE, is_new=True), StoreToken(TOKEN), AddAcls([ACL]))
    for command, words in (
        (StoreUser(User("bob", "h"), is_new=True), "make 2 users, and the cluster may have 1 .users.max."),
        (StoreToken(Token("t2", "fe", "User:bob", 1_000)), "make 2 tokens, .* .tokens.max."),
        (AddAcls([ACL._replace(operation="Write")]), "make 2 ACLs, .* .acls.max."),
    ):
        with pytest.raises(InvalidRequest, match=words):
            cluster.do(command)
    done(cluster, StoreUser(User("alice", "other"), is_new=False))


def test_tokens_that_are_over_make_room() -> None:
    cluster = Cluster(config=BrokerConfig(tokens_max=1))
    done(cluster, StoreToken(Token("t1", "ff", "User:alice", 1_000, expires_ms=2_000)))
    with pytest.raises(InvalidRequest):
        cluster.do(StoreToken(Token("t2", "ff", "User:alice", 1_999)))
    assert list(done(cluster, StoreToken(Token("t2", "ff", "User:alice", 2_000))).tokens) == ["t2"]


@pytest.mark.parametrize("level", [1, 2])
def test_a_cluster_of_a_lower_level_refuses_it(level: int) -> None:
    cluster = Cluster(level=level)
    for command in (StoreUser(ALICE, is_new=True), StoreToken(TOKEN), AddAcls([ACL])):
        with pytest.raises(UnsupportedLevel, match=f"need feature level 3, and the cluster is at level {level}"):
            cluster.do(command)
    with pytest.raises(UnsupportedLevel):
        encode_record(UserStored(ALICE), level)
    assert decode_image(encode_image(cluster.image)) == cluster.image


def test_a_snapshot_has_it_once_the_level_is_raised() -> None:
    cluster = Cluster(level=2)
    assert b'"format":9' in encode_image(cluster.image)
    assert b"access" not in encode_image(cluster.image)
    record = LevelRaised(3, (SpokenLevels(1, "p", LevelRange(1, 3)),))
    cluster.image = replace(cluster.image, level=record.level)
    assert cluster.image.access is NO_ACCESS
    done(cluster, StoreUser(ALICE, is_new=True), StoreToken(TOKEN), AddAcls([ACL]))
    again = decode_image(encode_image(cluster.image))
    assert again == cluster.image
    assert isinstance(again.access.acls[0], Acl)


def test_nothing_that_is_kept_shows_itself() -> None:
    for kept in (ALICE, TOKEN, *ALICE.scram):
        assert not any(secret in repr(kept) for secret in ("argon2", "ff", "01", "02"))
