"""Administration is said in Kafka's numbers, and a frame that is cut anywhere is no request."""

from __future__ import annotations

from hashlib import pbkdf2_hmac
from types import SimpleNamespace
from typing import Any

import pytest

from tests.integration.kafka.admin_trees import TREES
from tests.integration.kafka.conftest import request_frame
from tidelog.broker.kafka import cold
from tidelog.broker.kafka.admin import acls
from tidelog.broker.kafka.admin.codes import AdminCode, Outcome, Refused, outcome_of, told_as
from tidelog.broker.kafka.admin.configs import SOURCES, given_settings
from tidelog.broker.kafka.admin.described_configs import kind_of
from tidelog.broker.kafka.admin.elections import CODES
from tidelog.broker.kafka.admin.grouping import by_topic
from tidelog.broker.kafka.admin.long_answers import LAST_FIELDS, SLICE, written
from tidelog.broker.kafka.admin.scram import _keys
from tidelog.broker.kafka.apis import APIS, Key
from tidelog.broker.kafka.call import Call, Head, read_call
from tidelog.config.describe import ConfigSource
from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.controller.partition_commands import ElectionCode
from tidelog.model.access import OPERATIONS, PATTERN_TYPES, PERMISSIONS, RESOURCE_TYPES
from tidelog.model.errors import InvalidRequest, NotAuthorized, TopicExists
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.kafka_wire import Malformed, Reader
from tidelog.model.passwords import SCRAM_ITERATIONS, made_user


def read(frame: bytes) -> Any:
    view = memoryview(frame)
    head = Head(view)
    return cold.read(read_call(APIS[head.key], head, view, 0.0))


@pytest.mark.parametrize("key", TREES)
def test_a_frame_that_is_cut_anywhere_is_no_request(key: Key) -> None:
    frame = request_frame(key, APIS[key].newest, TREES[key])
    assert read(frame) == read(frame + b"\0\1"), "librdkafka writes more than there is to read"
    for end in range(len(frame)):
        with pytest.raises(Malformed):
            read(frame[:end])


ENTRY: dict[str, Any] = {
    "name": "t", "topic_id": None, "error_code": 42, "error_message": "no", "configs": [], "resource_type": 2,
    "resource_name": "t", "pattern_type": 3, "acls": [], "matching_acls": [], "user": "u", "credential_infos": [],
}  # fmt: skip


@pytest.mark.parametrize("key", LAST_FIELDS)
async def test_a_long_answer_is_the_same_as_one_that_is_written_at_once(key: Key) -> None:
    entries = [{**ENTRY, "name": f"{number}" * 9, "user": f"{number}"} for number in range(2 * SLICE + 1)]
    tree = {"throttle_time": 7, "error_code": 0, "error_message": "well", LAST_FIELDS[key]: entries}
    for version in range(APIS[key].oldest, APIS[key].newest + 1):
        call = Call(APIS[key], version, 7, "", Reader(memoryview(b"")), version >= APIS[key].flexible_from, 0.0)
        assert b"".join(await written(call, tree)) == b"".join(cold.write(call, tree))


def test_every_word_has_its_number() -> None:
    assert {*acls.KINDS.values()} == {*RESOURCE_TYPES}
    assert {*acls.PATTERNS.values()} == {*PATTERN_TYPES}
    assert {*acls.OPERATIONS.values()} == {*OPERATIONS}
    assert {*acls.PERMISSIONS.values()} == {*PERMISSIONS}
    assert {*SOURCES} == {*ConfigSource}
    assert {*CODES} == {*ElectionCode}


def test_types_of_settings() -> None:
    told = {name: kind_of(TopicConfig, name) for name in ("retention.ms", "min.insync.replicas", "commit.protocol")}
    assert told == {"retention.ms": 5, "min.insync.replicas": 3, "commit.protocol": 2}
    assert kind_of(TopicConfig, "unclean.leader.election.enable") == 1
    assert kind_of(BrokerConfig, "sasl.enabled.mechanisms") == 7


def test_an_error_is_told_as_what_it_means_here() -> None:
    with pytest.raises(Refused) as refused, told_as(AdminCode.INVALID_PARTITIONS):
        raise InvalidRequest("bad")
    assert outcome_of(refused.value) == Outcome(AdminCode.INVALID_PARTITIONS, "bad")
    with pytest.raises(TopicExists), told_as(AdminCode.INVALID_PARTITIONS):
        raise TopicExists("there")
    assert outcome_of(NotAuthorized("no"), "Cluster").code == KafkaCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("pairs", [[("a", "1"), ("a", "2")], [("a", None)]])
def test_a_setting_has_one_value(pairs: list[tuple[str, str | None]]) -> None:
    with pytest.raises(Refused) as raised:
        given_settings(pairs)
    assert raised.value.code == KafkaCode.INVALID_CONFIG


def test_answers_are_grouped_by_topic_in_their_order() -> None:
    asked = [SimpleNamespace(topic=name) for name in "aba"]
    answers = [{"n": number} for number in range(3)]
    assert by_topic(asked, answers, "ps") == [
        {"name": "a", "ps": [{"n": 0}, {"n": 2}]},
        {"name": "b", "ps": [{"n": 1}]},
    ]


def test_the_keys_of_a_salted_password_are_those_that_a_password_gives() -> None:
    user = made_user("alice", "a password", (b"0" * 16, b"1" * 16, b"2" * 16))
    for kept, kind, salt in zip(user.scram, ("sha256", "sha512"), (b"1" * 16, b"2" * 16), strict=True):
        salted = pbkdf2_hmac(kind, b"a password", salt, SCRAM_ITERATIONS)
        change = SimpleNamespace(salted_password=salted, salt=salt, iterations=SCRAM_ITERATIONS)
        assert _keys(kept.mechanism, change) == kept
