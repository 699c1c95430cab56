"""Several mappings read as one: a view that follows their changes, not a copy."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, Sequence, ValuesView
from itertools import chain
from typing import TypeVar

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)


class MappingUnion(Mapping[K, V_co]):
    """The union of mappings, of which no two have a common key. (`ChainMap` is for mappings of one type, and is
    writable.)"""

    def __init__(self, *parts: Mapping[K, V_co]) -> None:
        self._parts = parts

    def __getitem__(self, key: K) -> V_co:
        for part in self._parts:
            if key in part:
                return part[key]
        raise KeyError(key)

    def __iter__(self) -> Iterator[K]:
        for part in self._parts:
            yield from part

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def values(self) -> ValuesView[V_co]:
        """Returns the values; iterating over them looks up no key."""
        return _Values(self, self._parts)

    def items(self) -> ItemsView[K, V_co]:
        """Returns the items; iterating over them looks up no key."""
        return _Items(self, self._parts)


class _Values(ValuesView[V_co]):
    def __init__(self, whole: Mapping[K, V_co], parts: Sequence[Mapping[K, V_co]]) -> None:
        super().__init__(whole)
        self._parts = parts

    def __iter__(self) -> Iterator[V_co]:
        return chain.from_iterable(part.values() for part in self._parts)


class _Items(ItemsView[K, V_co]):
    def __init__(self, whole: Mapping[K, V_co], parts: Sequence[Mapping[K, V_co]]) -> None:
        super().__init__(whole)
        self._parts = parts

    def __iter__(self) -> Iterator[tuple[K, V_co]]:
        return chain.from_iterable(part.items() for part in self._parts)
