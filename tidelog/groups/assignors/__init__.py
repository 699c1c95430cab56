"""Assignors: pure functions that assign partitions to a group's members. The order of the input does not matter.

    uniform      balanced and sticky: a member keeps its partitions as far as balance allows; the default
    range        per topic, in ranges: partition 7 of all topics of one size goes to the same member
    roundrobin   in turn

Each assigns every partition of every subscribed topic to exactly one of the topic's subscribers. A topic that does not
exist (any more) is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tidelog.groups.assignors import ranges, round_robin, uniform
from tidelog.groups.assignors.subscriber import Assignor, Subscriber

ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType(
    {"uniform": uniform.assign, "range": ranges.assign, "roundrobin": round_robin.assign}
)
"""The assignors by the name that a member asks for."""

__all__ = ["ASSIGNORS", "Assignor", "Subscriber"]
