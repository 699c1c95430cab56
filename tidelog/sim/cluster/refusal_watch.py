"""Observes what brokers refuse of each other: among correct brokers that is nothing, whatever faults there are.

One refusal is allowed: that the sender's process is not registered yet, as far as the receiver has read the metadata. A
request in another broker's name, or with impossible content, is a violation. In a run with forged messages refusals are
only counted.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from tidelog.broker.peer_service import PeerService
from tidelog.model.errors import BrokerNotRegistered, TidelogError
from tidelog.sim.cluster.forged_strikes import KINDS
from tidelog.sim.cluster.scenario import Scenario
from tidelog.sim.cluster.truth import Truth
from tidelog.sim.kit.patching import before, hooked
from tidelog.transport.peer import Hello
from tidelog.transport.peer.common import Common
from tidelog.transport.peer.frames import BadFrame, MessageCodec


class RefusalWatch:
    """Hooks into the brokers' refusals in one run."""

    def __init__(self, scenario: Scenario, truth: Truth) -> None:
        self._truth = truth
        self._is_forged = any(step.kind in KINDS for step in scenario.steps)

    def open(self) -> AbstractContextManager[None]:
        """Installs the hooks while the context is open."""
        return hooked(
            (PeerService, "_refused", before(self._refused)),
            (MessageCodec, "message", self._message),
            (Common, "doubt", before(self._doubted)),
        )

    def _refused(self, service: PeerService, caller: Hello, message: Any, error: TidelogError) -> None:
        self._note(f"{type(error).__name__}", f"{type(message).__name__} of node {caller.node_id}: {error}")

    def _message(self, original: Any) -> Any:
        def message(codec: MessageCodec, header: memoryview) -> Any:
            try:
                return original(codec, header)
            except BadFrame as error:
                self._note("unreadable", str(error))
                raise

        return message

    def _doubted(self, common: Common, remote: str, reason: str, why: str) -> None:
        self._note(f"answer: {reason}", f"{remote} answered: {why}")

    def _note(self, why: str, what: str) -> None:
        self._truth.saw(f"refused: {why}")
        if not self._is_forged and why != BrokerNotRegistered.__name__:
            self._truth.violate("belief", f"a broker is not believed ({why}): {what}")
