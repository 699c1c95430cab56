"""A partition's mailbox: produce requests that wait for its task, bounded, handed out in groups.

A group is what one gathered write appends. It ends where a producer comes a second time, because that batch's sequence
can only be judged when the one before it is in the log; and before and after a request that expects the log to end at
a certain offset, for the same reason.
"""

from __future__ import annotations

import asyncio
from collections import deque

from tidelog.broker.partitions.proposals import Proposal
from tidelog.model.errors import Overloaded

BYTES_MAX = 8 << 20
"""One request is always taken, however large."""
PROPOSALS_MAX = 1_000
GROUP_BYTES_MAX = 8 << 20
"""So that one write does not stall the loop for long."""


class Mailbox:
    """First come, first served."""

    def __init__(self) -> None:
        self._proposals: deque[Proposal] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._proposals)

    def put(self, proposal: Proposal) -> None:
        """Takes a request in. Raises `Overloaded` if too much is waiting."""
        size = proposal.size
        is_full = self._bytes + size > BYTES_MAX or len(self._proposals) >= PROPOSALS_MAX
        if is_full and self._proposals:
            raise Overloaded(f"{len(self._proposals)} requests are waiting for this partition; try again later")
        self._proposals.append(proposal)
        self._bytes += size
        self._wake.set()

    async def wait_for_mail(self) -> None:
        """Returns when something was put in since the last call."""
        await self._wake.wait()
        self._wake.clear()

    def take_group(self, bytes_max: int = GROUP_BYTES_MAX) -> list[Proposal]:
        """The next requests to be appended by one write; none if nothing waits."""
        group: list[Proposal] = []
        producers: dict[int, None] = {}
        gathered = 0
        while self._proposals and gathered < bytes_max:
            proposal = self._proposals[0]
            ids = [batch.header.producer_id for batch in proposal.batches if batch.header.producer_id >= 0]
            if any(producer_id in producers for producer_id in ids):
                break
            if group and (proposal.expected_end is not None or group[-1].expected_end is not None):
                break
            self._proposals.popleft()
            self._bytes -= proposal.size
            gathered += proposal.size
            producers.update(dict.fromkeys(ids))
            group.append(proposal)
        return group
