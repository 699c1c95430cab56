"""An operator who accepts losses in the offsets topic: of batches that no disk ever held whole.

A power cut may tear a batch on every disk that it was written to, and leave its catalog row: then it counts as
committed, by its digest, and keeps its offset. No coordinator reads past it unless an operator accepts the loss. From
the disks alone nobody can tell that no client was promised that batch; the simulator can. This operator accepts just
those losses; all other promises to groups are checked as ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidelog.broker.broker import Broker
from tidelog.model.ids import PartitionId
from tidelog.model.names import OFFSETS_TOPIC
from tidelog.sim.cluster.clients import FAILURES, AnyBroker
from tidelog.sim.cluster.ledger import Ledger
from tidelog.sim.cluster.loss_strikes import accept_losses, find_losses
from tidelog.sim.cluster.truth import Truth

ASKED_S_MAX = 3.0


def has_lost_offsets(truth: Truth, ledger: Ledger) -> bool:
    """Returns True if the last disk of any partition of the offsets topic was lost: then no group is held to its
    committed offsets."""
    topic = truth.image.topics.get(OFFSETS_TOPIC)
    if topic is None:
        return False
    lost = any(book.is_gone for one, book in ledger.books.items() if one.topic_id == topic.topic_id)
    truth.saw("excused loss of committed offsets", lost)
    return lost


class Operator:
    """The operator of one run. `anywhere` returns a client that reaches any broker."""

    def __init__(self, truth: Truth, ledger: Ledger, anywhere: Callable[[], AnyBroker]) -> None:
        self._truth = truth
        self._ledger = ledger
        self._anywhere = anywhere
        self._turn = asyncio.Lock()

    async def look(self) -> None:
        """Looks for batches of the offsets topic that no disk ever held whole, and has their loss accepted if the
        brokers agree that no copy is left."""
        topic = self._truth.image.topics.get(OFFSETS_TOPIC)
        known = [] if topic is None else [one for one in self._ledger.books if one.topic_id == topic.topic_id]
        async with self._turn:
            for partition_id in known:
                if torn := self._ledger.never_had(partition_id):
                    await self._give_up(partition_id, torn)

    async def _give_up(self, partition_id: PartitionId, torn: set[int]) -> None:
        try:
            async with asyncio.timeout(ASKED_S_MAX):
                await self._anywhere().call(lambda broker: _ask(broker, partition_id, torn))
        except (TimeoutError, *FAILURES) as error:
            self._truth.note("loss not accepted yet", type(error).__name__, error)
        else:
            self._truth.saw("torn batch of groups given up", not self._ledger.never_had(partition_id))


async def _ask(broker: Broker, partition_id: PartitionId, torn: set[int]) -> None:
    report = await find_losses(broker, partition_id, (min(torn), max(torn) + 1))
    ranges = tuple(lost for lost in report.lost if torn.issuperset(range(lost.start, lost.end)))
    if ranges and not report.refusals:
        await accept_losses(broker, partition_id, ranges)
