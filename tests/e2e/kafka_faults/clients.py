"""Writers and members of groups in threads of this process, built on librdkafka."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from tests.e2e.kafka_faults.books import UNKNOWN, At, Book, Group

LINGER_MS: Final = 5
DELIVERY_MS: Final = 120_000
SESSION_MS: Final = 6_000
POLL_S: Final = 0.1
COMMIT_EVERY_S: Final = 0.5
CLOSE_S: Final = 30.0
GENERATION: Final = slice(7, 11)
"""The generation stands here in the bytes by which librdkafka names a member, in the machine's byte order."""
FETCH_WAIT_MS: Final = 100
LOOKS: Final = 3
"""How often clients look for leaders while they wait for one answer."""


def settings(bootstrap: str, request_ms: int) -> dict[str, Any]:
    """Returns what all clients have in common. librdkafka waits for an answer for `socket.timeout.ms`, and its
    `request.timeout.ms` is for the broker, which waits for replicas."""
    return {
        "log_level": 0,
        "bootstrap.servers": bootstrap,
        "socket.timeout.ms": request_ms,
        "topic.metadata.refresh.interval.ms": request_ms // LOOKS,
        "socket.connection.setup.timeout.ms": 1_000,
        "reconnect.backoff.max.ms": 500,
        "retry.backoff.max.ms": 200,
    }


def value_of(number: int) -> bytes:
    """Returns the value of a record."""
    return b"%d %s" % (number, bytes(80))


def number_of(value: bytes) -> int:
    """Returns the number of a record."""
    return int(value.partition(b" ")[0])


class Writer:
    """An idempotent producer that sends a record to each partition at a steady pace, whatever becomes of those before.

    A context: at its end it waits for the fate of each.
    """

    def __init__(self, bootstrap: str, books: Sequence[Book], every_s: float, request_ms: int) -> None:
        self._books = books
        self._every_s = every_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._numbers = dict.fromkeys((book.at for book in books), 0)
        self._producer = Producer(
            {
                **settings(bootstrap, request_ms),
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": LINGER_MS,
                "request.timeout.ms": request_ms,
                "delivery.timeout.ms": DELIVERY_MS,
            }
        )

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._is_over.is_set():
            for book in self._books:
                self._send(book)
            due_s += self._every_s
            self._producer.poll(max(0.0, due_s - time.monotonic()))
        self._producer.flush(DELIVERY_MS / 1_000 + CLOSE_S)

    def _send(self, book: Book) -> None:
        number = self._numbers[book.at]
        told = partial(self._told, book, number)
        try:
            self._producer.produce(book.at.topic, value_of(number), partition=book.at.partition, on_delivery=told)
        except BufferError:  # so much waits that no more has room
            return
        self._numbers[book.at] = number + 1

    @staticmethod
    def _told(book: Book, number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            book.fail(number, str(error))
            return
        offset = message.offset()
        book.acknowledge(number, UNKNOWN if offset is None or offset < 0 else offset)


class Member:
    """A member of a group, of either protocol (`classic`, `consumer`), that commits what it has read. A context."""

    def __init__(
        self, bootstrap: str, group: Group, protocol: str, name: str, topics: Sequence[str], request_ms: int
    ) -> None:
        member: dict[str, Any] = {
            **settings(bootstrap, request_ms + FETCH_WAIT_MS),  # librdkafka wants a second more than a fetch may take
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            "group.id": group.name,
            "client.id": name,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        if protocol == "classic":
            member |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": SESSION_MS // 6}
        self._group, self._name = group, name
        self._topics = topics
        self._consumer = Consumer(member)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Member:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        self._consumer.subscribe([*self._topics])
        commit_s = time.monotonic()
        while not self._is_over.is_set():
            for message in self._consumer.consume(500, POLL_S):
                if message.error() is None:
                    self._see(message)
            self._claim()
            if time.monotonic() - commit_s >= COMMIT_EVERY_S:
                self._commit()
                commit_s = time.monotonic()
        self._consumer.close()

    def _see(self, message: Message) -> None:
        topic, partition, value = message.topic(), message.partition(), message.value()
        assert topic is not None and partition is not None and value is not None
        self._group.see(At(topic, partition), number_of(value))

    def _claim(self) -> None:
        """Says what it holds, if its generation is the same before and after it has looked."""
        generation = self._generation()
        held = [At(one.topic, one.partition) for one in self._consumer.assignment()]
        if generation == self._generation():
            self._group.claim(self._name, generation, held)

    def _generation(self) -> int:
        image: Any = self._consumer.consumer_group_metadata()
        return int.from_bytes(image[GENERATION], sys.byteorder, signed=True)

    def _commit(self) -> None:
        try:
            self._consumer.commit(asynchronous=True)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                self._group.refused += 1
