"""Asking a classic group for its committed offsets: nothing depends on who asks."""

from __future__ import annotations

import pytest

from tests.unit.groups.classic.classic_desk import ClassicDesk
from tidelog.model.groups import CommittedOffset, FetchOffsets, OffsetsAnswer


@pytest.mark.parametrize("generation", [1, 7])
def test_a_member_asks_as_anybody(desk: ClassicDesk, generation: int) -> None:
    (member,) = desk.stable(1)
    desk.commit_as(member, 1, 5)
    asked = FetchOffsets(group="g", member_id=member, member_epoch=generation)
    assert desk.ask(asked, OffsetsAnswer).offsets == (CommittedOffset("t", 0, 5),)
