"""What kafka-python's integration tests need beside their sdist: topics that are made, and a module that is not in it.

pytest loads this first. With `KAFKA_URI` the tests start no broker, and use the one that runs there; the module that
they would start one with is not in the sdist. They rely on topics that are made when they are asked for, with four
partitions. Here that is never so, and the clients make them before they ask.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from types import ModuleType
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # untyped
from kafka.cluster import ClusterMetadata

ADDRESS = os.environ["KAFKA_URI"].removeprefix("kafka://")
PARTITIONS = 4
TIMEOUT_S = 10.0


class ExternalService:
    """A broker that runs already."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    def open(self) -> None:
        """Does nothing."""


class SpawnedService:
    """A broker that a test would start."""

    def __init__(self, *_: object) -> None:
        raise RuntimeError("the tests are to use the broker of KAFKA_URI")


_service = ModuleType("test.service")
_service.ExternalService = ExternalService  # type: ignore[attr-defined]  # a stand-in
_service.SpawnedService = SpawnedService  # type: ignore[attr-defined]  # a stand-in
sys.modules["test.service"] = _service

_made: set[str] = set()
_add_topic = ClusterMetadata.add_topic


def _make_and_add(cluster: ClusterMetadata, topic: str) -> Any:
    if topic not in _made:
        _made.add(topic)
        admin = AdminClient({"bootstrap.servers": ADDRESS})
        with suppress(KafkaException):  # it exists, or may not: then it stays unknown, as with Kafka
            admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(TIMEOUT_S)
    return _add_topic(cluster, topic)


ClusterMetadata.add_topic = _make_and_add
