"""Grouping of per-partition answers by topic, as Kafka's messages need them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from tidelog.broker.kafka.admin.desk import Tree


class Item(Protocol):
    """A partition that knows the name of its topic."""

    @property
    def topic(self) -> str: ...


N = TypeVar("N", bound=Item)


def by_topic(items: Iterable[N], answers: Sequence[Tree], field: str, name: str = "name") -> list[Tree]:
    """Groups the partitions' answers, in the order of `items`, by topic. Returns for each topic a dictionary with its
    name under the key `name` and the list of its answers under the key `field`."""
    topics: dict[str, list[Tree]] = {}
    for item, answer in zip(items, answers, strict=True):
        topics.setdefault(item.topic, []).append(answer)
    return [{name: topic, field: entries} for topic, entries in topics.items()]
