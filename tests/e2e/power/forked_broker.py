"""A broker that a nursery starts, and that ends by being killed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.nursery import Nursery
from tidelog.testing.broker_process import BrokerProcess


class ForkedBroker(BrokerProcess):
    """A broker of a cluster whose power is cut."""

    def __init__(
        self, nursery: Nursery, node_id: int, directory: Path, settings: Mapping[str, str], *, http: str, peer: str
    ) -> None:
        super().__init__(node_id, directory, settings, http=http, peer=peer)
        self.is_ready = False
        self.launch = nursery.launch

    def begin(self) -> None:
        """Starts the broker."""
        self.is_ready = False
        super().begin()

    def strike(self) -> None:
        """Kills the process, and does not wait for its end."""
        if self._process is not None:
            self._process.kill()

    def wait_until_ready(self, deadline_s: float) -> None:
        """Waits for the ready line. Raises `BrokerFailed`."""
        super().wait_until_ready(deadline_s)
        self.is_ready = True
