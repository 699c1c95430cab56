"""What tests of whole clusters are run for: topics of either commit protocol, and clusters that have both.

By default it is `isr`; `pytest -m slow` runs the rest. A test that is about one protocol alone says so with `only`.
"""

from __future__ import annotations

import pytest

from tests.e2e.clusters import BOTH, ISR, PAXOS


@pytest.fixture(
    scope="module",
    params=[ISR, pytest.param(PAXOS, marks=pytest.mark.slow), pytest.param(BOTH, marks=pytest.mark.slow)],
)
def protocol(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found
