"""Commands in the active controller: decided in groups, and answered together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tidelog.config.schema import BrokerConfig
from tidelog.controller.apply import apply_all
from tidelog.controller.commands import Command, CommandAnswer
from tidelog.controller.decide import decide
from tidelog.controller.decision import Decision
from tidelog.controller.judge import Judge
from tidelog.controller.records import MetadataRecord
from tidelog.model.cluster import ClusterImage
from tidelog.model.errors import TidelogError


class Request:
    """A command, and the future for its answer."""

    def __init__(self, command: Command, judge: Judge | None = None) -> None:
        """`judge` checks the caller's rights. It is None if authorization is off, or for the controller's own
        commands."""
        self.command = command
        self.judge = judge
        self.answer: asyncio.Future[CommandAnswer] = asyncio.get_running_loop().create_future()
        self.is_begun = False
        """True once the command may have an effect, so that a timeout leaves its outcome unknown."""

    def fail(self, error: TidelogError) -> None:
        """Fails the command with `error`; marks the error as retrieved, since the sender may not be waiting any
        more."""
        if not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()


class Group:
    """A group of requests, decided in order, each on the image that those before it leave, with one append for all."""

    def __init__(self, requests: Sequence[Request], image: ClusterImage, config: BrokerConfig) -> None:
        self.records: list[MetadataRecord] = []
        self._image = image
        self._outcomes: list[tuple[Request, Decision | TidelogError]] = []
        for request in requests:
            if request.answer.done():
                continue  # whoever asked has given up
            request.is_begun = True
            try:
                if request.judge is not None:
                    request.judge.check(image, request.command)
                decision = decide(image, request.command, config)
            except TidelogError as error:
                self._outcomes.append((request, error))
                continue
            self._outcomes.append((request, decision))
            self.records.extend(decision.records)
            image = apply_all(image, decision.records, image.position)

    def answer(self, offset: int) -> None:
        """Answers each request, now that the group's records are in the log, the first at `offset`."""
        image = self._image
        for request, outcome in self._outcomes:
            if isinstance(outcome, TidelogError):
                request.fail(outcome)
                continue
            image = apply_all(image, outcome.records, offset)
            offset += len(outcome.records)
            if not request.answer.done():
                request.answer.set_result(outcome.answer(image))

    def fail(self, error: TidelogError) -> None:
        """Fails every request of the group with the error of the append."""
        # Refused ones, too: each was judged on the image that those before it leave, which may not come true.
        for request, _ in self._outcomes:
            request.fail(error)
