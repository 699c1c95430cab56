"""The link from one simulated machine to another, in one direction, and the conditions that a fault can set on it.

| condition | what the two machines see |
|---|---|
| `delay_s_min`, `delay_s_mean`, `tail_*` | frames arrive later, in order only on each connection |
| `clog` | bytes wait, and arrive after `unclog` |
| `cut` | the same until `heal`; a sender whose bytes wait longer than `patience_s` loses its connection |
| `refuses` | a connection attempt is refused, as if no process listened |
| `break_rate` | the connection breaks in the middle of a frame, which is never delivered |
| `loses` | a frame does not arrive, and those behind it do |
| `replay_rate` | a request or notification arrives once more, later, perhaps on another connection of the same caller |

All of them may be changed at any time, and apply to frames under way. A cut of both directions is two cuts.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol


class Waiting(Protocol):
    """A pipe with frames under way over a link."""

    is_clogged: bool

    def wake(self) -> None:
        """Checks again which frames may pass."""


@dataclass(slots=True, eq=False)
class Link:
    """Conditions of one direction between two machines; `network.link(source, target)` returns it."""

    source: str
    target: str
    statistics: Counter[str]
    delay_s_min: float = 0.0001
    delay_s_mean: float = 0.0003
    tail_rate: float = 0.0
    """Chance that a frame takes `tail_s_mean` seconds longer, on average."""
    tail_s_mean: float = 0.1
    refuses: bool = False
    break_rate: float = 0.0
    replay_rate: float = 0.0
    replay_s_mean: float = 0.5
    loses: Callable[[bytes], bool] | None = None
    """Function that returns True for a frame that is lost; None if none is."""
    patience_s: float = 15.0
    is_cut: bool = False
    is_clogged: bool = False
    pipes: dict[Waiting, None] = field(default_factory=dict)
    """Pipes of the connections that use the link, in the order they were made."""

    def draw_delay_s(self, rng: random.Random) -> float:
        """Draws the seconds that one frame takes."""
        delay_s = self.delay_s_min
        if self.delay_s_mean > self.delay_s_min:
            delay_s += rng.expovariate(1 / (self.delay_s_mean - self.delay_s_min))
        if self.tail_rate and rng.random() < self.tail_rate:
            delay_s += rng.expovariate(1 / self.tail_s_mean)
        return delay_s

    def cut(self) -> None:
        """Stops all frames until `heal`."""
        self.statistics["cut"] += 1
        self.is_cut = True
        self._wake()

    def heal(self) -> None:
        """Ends cut and clog: waiting frames arrive now."""
        self.is_cut = self.is_clogged = False
        self._wake()

    def clog(self) -> None:
        """Stops all frames until `unclog`; no connection times out meanwhile."""
        self.statistics["clogged"] += 1
        self.is_clogged = True

    def unclog(self) -> None:
        self.is_clogged = False
        self._wake()

    def _wake(self) -> None:
        for pipe in list(self.pipes):
            pipe.wake()
