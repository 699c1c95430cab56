"""A budget of bytes gives what it has, and takes back what it gave."""

from __future__ import annotations

import pytest

from tidelog.broker.runtime.budget import ByteBudget
from tidelog.model.errors import Overloaded


def test_a_budget_gives_what_it_has() -> None:
    budget = ByteBudget(100, "tests")
    budget.take(60)
    budget.take(40)
    with pytest.raises(Overloaded, match="memory for tests"):
        budget.take(1)
    budget.give_back(40)
    budget.take(1)
    assert budget.used == 61


def test_a_free_budget_lets_anything_in_so_that_nothing_is_refused_for_ever() -> None:
    budget = ByteBudget(100, "tests")
    budget.take(1000)
    with pytest.raises(Overloaded):
        budget.take(1)
    budget.give_back(1000)
    assert budget.used == 0
