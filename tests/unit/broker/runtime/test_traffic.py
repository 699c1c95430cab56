"""The traffic of topics is counted apart as long as they are few."""

from __future__ import annotations

from tidelog.broker.runtime.traffic import TOPICS_MAX, Traffic


def test_the_first_topics_are_counted_apart_and_the_others_as_one() -> None:
    traffic = Traffic()
    for number in range(TOPICS_MAX + 2):
        traffic.of(f"t{number}").in_bytes += 1 + number
    assert len(traffic.topics) == TOPICS_MAX
    assert traffic.topics["t0"].in_bytes == 1
    assert traffic.others.in_bytes == 2 * TOPICS_MAX + 3
    traffic.of("t0").in_bytes += 1
    assert traffic.topics["t0"].in_bytes == 2


def test_a_topic_that_is_gone_makes_place_for_another() -> None:
    traffic = Traffic()
    for number in range(TOPICS_MAX):
        traffic.of(f"t{number}").out_records += 1
    left = {f"t{number}": None for number in range(1, TOPICS_MAX)}
    traffic.keep(left)
    traffic.of("new").out_records += 7
    assert "t0" not in traffic.topics
    assert traffic.topics["new"].out_records == 7
    assert traffic.topics["t1"].out_records == 1
