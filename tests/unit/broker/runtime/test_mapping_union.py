"""Several mappings read as one."""

from __future__ import annotations

from collections import UserDict

import pytest

from tidelog.broker.runtime.mapping_union import MappingUnion


class Counted(UserDict[str, int]):
    """Counts how often a key is looked up."""

    looked_up = 0

    def __contains__(self, key: object) -> bool:
        self.looked_up += 1
        return super().__contains__(key)


def test_it_shows_its_parts_as_they_are_at_the_time() -> None:
    first, second = {"a": 1}, {"b": 2}
    union = MappingUnion(first, second)
    values, items = union.values(), union.items()
    second["c"] = 3
    assert list(union) == ["a", "b", "c"] and len(union) == len(values) == len(items) == 3
    assert list(values) == [1, 2, 3] and list(items) == [("a", 1), ("b", 2), ("c", 3)]
    assert 3 in values and ("b", 2) in items and ("b", 1) not in items
    with pytest.raises(KeyError):
        union["d"]


def test_a_walk_looks_up_no_key() -> None:
    parts = Counted(a=1), Counted(b=2)
    union = MappingUnion(*parts)
    parts[0].looked_up = parts[1].looked_up = 0
    assert list(union.values()) == [1, 2] and dict(union.items()) == {"a": 1, "b": 2}
    assert parts[0].looked_up == parts[1].looked_up == 0
