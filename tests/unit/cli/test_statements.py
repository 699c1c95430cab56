"""The sentences of `tidelog admin`: what they mean, and what is said about those that mean nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli.statements import (
    AddBrokers,
    CreateCluster,
    CreateTopic,
    DropTopic,
    RemoveBrokers,
    Show,
    Shown,
    Statement,
    StatementError,
    completions,
    parse,
)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("create cluster with brokers broker-0, broker-1, broker-2", CreateCluster((0, 1, 2))),
        ("create cluster with brokers broker-0, broker-1, broker2", CreateCluster((0, 1, 2))),
        ("create cluster with broker broker-7", CreateCluster((7,))),
        ("create topic topicX with 100 partitions", CreateTopic("topicX", 100)),
        ("create topic t with 1 partition", CreateTopic("t", 1)),
        ("create topic t with 3 partitions and 2 replicas", CreateTopic("t", 3, 2)),
        ("create topic t with 3 partitions and 1 replica using isr", CreateTopic("t", 3, 1, "isr")),
        ("create topic t with 3 partitions using PAXOS", CreateTopic("t", 3, None, "paxos")),
        ("create topic with with 3 partitions", CreateTopic("with", 3)),
        ("alter cluster add brokers broker-3, broker-4", AddBrokers((3, 4))),
        ("alter cluster remove brokers broker-1", RemoveBrokers((1,))),
        ("alter cluster remove broker 1,2 ,3", RemoveBrokers((1, 2, 3))),
        ("drop topic T", DropTopic("T")),
        ("show topics", Show(Shown.TOPICS)),
        ("show brokers", Show(Shown.BROKERS)),
        ("show groups", Show(Shown.GROUPS)),
        ("  SHOW\n\tTopics ; ", Show(Shown.TOPICS)),
    ],
)
def test_what_statements_mean(text: str, meaning: Statement) -> None:
    assert parse(text) == meaning


def test_a_semicolon_at_the_end_does_no_harm() -> None:
    assert parse("drop topic t;") == parse("drop topic t ;") == DropTopic("t")


@pytest.mark.parametrize(
    ("text", "word", "expected"),
    [
        ("", "", ("create", "drop", "alter", "show")),
        ("make topic t", "make", ("create", "drop", "alter", "show")),
        ("create", "", ("cluster", "topic")),
        ("create tpoic t", "tpoic", ("cluster", "topic")),
        ("create topic", "", ("a topic's name",)),
        ("create topic ;", ";", ("a topic's name",)),
        ("create topic t of 3 partitions", "of", ("with",)),
        ("create topic t with many partitions", "many", ("a number of partitions",)),
        ("create topic t with 0 partitions", "0", ("a number of partitions",)),
        ("create topic t with 3 parts", "parts", ("partitions", "partition")),
        ("create topic t with 3 partitions or else", "or", ("and", "using", "the end")),
        ("create topic t with 3 partitions and two replicas", "two", ("a number of replicas",)),
        ("create topic t with 3 partitions using raft", "raft", ("isr", "paxos")),
        ("create topic t with 3 partitions using isr and 3 replicas", "and", ("the end",)),
        ("create cluster with brokers broker-0 broker-1", "broker-1", (",", "the end")),
        ("create cluster with brokers broker-0,", "", ("a broker such as broker-0",)),
        ("create cluster with brokers host-0", "host-0", ("a broker such as broker-0",)),
        ("alter cluster drop brokers broker-1", "drop", ("add", "remove")),
        ("show everything", "everything", ("topics", "brokers", "groups")),
        ("show topics; show brokers", "show", ("the end",)),
    ],
)
def test_errors_point_at_the_word_and_say_what_could_stand_there(
    text: str, word: str, expected: tuple[str, ...]
) -> None:
    with pytest.raises(StatementError) as caught:
        parse(text)
    error = caught.value
    assert error.text[error.start : error.end] == word
    assert error.expected == expected
    assert all(possible in str(error) for possible in expected)


def test_the_pointer_stands_under_the_word() -> None:
    with pytest.raises(StatementError) as caught:
        parse("create   tpoic t")
    assert caught.value.pointer == "  create tpoic t\n         ^^^^^"
    assert str(caught.value) == "'tpoic' is not expected here; expected cluster or topic"


def test_a_broker_that_is_named_twice() -> None:
    with pytest.raises(StatementError, match="broker 1 is named twice"):
        parse("alter cluster add brokers broker-1, broker-2, 1")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["create", "drop", "alter", "show"]),
        ("cr", ["create"]),
        ("create ", ["cluster", "topic"]),
        ("create t", ["topic"]),
        ("create topic ", []),
        ("create topic t with 3 partitions ", ["and", "using"]),
        ("show T", ["topics"]),
        ("nonsense ", []),
        ("drop topic t ", []),
    ],
)
def test_completions(text: str, words: list[str]) -> None:
    assert completions(text) == words


WORDS = ["create", "alter", "topic", "with", "3", ",", ";", "broker-1", "brokers", "cluster", "add", "partitions", "?"]


def understood(text: str) -> bool:
    try:
        parse(text)
    except StatementError:
        return False
    return True


@given(st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join).filter(lambda text: not understood(text)))
def test_an_error_is_at_a_place_in_the_text(text: str) -> None:
    with pytest.raises(StatementError) as caught:
        parse(text)
    error = caught.value
    assert 0 <= error.start <= error.end <= len(error.text)
    assert error.pointer.count("^") == max(1, error.end - error.start)
