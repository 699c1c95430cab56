"""Tests of the produce requests that an intake refuses before it queues anything."""

from __future__ import annotations

import pytest

from tests.unit.broker.conftest import batch
from tidelog.adapters.system import SystemClock
from tidelog.broker.partitions.intake import Intake
from tidelog.broker.runtime.stats import Stats
from tidelog.config.schema import TopicConfig
from tidelog.model.cluster import CommitOrder
from tidelog.model.errors import TotalOrderRequired


@pytest.fixture
def intake() -> Intake:
    return Intake("t", SystemClock(), Stats())


def put(intake: Intake, order: CommitOrder, expected_end: int | None) -> None:
    intake.put(batch(b"a"), TopicConfig(commit_order=order), -1, 1.0, None, expected_end, None)


@pytest.mark.parametrize("order", ["key", "none"])
@pytest.mark.parametrize("expected_end", [0, 1, -1])
def test_an_expected_end_needs_total_order(intake: Intake, order: CommitOrder, expected_end: int) -> None:
    with pytest.raises(TotalOrderRequired) as refused:
        put(intake, order, expected_end)
    assert refused.value.message == (
        f"an expected end offset needs commit.order=total, and topic t has commit.order={order}; nothing was appended"
    )
    assert refused.value.definite and not refused.value.retriable
    assert not intake.mailbox, "nothing is queued"


@pytest.mark.parametrize(("order", "expected_end"), [("total", 0), ("key", None), ("none", None)])
def test_other_requests_are_queued(intake: Intake, order: CommitOrder, expected_end: int | None) -> None:
    put(intake, order, expected_end)
    assert intake.mailbox
