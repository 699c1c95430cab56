"""Every test about a group ends with a replay of its log, from the beginning and from a copy of what is live."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.groups.desk import Desk, copied, replayed


@pytest.fixture
def desk() -> Iterator[Desk]:
    """With the topics `t`, of 4 partitions, and `u`, of 2."""
    desk = Desk(t=4, u=2)
    yield desk
    assert replayed(desk.log) == desk.shard
    assert replayed(copied(desk.shard)) == desk.shard
    assert desk.shard.live_count == len(copied(desk.shard))
