"""Random histories of one group: see `group_world.py` for what happens in them, and what must hold."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.group_world import World


def play(seed: int, steps: int) -> None:
    world = World(Random(seed))
    for _ in range(steps):
        world.step()
    world.finish()


@given(st.integers(0, 2**32))
@settings(max_examples=25)
def test_a_group_whatever_happens(seed: int) -> None:
    play(seed, steps=150)


@pytest.mark.slow
@pytest.mark.timeout(600)
@given(st.integers(0, 2**32))
@settings(max_examples=2_000)
def test_a_group_whatever_happens_for_long(seed: int) -> None:
    play(seed, steps=300)
