from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import TopicPartition
from tidelog.spark.offsets import Offsets

topics = st.text("abcXYZ019._-", min_size=1, max_size=6)
positions = st.dictionaries(st.builds(TopicPartition, topics, st.integers(0, 300)), st.integers(0, 2**63 - 1))


@given(positions, st.randoms(use_true_random=False))
def test_equal_positions_are_equal_strings_after_any_trip(found: dict[TopicPartition, int], order: Random) -> None:
    ids = {partition.topic: f"id of {partition.topic}" for partition in found}
    text = json.dumps(Offsets(found, ids).to_json())
    shuffled = list(found.items())
    order.shuffle(shuffled)
    assert json.dumps(Offsets(dict(shuffled), dict(reversed(ids.items()))).to_json()) == text
    again = Offsets.from_json(json.loads(text))
    assert again == Offsets(found, ids)
    assert json.dumps(again.to_json()) == text


def test_the_form_is_kafkas_with_ids_beside_it() -> None:
    offsets = Offsets({TopicPartition("b", 10): 3, TopicPartition("b", 9): 2, TopicPartition("a", 0): 1}, {"b": "B"})
    assert json.dumps(offsets.to_json()) == '{"@topic_ids": {"b": "B"}, "a": {"0": 1}, "b": {"9": 2, "10": 3}}'


@pytest.mark.parametrize(
    "document",
    [{"a": 1}, {"a": {"x": 1}}, {"a": {"-1": 1}}, {"a": {"0": "1"}}, {"a": {"0": True}}, {"a": {"0": -1}}],
)
def test_what_is_no_position_is_refused(document: dict[str, dict[str, int]]) -> None:
    with pytest.raises(InvalidRequest):
        Offsets.from_json(document)


def test_topics_that_are_gone_take_their_ids_along() -> None:
    offsets = Offsets({TopicPartition("a", 0): 1, TopicPartition("b", 0): 2}, {"a": "A", "b": "B"})
    assert offsets.without(["a"]) == Offsets({TopicPartition("b", 0): 2}, {"b": "B"})
    assert offsets.topics == ["a", "b"]
