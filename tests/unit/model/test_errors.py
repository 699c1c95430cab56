"""Every error is in the one table, under codes from which its callers conclude what is true."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Final

import pytest

from tests import kafka_conclusions
from tests.kafka_conclusions import RETRIED
from tidelog.model import errors
from tidelog.model.errors import (
    CorruptBatch,
    NotAReplica,
    NotLeader,
    QuotaExceeded,
    RecordsLost,
    TidelogError,
    TooManyConnections,
    UnknownPartition,
    UnknownTopic,
)
from tidelog.model.kafka_codes import KafkaCode
from tools.error_reference import error_classes, page

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # kafka-python reads its schemas by a deprecated call when it is imported
    import kafka.errors

ROOT: Final = Path(__file__).parents[3]
CLASSES: Final = error_classes()
TOLD: Final = [kind for kind in CLASSES if kind.kafka is not None]
OLD_NAMES: Final = {  # as kafka-python has them; Kafka has renamed the codes since
    KafkaCode.NOT_LEADER_OR_FOLLOWER: "NOT_LEADER_FOR_PARTITION",
    KafkaCode.MESSAGE_TOO_LARGE: "MESSAGE_SIZE_TOO_LARGE",
    KafkaCode.INVALID_TOPIC_EXCEPTION: "INVALID_TOPIC",
}
TRIED_AGAIN: Final = [UnknownTopic, UnknownPartition, NotAReplica, CorruptBatch, QuotaExceeded, TooManyConnections]
"""4xx after which Kafka's clients try again: metadata that may lag, damage on the way, a share that is used up."""


def is_definite(kind: type[TidelogError]) -> bool:
    return kind.__new__(kind).definite


def declares_code(kind: type[TidelogError]) -> bool:
    return "code" in vars(kind)


def test_the_page_in_the_repository_is_the_generated_one() -> None:
    assert (ROOT / "docs" / "errors.md").read_text(encoding="utf-8") == page(), "run `make docs`"


def test_every_error_is_on_the_page() -> None:
    names = [kind.__name__ for kind in CLASSES]
    public = [name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, TidelogError)]
    assert set(public) - {"TidelogError"} < set(names)
    assert {"PeerLost", "WriterFenced", "DataLoss", "BufferFull", "SnapshotUnreadable"} < set(names)
    text = page()
    assert all(f" {name} |" in text for name in names)


def test_a_code_belongs_to_one_class() -> None:
    codes = [kind.code for kind in CLASSES if declares_code(kind)]
    assert sorted(codes) == sorted(set(codes))


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_says_what_it_means(kind: type[TidelogError]) -> None:
    assert kind.__doc__ and kind.__doc__.rstrip().endswith((".", ")"))


@pytest.mark.parametrize("kind", [kind for kind in CLASSES if kind.__module__ == errors.__name__])
def test_every_error_of_brokers_has_a_kafka_code_of_its_own(kind: type[TidelogError]) -> None:
    assert isinstance(vars(kind).get("kafka"), KafkaCode)


@pytest.mark.parametrize("kind", TOLD)
def test_kafka_clients_conclude_the_same_about_the_append(kind: type[TidelogError]) -> None:
    assert kind.kafka is not None
    assert kafka_conclusions.is_definite(kind.kafka) == is_definite(kind)


@pytest.mark.parametrize("kind", [kind for kind in TOLD if is_definite(kind)])
def test_kafka_clients_try_again_what_passes_by_itself_and_nothing_else(kind: type[TidelogError]) -> None:
    assert kind.kafka is not None
    assert (kind.kafka in RETRIED) == (kind.code // 100 in (503, 507) or kind in TRIED_AGAIN)


@pytest.mark.parametrize("code", list(KafkaCode))
def test_the_number_of_a_kafka_code_is_kafkas(code: KafkaCode) -> None:
    assert kafka.errors.for_code(code.value).message == OLD_NAMES.get(code, code.name)


@pytest.mark.parametrize("code", list(KafkaCode))
def test_a_code_after_which_kafka_clients_try_again_is_retriable_there(code: KafkaCode) -> None:
    if code is KafkaCode.CORRUPT_MESSAGE:
        return  # Java's CorruptRecordException and librdkafka's INVALID_MSG are retriable, kafka-python's is not
    assert bool(kafka.errors.for_code(code.value).retriable) == (code in RETRIED)


def test_every_kafka_code_is_used() -> None:
    sources = "".join(file.read_text() for file in (ROOT / "tidelog" / "broker" / "kafka").rglob("*.py"))
    said = {KafkaCode[name] for name in re.findall(r"KafkaCode\.([A-Z_]+)\b", sources)}
    assert {kind.kafka for kind in TOLD} | {KafkaCode.DUPLICATE_SEQUENCE_NUMBER} | said == set(KafkaCode)


def test_an_error_that_is_kept_keeps_nothing_else() -> None:
    def fail() -> None:
        try:
            CLASSES[len(CLASSES)]
        except IndexError as cause:
            raise UnknownTopic("no such topic") from cause

    with pytest.raises(UnknownTopic) as caught:
        fail()
    assert caught.value.__cause__ is not None
    error = caught.value.forget_origin()
    assert error is caught.value
    assert (error.__traceback__, error.__cause__, error.__context__, error.message) == (
        None,
        None,
        None,
        "no such topic",
    )


def test_an_error_tells_what_its_catcher_needs() -> None:
    assert NotLeader("m").leader_epoch == -1
    assert NotLeader("m", 7).leader_epoch == 7
    assert (QuotaExceeded("m").retry_after_s, QuotaExceeded("m", retry_after_s=9).retry_after_s) == (1, 9)
    lost = RecordsLost("m", "t", 3, [(5, 9)])
    assert (lost.topic, lost.partition, lost.ranges) == ("t", 3, ((5, 9),))
    assert RecordsLost("m").ranges == (), "over the wire"
