"""The assignment of partitions to a group's members: pure functions, the same answer whatever the order of the input.

    uniform      even, and sticky: whoever has a partition keeps it as long as evenness allows; the default
    range        per topic, in runs: partition 7 of all topics of one size goes to the same member
    roundrobin   dealt out in turn

All of them assign every partition of every topic that a member subscribes to, to exactly one of the subscribers. A
topic that does not exist (any more) is passed over.
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
