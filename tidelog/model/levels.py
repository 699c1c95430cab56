"""Feature levels: which messages brokers of different versions may exchange, and which metadata records they may write.

A level is a number; each adds messages, metadata records, fields of these, or values of fields to the one before
(Kafka's `metadata.version`, KIP-584; CockroachDB's cluster version). A version of tidelog supports a range of levels.

- Two brokers exchange messages at the highest level that both support.
- The cluster has a level, which is a metadata record, and so is what the metadata log and its snapshots are written at.
  It rises when an operator says so, if every registered broker supports the new one, and never falls: records that only
  a newer version understands cannot be taken back.

So brokers are replaced one by one, in either direction, until the level is raised; then it is too late to go back.

What each level has added stands in one table per kind of bytes, an `Additions`: of the messages between brokers in
`broker/peer_service.py`, of the metadata records in `controller/records.py`. Encoders use the table, which leaves out
fields that the level lacks and that have a default, and refuses what it cannot leave out. A decoder needs no table:
missing fields have their defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from tidelog.model.errors import UnsupportedLevel
from tidelog.model.wire_numbers import Int64

LEVEL_MIN: Final = 1
"""Lowest level that this version supports: that of version 0.2.0, which had no levels."""
LEVEL_MAX: Final = 3
"""Highest level that this version supports."""
UNKNOWN_LEVEL: Final = 0
"""Stands for a cluster's level that is not known yet."""


class LevelRange(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The range of levels that a broker supports, both ends included."""

    lowest: Int64
    highest: Int64

    def __contains__(self, level: int) -> bool:
        return self.lowest <= level <= self.highest

    def __str__(self) -> str:
        """Returns the range in words, such as `feature levels 1 to 3`."""
        if self.lowest == self.highest:
            return f"feature level {self.lowest}"
        return f"feature levels {self.lowest} to {self.highest}"

    def common(self, levels: LevelRange) -> int | None:
        """Returns the highest level in both; None if there is none."""
        level = min(self.highest, levels.highest)
        return level if level in self and level in levels else None


SPOKEN_LEVELS: Final = LevelRange(LEVEL_MIN, LEVEL_MAX)
"""Levels that this version supports."""
FIRST_LEVEL: Final = LevelRange(1, 1)
"""Levels of versions that do not announce which levels they support."""


def unfit_for_level(node_id: int, levels: LevelRange, level: int) -> str:
    """Returns the message that a broker does not support the level of its cluster, and what to do about it."""
    what = f"node {node_id} speaks {levels}, and the cluster is at level {level}"
    if levels.highest < level:
        return f"{what}; start node {node_id} with a version of tidelog that speaks level {level}"
    return (
        f"{what}; start node {node_id} with a version of tidelog that speaks both level {level} and level "
        f"{levels.lowest}, as all others, then raise the level by `tidelog cluster upgrade --finalize`"
    )


def without_common_level(mine: tuple[int, LevelRange], theirs: tuple[int, LevelRange]) -> str:
    """Returns the message that two brokers, each given by node id and levels, have no level in common, and what to do
    about it."""
    (older, low), (newer, high) = sorted((mine, theirs), key=lambda node: node[1].highest)
    return (
        f"node {older} speaks {low}, and node {newer} {high}: they have none in common; upgrade node {older} to a "
        f"version of tidelog that speaks level {high.lowest}"
    )


@dataclass(eq=False)
class Additions:
    """A table of what each level above the first has added to a family of structs: structs, fields and values of
    fields. `types` and `fields` give the level at which a struct, or a field with a default, was added. `values` are
    functions that replace in a struct the values that a level lacks, or raise `UnsupportedLevel`. `order` is passed to
    the encoder."""

    types: Mapping[type[msgspec.Struct], int]
    fields: Mapping[type[msgspec.Struct], Mapping[str, int]]
    values: Mapping[type[msgspec.Struct], Callable[[Any, int], msgspec.Struct]]
    order: Literal["deterministic"] | None = None

    def at(self, value: msgspec.Struct, level: int) -> Any:
        """Returns what to encode for a struct at this level: the struct, or a dictionary without the fields that the
        level lacks. Raises `UnsupportedLevel`."""
        if level >= LEVEL_MAX:
            return value
        kind = type(value)
        if (since := self.types.get(kind, LEVEL_MIN)) > level:
            raise UnsupportedLevel(
                f"{kind.__name__} needs feature level {since}, and cannot be said or written at level {level}"
            )
        if (reduce := self.values.get(kind)) is not None:
            value = reduce(value, level)
        lacking = [name for name, since in self.fields.get(kind, {}).items() if since > level]
        if not lacking:
            return value
        fields = msgspec.to_builtins(value, order=self.order, builtin_types=(bytes, bytearray, memoryview))
        return {name: field for name, field in fields.items() if name not in lacking}


NO_ADDITIONS: Final = Additions({}, {}, {})
"""Table for messages that are the same at all levels."""
