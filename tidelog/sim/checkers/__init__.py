"""What must be true of every run: one promise a file, each a function from the history and the final state to its
violations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tidelog.model.ids import TopicPartition
from tidelog.sim.checkers.acknowledged import acknowledged_is_there
from tidelog.sim.checkers.bounds import starts_where_asked
from tidelog.sim.checkers.contiguous import offsets_are_contiguous
from tidelog.sim.checkers.invented import nothing_is_invented
from tidelog.sim.checkers.once import nothing_is_there_twice
from tidelog.sim.checkers.ordered import producers_are_in_order
from tidelog.sim.checkers.refused import refused_is_absent
from tidelog.sim.checkers.stable import seen_stays
from tidelog.sim.history import History, View

Views = Mapping[TopicPartition, View]
Checker = Callable[[History, Views], Iterator[str]]

CHECKERS: tuple[Checker, ...] = (
    acknowledged_is_there,
    nothing_is_invented,
    nothing_is_there_twice,
    refused_is_absent,
    offsets_are_contiguous,
    producers_are_in_order,
    seen_stays,
    starts_where_asked,
)
