"""Arrays that are null where the protocol knows no null are found; those that may be null are let through."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.kafka.conftest import request_frame
from tests.unit.broker.kafka.test_codecs import read_frame
from tidelog.broker.kafka.apis import Key
from tidelog.model.kafka_wire import Malformed

NO_NAME = b"\xff\xff\xff\xff"
"""A null array, where versions are not flexible."""
FETCH = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": (5,)}]}


def with_null_numbers() -> bytes:
    """The only topic of an OffsetFetch has null for its partitions."""
    frame = request_frame(Key.OFFSET_FETCH, 5, FETCH)
    numbers = (1).to_bytes(4) + (5).to_bytes(4)
    assert frame.endswith(numbers)
    return frame[: -len(numbers)] + NO_NAME


def test_a_null_array_deep_in_a_request_is_malformed() -> None:
    with pytest.raises(Malformed, match="partition_indexes"):
        read_frame(with_null_numbers())


def test_a_null_array_at_the_top_is_malformed() -> None:
    frame = request_frame(Key.DELETE_GROUPS, 1, {"groups_names": ()})
    with pytest.raises(Malformed, match="groups_names"):
        read_frame(frame[:-4] + NO_NAME)


def test_what_may_be_null_is_let_through() -> None:
    body: Any = read_frame(request_frame(Key.OFFSET_FETCH, 5, {**FETCH, "topics": None}))
    assert body.topics is None
