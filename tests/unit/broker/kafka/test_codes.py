"""Errors become codes of Kafka's in one place, for each of them, by what clients do with it."""

from __future__ import annotations

import pytest

from tests.kafka_conclusions import RETRIED, is_definite
from tidelog.broker.kafka.codes import UNFORESEEN, code_of, fetch_code_of
from tidelog.model.errors import (
    DamagedBatch,
    InternalError,
    LeaderNotAvailable,
    NotAuthorized,
    NotEnoughReplicas,
    NotLeader,
    Overloaded,
    ShuttingDown,
    TidelogError,
)
from tidelog.model.kafka_codes import KafkaCode
from tools.error_reference import error_classes


def an_error(kind: type[TidelogError]) -> TidelogError:
    made = kind.__new__(kind)
    TidelogError.__init__(made, "")
    return made


@pytest.mark.parametrize("kind", error_classes())
def test_each_error_has_a_code_that_says_whether_it_is_definite(kind: type[TidelogError]) -> None:
    error = an_error(kind)
    code = code_of(error)
    if error.kafka is None:
        assert code is UNFORESEEN
        return
    assert is_definite(code) == error.definite
    assert not (error.definite and error.status in (503, 507)) or code in RETRIED, "it passes by itself"


def test_a_missing_right_is_told_by_the_kind_of_its_resource() -> None:
    error = an_error(NotAuthorized)
    assert code_of(error) is KafkaCode.TOPIC_AUTHORIZATION_FAILED
    assert code_of(error, "Group") is KafkaCode.GROUP_AUTHORIZATION_FAILED
    assert code_of(error, "Cluster") is KafkaCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_fault_of_the_broker_is_never_told_as_definite() -> None:
    assert code_of(an_error(InternalError)) is KafkaCode.REQUEST_TIMED_OUT


AFTER_WHICH_JAVA_FETCHES_AGAIN = {
    KafkaCode.NOT_LEADER_OR_FOLLOWER,
    KafkaCode.REPLICA_NOT_AVAILABLE,
    KafkaCode.KAFKA_STORAGE_ERROR,
    KafkaCode.FENCED_LEADER_EPOCH,
    KafkaCode.UNKNOWN_LEADER_EPOCH,
    KafkaCode.OFFSET_NOT_AVAILABLE,
    KafkaCode.UNKNOWN_TOPIC_OR_PARTITION,
    KafkaCode.UNKNOWN_TOPIC_ID,
}
"""Its consumer ends with an IllegalStateException after most others, LEADER_NOT_AVAILABLE above all."""


@pytest.mark.parametrize(
    "kind", [LeaderNotAvailable, NotEnoughReplicas, NotLeader, Overloaded, ShuttingDown, DamagedBatch, InternalError]
)
def test_what_passes_by_itself_ends_no_consumer(kind: type[TidelogError]) -> None:
    assert fetch_code_of(an_error(kind)) in AFTER_WHICH_JAVA_FETCHES_AGAIN
