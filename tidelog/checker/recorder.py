"""A recorder of operations while they happen."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidelog.checker.operations import Durability, Function, Guarantee, Op, Type, Value

WORLD = "world"
"""Name of the process under which facts about the system are recorded."""


class Recorder:
    """Collects the history of one run. `clock` returns seconds since a fixed point of time; the order of events is the
    order of calls."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.operations: list[Op] = []
        self._clock = clock

    def invoke(
        self, process: str, f: Function, value: Iterable[Value] = (), *, guarantee: Guarantee = "sequence"
    ) -> int:
        """Records that an operation begins. Returns the index for `complete`."""
        index = len(self.operations)
        self.operations.append(Op(index, self._clock(), process, "invoke", f, [*value], guarantee=guarantee))
        return index

    def complete(
        self,
        invocation: int,
        type_: Type,
        value: Iterable[Value] = (),
        *,
        durability: Durability = "fsynced",
        epoch: int = -1,
        replica: int | None = None,
        rebalanced: Iterable[str] = (),
        error: str = "",
    ) -> None:
        """Records the result of an operation: `type_` is `ok`, `fail` or `info` (unknown)."""
        begun = self.operations[invocation]
        self.operations.append(
            Op(
                len(self.operations),
                self._clock(),
                begun.process,
                type_,
                begun.f,
                [*value],
                invocation,
                durability,
                epoch=epoch,
                replica=replica,
                rebalanced=[*rebalanced],
                error=error,
            )
        )

    def tell(
        self, f: Function, value: Iterable[Value] = (), *, process: str = WORLD, replica: int | None = None
    ) -> None:
        """Records an event without duration: an assign, subscribe, seek or crash of a process, or a fact about the
        system."""
        index = len(self.operations)
        self.operations.append(Op(index, self._clock(), process, "info", f, [*value], replica=replica))
