"""The network of a simulated run: messages wait until a step delivers, loses or repeats one. Nothing else moves them.

Any order is possible, and any delay: a message may outlive the process that sent it, and the next one of its node. An
answer goes to the process that asked, on its connection, and dies with it. A cut holds up what one node sends to
another, in one direction; the controller is node 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidelog.sim.isr.dice import Dice

CONTROLLER = 0
IN_FLIGHT_MAX = 24
"""Messages under way from which on none is repeated any more."""


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    sender: int
    receiver: int
    deliver: Callable[[Dice], None]


class Wire:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.cuts: list[tuple[int, int]] = []

    def send(self, sender: int, receiver: int, deliver: Callable[[Dice], None]) -> None:
        self.messages.append(Message(sender, receiver, deliver))

    def _passing(self) -> list[int]:
        if not self.cuts:
            return list(range(len(self.messages)))
        return [at for at, message in enumerate(self.messages) if (message.sender, message.receiver) not in self.cuts]

    def deliver_oldest(self, dice: Dice) -> bool:
        """Delivers the oldest message that is not held up; returns False if there is none."""
        return self._deliver(dice, is_any=False)

    def deliver_any(self, dice: Dice) -> bool:
        """Delivers a drawn message that is not held up; returns False if there is none."""
        return self._deliver(dice, is_any=True)

    def _deliver(self, dice: Dice, *, is_any: bool) -> bool:
        passing = self._passing()
        if not passing:
            return False
        self.messages.pop(dice.pick(passing) if is_any else passing[0]).deliver(dice)
        return True

    def newest_between(self, node: int, peer: int) -> bool:
        """Returns True if the newest message, in either direction, is between these two, and is not held up."""
        if not self.messages:
            return False
        ends = self.messages[-1].sender, self.messages[-1].receiver
        return sorted(ends) == sorted((node, peer)) and ends not in self.cuts

    def deliver_newest(self, dice: Dice) -> None:
        """Delivers the newest message before all others."""
        if self.messages:
            self.messages.pop().deliver(dice)

    def lose(self, dice: Dice) -> bool:
        """Drops a drawn message; returns False if there is none."""
        if not self.messages:
            return False
        self.messages.pop(dice.below(len(self.messages)))
        return True

    def repeat(self, dice: Dice) -> bool:
        """Adds a copy of a drawn message, to be delivered any time; returns False if there is none or too many are
        under way."""
        if not self.messages or len(self.messages) >= IN_FLIGHT_MAX:
            return False
        self.messages.append(dice.pick(self.messages))
        return True
