"""Every state that a power cut can leave behind on a simulated disk, one after the other, for short runs: all subsets
of the unsynced changes times all tears."""

from __future__ import annotations

from collections.abc import Iterator

SECTORS_ENUMERATED_MAX = 3
"""Writes over more sectors than this are torn at every prefix and every suffix instead of every subset."""


class ExhaustiveChoices:
    """Choices of one power cut out of all possible ones, which `enumerate_crashes` counts through like an odometer."""

    def __init__(self, path: list[tuple[int, int]]) -> None:
        self._path = path
        self._depth = 0

    def survives(self, sequence: int) -> bool:
        return self.choose(2) == 1

    def sectors(self, sequence: int, count: int) -> int:
        if count <= SECTORS_ENUMERATED_MAX:
            return self.choose(1 << count)
        whole = (1 << count) - 1
        answer = self.choose(2 * count)
        prefix = (1 << answer // 2) - 1
        return prefix if answer % 2 else whole & ~prefix

    def choose(self, count: int) -> int:
        if self._depth == len(self._path):
            self._path.append((0, count))
        answer, recorded = self._path[self._depth]
        assert recorded == count, "the crashed state is not the same as last time: its build-up is not deterministic"
        self._depth += 1
        return answer


def enumerate_crashes() -> Iterator[ExhaustiveChoices]:
    """Yields the choices of every possible power cut once. The caller must rebuild the same unsynced state for each."""
    path: list[tuple[int, int]] = []
    while True:
        yield ExhaustiveChoices(path)
        while path and path[-1][0] + 1 == path[-1][1]:
            path.pop()
        if not path:
            return
        answer, count = path.pop()
        path.append((answer + 1, count))
