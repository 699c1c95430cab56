"""Metadata names live brokers, and dead ones for a while."""

from __future__ import annotations

from tests.unit.broker.kafka.images import broker, image
from tidelog.broker.kafka.listed_brokers import ListedBrokers
from tidelog.model.cluster import BrokerInfo

LINGER_S = 9.0


class World:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.ended = [2]
        self.listed = ListedBrokers(lambda: self.now_s, lambda: self.ended, LINGER_S)

    def ids(self, *brokers: BrokerInfo) -> list[int]:
        return [listed.node_id for listed in self.listed.of(image(*brokers))]


def test_brokers_with_a_kafka_listener_are_named() -> None:
    assert World().ids(broker(1), broker(2, kafka=False), broker(3)) == [1, 3]


def test_a_broker_that_is_fenced_and_may_run_on_is_named_no_more() -> None:
    world = World()
    world.ended = []
    world.ids(broker(1), broker(2))
    gone = broker(1), broker(2, is_fenced=True)
    assert world.ids(*gone) == [1]
    world.ended = [2]  # it died later
    assert world.ids(*gone) == [1]


def test_a_broker_that_ended_is_named_for_a_while() -> None:
    world = World()
    world.ids(broker(1), broker(2))
    gone = broker(1), broker(2, is_fenced=True)
    assert world.ids(*gone) == [1, 2]
    world.now_s += LINGER_S - 1
    assert world.ids(*gone) == [1, 2]
    world.now_s += 1
    assert world.ids(*gone) == world.ids(*gone) == [1]


def test_brokers_that_were_fenced_before_the_first_request_are_not_named() -> None:
    assert World().ids(broker(1), broker(2, is_fenced=True)) == [1]


def test_a_broker_that_comes_back_and_dies_again_has_its_time_anew() -> None:
    world = World()
    world.ids(broker(1), broker(2))
    world.ids(broker(1), broker(2, is_fenced=True))
    world.now_s += LINGER_S - 1
    world.ids(broker(1), broker(2))
    world.now_s += 3
    assert world.ids(broker(1), broker(2, is_fenced=True)) == [1, 2]
    world.now_s += LINGER_S - 1
    assert world.ids(broker(1), broker(2, is_fenced=True)) == [1, 2]


def test_a_broker_that_was_removed_is_gone_at_once() -> None:
    world = World()
    world.ids(broker(1), broker(2))
    assert world.ids(broker(1)) == [1]
    assert world.ids(broker(1), broker(2, is_fenced=True)) == [1]
