"""Answers that pass ranges which were given up: they name each of them, and no more than a header has room for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.accepted_losses import accept_loss
from tests.integration.http.conftest import Site
from tests.integration.http.wire import Reply
from tidelog.model.batch_header import iter_batches
from tidelog.model.lost_ranges import LOST_TOLD_MAX, LostRange, parse_lost

BATCHES = "/topics/t/partitions/0/batches"
LOSSES = LOST_TOLD_MAX + 6
END = 2 * LOSSES
HEADER_BYTES_MAX = 4096


@pytest.fixture
async def holed(site: Site) -> Site:
    """A partition of which every second record was given up, the first one first."""
    for number in range(END):
        await site.produce(number)
    for offset in range(0, END, 2):
        await accept_loss(site.broker, "t", offset, offset + 1)
    return site


def lost_of(reply: Reply) -> Sequence[LostRange]:
    header = reply.headers.get("tidelog-lost", "")
    assert len(header) < HEADER_BYTES_MAX
    return parse_lost(header)


async def test_a_stream_ends_before_the_range_that_its_header_has_no_room_for(holed: Site) -> None:
    found: list[int] = []
    lost: list[int] = []
    position = streams = 0
    while position < END:
        reply = await holed.ask("GET", f"{BATCHES}?offset={position}&to={END}")
        assert reply.status == 200
        told = lost_of(reply)
        assert len(told) <= LOST_TOLD_MAX
        found += [batch.header.base_offset for batch in iter_batches(reply.body)]
        lost += [one.start for one in told]
        assert max(found[-1] + 1, lost[-1] + 1) > position
        position = max(found[-1] + 1, lost[-1] + 1)
        streams += 1
    assert found == list(range(1, END, 2))
    assert lost == list(range(0, END, 2))
    assert streams == 2
