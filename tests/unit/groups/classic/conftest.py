"""Every test about a classic group ends with a replay of its log, from the beginning and from a copy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.groups.classic.classic_desk import ClassicDesk
from tests.unit.groups.desk import copied, replayed


@pytest.fixture
def desk() -> Iterator[ClassicDesk]:
    """With the topic `t`, of 4 partitions."""
    desk = ClassicDesk(t=4)
    yield desk
    assert replayed(desk.log) == desk.shard
    assert replayed(copied(desk.shard)) == desk.shard
    assert desk.shard.live_count == len(copied(desk.shard))
