"""A partition's queue of produce requests (`Mailbox`), bounded, from which they are taken in groups.

A group is appended with one write. A producer may have several requests in it, if each continues the sequence numbers
of the one before. A request that does not continue them begins the next group, because it can be checked only when the
one before is in the log. So does a request that expects the log to end at a certain offset, and the one after it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from tidelog.broker.partitions.proposals import Ahead, Proposal
from tidelog.model.errors import Overloaded
from tidelog.model.producers import SEQUENCES

BYTES_MAX = 8 << 20
"""Maximum bytes of waiting requests; a single request is always accepted, however large."""
PROPOSALS_MAX = 1_000
GROUP_BYTES_MAX = 8 << 20
"""Maximum bytes of one group, unless a single request has more, so that one write does not block the event loop for
long."""


class Mailbox:
    """A queue of produce requests, in the order of arrival, bounded by bytes and by number."""

    def __init__(self) -> None:
        self._proposals: deque[Proposal] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()
        self._wanting_room: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._proposals)

    def put(self, proposal: Proposal) -> None:
        """Adds a request. Raises `Overloaded` if too much is waiting."""
        size = proposal.size
        if not self.has_room(size):
            raise Overloaded(f"{len(self._proposals)} requests are waiting for this partition; try again later")
        self._proposals.append(proposal)
        self._bytes += size
        self._wake.set()

    def has_room(self, size: int) -> bool:
        """Returns True if a request of `size` bytes would be accepted now."""
        is_full = self._bytes + size > BYTES_MAX or len(self._proposals) >= PROPOSALS_MAX
        return not is_full or not self._proposals

    def when_room(self, call: Callable[[], None]) -> None:
        """Calls `call` once, when requests are next taken out."""
        self._wanting_room.append(call)

    async def wait_for_mail(self) -> None:
        """Waits until a request has been added since the last call."""
        await self._wake.wait()
        self._wake.clear()

    def take_group(self, bytes_max: int = GROUP_BYTES_MAX) -> list[Proposal]:
        """Takes out the next requests to be appended with one write; none if nothing waits."""
        group: list[Proposal] = []
        producers: Ahead = {}
        group_bytes = 0
        while self._proposals and group_bytes < bytes_max:
            proposal = self._proposals[0]
            if group and (proposal.expected_end is not None or group[-1].expected_end is not None):
                break
            if not _follows(proposal, producers):
                break
            self._proposals.popleft()
            self._bytes -= proposal.size
            group_bytes += proposal.size
            group.append(proposal)
        if self._wanting_room:
            calls, self._wanting_room = self._wanting_room, []
            for call in calls:
                call()
        return group


def _follows(proposal: Proposal, producers: Ahead) -> bool:
    """Returns False if a producer of the group has another request that does not continue its sequence numbers; else
    adds the request's batches to `producers`. Order within one request is checked by `Proposal.judge`."""
    sent: Ahead = {}
    for batch in proposal.batches:
        header = batch.header
        if header.producer_id < 0:
            continue
        beginning = header.producer_epoch, header.base_sequence
        if header.producer_id not in sent and producers.get(header.producer_id, beginning) != beginning:
            return False
        sent[header.producer_id] = header.producer_epoch, (header.base_sequence + header.record_count) % SEQUENCES
    producers.update(sent)
    return True
