"""The grammar of the statements of `tidelog admin`.

    create cluster with brokers BROKER, ...
    create topic NAME with N partitions [and N replicas] [using isr|paxos]
    drop topic NAME
    alter cluster add|remove brokers BROKER, ...
    show topics|brokers|groups

After the design of Kafka's replication (2012). Keywords are case-insensitive; a broker is `broker-3`, and a final
semicolon is ignored. A syntax error has the position and the expected words, which the prompt also uses for completion.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from tidelog.model.cluster import PROTOCOLS

_TOKEN: Final = re.compile(r"[,;]|[^\s,;]+")
_NUMBER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_BROKER: Final = re.compile(r"broker-?([0-9]{1,9})", re.ASCII | re.IGNORECASE)
END: Final = "the end"


class Shown(StrEnum):
    """The kind of things that a `show` statement lists."""

    TOPICS = "topics"
    BROKERS = "brokers"
    GROUPS = "groups"


@dataclass(frozen=True, slots=True)
class CreateCluster:
    """The statement `create cluster`: the brokers that the cluster consists of."""

    node_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AddBrokers:
    """The statement `alter cluster add`: the brokers to add."""

    node_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RemoveBrokers:
    """The statement `alter cluster remove`: the brokers to remove."""

    node_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """The statement `create topic`. Fields of None use the cluster's defaults."""

    name: str
    partitions: int
    replicas: int | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class DropTopic:
    """The statement `drop topic`."""

    name: str


@dataclass(frozen=True, slots=True)
class Show:
    """The statement `show`."""

    what: Shown


Statement: TypeAlias = CreateCluster | AddBrokers | RemoveBrokers | CreateTopic | DropTopic | Show


class StatementError(Exception):
    """A syntax error in `text` from `start` to `end`; `expected` are the words that could be there."""

    def __init__(self, text: str, start: int, end: int, expected: Sequence[str], problem: str = "") -> None:
        self.text, self.start, self.end, self.expected = text, start, end, tuple(expected)
        unexpected = f"{text[start:end]!r}" if end > start else "the end"
        alternatives = " or ".join([", ".join(expected[:-1]), expected[-1]] if len(expected) > 1 else expected)
        super().__init__(problem or f"{unexpected} is not expected here; expected {alternatives}")

    @property
    def pointer(self) -> str:
        """Returns two lines: the statement, and marks under the wrong words."""
        return f"  {self.text}\n  {' ' * self.start}{'^' * max(1, self.end - self.start)}"


def parse(text: str) -> Statement:
    """Parses a statement. Raises `StatementError`."""
    return _Parser(text).statement()


class _Token(NamedTuple):
    text: str
    start: int
    end: int


class _Parser:
    """A recursive descent parser with a method per kind of statement."""

    def __init__(self, text: str) -> None:
        self._text = " ".join(text.split())
        self._tokens = [_Token(match[0], match.start(), match.end()) for match in _TOKEN.finditer(self._text)]
        self._tokens.append(_Token("", len(self._text), len(self._text)))
        self._at = 0

    def statement(self) -> Statement:
        verb = self._word("create", "drop", "alter", "show")
        if verb == "create":
            statement = self._create_cluster() if self._word("cluster", "topic") == "cluster" else self._create_topic()
        elif verb == "drop":
            self._word("topic")
            statement = DropTopic(self._name())
        elif verb == "alter":
            statement = self._alter_cluster()
        else:
            statement = Show(Shown(self._word(*Shown)))
        self._end()
        return statement

    def _create_cluster(self) -> Statement:
        self._word("with")
        return CreateCluster(self._brokers())

    def _create_topic(self) -> Statement:
        name = self._name()
        self._word("with")
        partitions = self._number("a number of partitions")
        self._word("partitions", "partition")
        replicas = protocol = None
        word = self._word("and", "using", END)
        if word == "and":
            replicas = self._number("a number of replicas")
            self._word("replicas", "replica")
            word = self._word("using", END)
        if word == "using":
            protocol = self._word(*PROTOCOLS)
        return CreateTopic(name, partitions, replicas, protocol)

    def _alter_cluster(self) -> Statement:
        self._word("cluster")
        verb = self._word("add", "remove")
        node_ids = self._brokers()
        return AddBrokers(node_ids) if verb == "add" else RemoveBrokers(node_ids)

    # -- pieces --------------------------------------------------------------------------------------------------

    def _brokers(self) -> tuple[int, ...]:
        self._word("brokers", "broker")
        node_ids = [self._broker()]
        while self._peek().text == ",":
            self._at += 1
            token = self._peek()
            node_id = self._broker()
            if node_id in node_ids:
                raise self._wrong(token, [], f"broker {node_id} is named twice")
            node_ids.append(node_id)
        return tuple(node_ids)

    def _broker(self) -> int:
        token = self._peek()
        match = _BROKER.fullmatch(token.text) or _NUMBER.fullmatch(token.text)
        if match is None:
            raise self._wrong(token, ["a broker such as broker-0"])
        self._at += 1
        return int(match[match.lastindex or 0])

    def _name(self) -> str:
        token = self._peek()
        if token.text in ("", ",", ";"):
            raise self._wrong(token, ["a topic's name"])
        self._at += 1
        return token.text

    def _number(self, what: str) -> int:
        token = self._peek()
        if not _NUMBER.fullmatch(token.text) or int(token.text) == 0:
            raise self._wrong(token, [what])
        self._at += 1
        return int(token.text)

    def _word(self, *expected: str) -> str:
        """Returns the next token, which must be one of these words; `END` stands for the end of the text, and is not
        consumed."""
        token = self._peek()
        if END in expected and token.text in ("", ";"):
            return END
        word = token.text.lower()
        if word not in expected:
            raise self._wrong(token, expected)
        self._at += 1
        return word

    def _end(self) -> None:
        if self._peek().text == ";":
            self._at += 1
        token = self._peek()
        if token.text:
            raise self._wrong(token, self._continuations())

    def _continuations(self) -> list[str]:
        before = self._tokens[self._at - 1]
        return [",", END] if _BROKER.fullmatch(before.text) else [END]

    def _peek(self) -> _Token:
        return self._tokens[self._at]

    def _wrong(self, token: _Token, expected: Sequence[str], problem: str = "") -> StatementError:
        return StatementError(self._text, token.start, token.end, expected, problem)


def completions(text: str) -> list[str]:
    """Returns the words that could follow `text`, or complete its last word."""
    finished, _, begun = text.rpartition(" ")
    return [word for word in _continued(finished) if word.startswith(begun.lower()) and word.isalpha()]


def _continued(text: str) -> tuple[str, ...]:
    """Returns the words that could follow `text`."""
    try:
        parse(text)
    except StatementError as error:
        return error.expected if error.start == len(error.text) else ()
    try:
        parse(f"{text} ?")
    except StatementError as error:
        return error.expected
    return ()
