"""`MissedLeaders`: brokers that have died, and still lead by the metadata.

Clients look for a new leader within a millisecond of the old one's death, before it is elected, and often before the
broker that they ask has noticed anything: a dying process loses its connections one after the other. An answer that
names the dead leader contents them; librdkafka asks again up to a second later. So an answer that names leaders waits
for `NOTICE_S`, and if a leader is missed then, for the election, `HOLD_S` at most. No other request of its connection
is served meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from tidelog.broker.face.face import BrokerFace

NOTICE_S: Final = 0.002
"""Seconds in which this broker notices a death that the client has noticed already."""
HOLD_S: Final = 0.1
"""Seconds that an answer waits for an election at most."""


class MissedLeaders:
    """The brokers that are missed: live by the metadata, but without any connection to this broker any more."""

    def __init__(self, face: BrokerFace) -> None:
        self._cluster = face.cluster
        self._partitions = face.partitions

    @property
    def can_exist(self) -> bool:
        """False if this is the only broker."""
        return len(self._cluster.image.brokers) > 1

    @property
    def nodes(self) -> Sequence[int]:
        """Node ids of the brokers that are missed."""
        image = self._cluster.image
        return [node_id for node_id in self._cluster.missed_brokers if image.is_live(node_id)]

    async def wait_for_successors(self) -> None:
        """Returns after `NOTICE_S`, or if a broker is missed then, when none is any more, or after `HOLD_S`; at once if
        this is the only broker."""
        if not self.can_exist:
            return
        await asyncio.sleep(NOTICE_S)
        if self.nodes:
            deadline_s = asyncio.get_running_loop().time() + HOLD_S
            await self._partitions.wait_for_metadata(lambda: not self.nodes, deadline_s)
