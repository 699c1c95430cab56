"""Administrators: clients that give commands (create a topic, alter a setting) to brokers and record the outcome of
each.

Each command writes something unique into its metadata record: the name of a topic, the value of a setting, the
partition count that a topic grows to. So at the end of a run the metadata log shows what became of each command:

- an acknowledged command is in the log, once, and was there when it was acknowledged;
- a command that was refused with a definite error is not in the log;
- a command that began after the acknowledgement of another one comes after that one in the log;
- the broker that acknowledged a new topic shows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from tidelog.broker.broker import Broker, NewTopic
from tidelog.controller.records import (
    ConfigsAltered,
    MetadataRecord,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from tidelog.model.cluster import ClusterImage, Topic
from tidelog.model.errors import TidelogError
from tidelog.sim.cluster.scenario import Order
from tidelog.sim.cluster.traffic import DATA
from tidelog.sim.cluster.truth import Truth
from tidelog.sim.cluster.world import World
from tidelog.sim.kit.machine import ConnectionLost, Unreachable

TOPIC = "topic"
CONFIG = "segment.bytes"
REPEATABLE = ("configure", "create", "delete")
"""Kinds of commands that a retried request may execute twice, if another command has undone the first effect meanwhile
(docs/testing.md, "Known and left"). As long as the effect stands, the retry is recognised."""
CONFIG_FIRST = 2_000
"""First value for `segment.bytes`: each command sets a value of its own, this one plus the command's number."""


Work = Callable[[Broker], Coroutine[Any, Any, object]]


@dataclass(slots=True, eq=False)
class Command:
    """Command that an administrator gave, and its outcome."""

    key: str
    """Key that identifies the command in the metadata log (`create topic7`). Commands that ask for the same change,
    such as two deletions of a topic, share it."""
    via: int
    begun_s: float
    outcome: str = "unknown"
    """`ok`, `refused` (surely without effect) or `unknown`."""
    ended_s: float = inf


def keys_of(records: Mapping[int, MetadataRecord]) -> dict[int, str]:
    """Returns, by offset, the keys of the commands whose effect is recorded in the metadata log; records of no command
    are left out."""
    keys: dict[int, str] = {}
    partitions: dict[str, int] = {}
    for offset in sorted(records):
        match records[offset]:
            case TopicCreated(name, topic_id, assignments):
                partitions[topic_id] = len(assignments)
                if name.startswith(TOPIC):
                    keys[offset] = f"create {name}"
            case PartitionsAdded(topic_id, assignments):
                partitions[topic_id] += len(assignments)
                keys[offset] = f"grow {topic_id} to {partitions[topic_id]}"
            case TopicDeleted(topic_id):
                keys[offset] = f"delete {topic_id}"
            case ConfigsAltered(_, changes) if CONFIG in changes:
                keys[offset] = f"configure {changes[CONFIG]}"
    return keys


class Administrators:
    """The administrators of one run, and all commands that they gave."""

    def __init__(self, world: World, truth: Truth) -> None:
        self.commands: list[Command] = []
        self.producer_ids: set[int] = set()
        self._world = world
        self._truth = truth

    async def carry_out(self, number: int, order: Order) -> str | None:
        """Gives a drawn command to a broker and waits for its end; returns the outcome, or None if the broker is down
        or there is no topic to act on.

        `number` is the step's number in the scenario, which makes the command unique.
        """
        machine = self._world.machine(order.via)
        if (broker := machine.broker) is None or not machine.is_up:
            return None
        prepared = _prepare(number, order, broker.image)
        if prepared is None:
            return None
        return await self.give(*prepared, order.via, order.timeout_s)

    async def give(self, key: str, work: Work, via: int, timeout_s: float) -> str:
        """Sends a command to a running broker and records it under its key; returns the outcome: `ok`, `refused` or
        `unknown`."""
        machine = self._world.machine(via)
        broker = machine.broker
        assert broker is not None, "nobody is asked"
        command = Command(key, via, self._world.true_time)
        self.commands.append(command)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await machine.call(work)
        except Unreachable:
            self._end(command, "refused", "unreachable")
        except ConnectionLost:
            self._end(command, "unknown", "connection lost")
        except TimeoutError:
            self._end(command, "unknown", "timeout")
        except TidelogError as error:
            self._end(command, "refused" if error.definite else "unknown", f"{type(error).__name__}: {error}")
        else:
            self._end(command, "ok", "")
            self._check_answer(command, answer, broker.image)
        return command.outcome

    def _end(self, command: Command, outcome: str, reason: str) -> None:
        command.outcome, command.ended_s = outcome, self._world.true_time
        self._truth.note("order", command.key, f"via {command.via}", outcome, reason)
        self._truth.saw(f"command {outcome}")
        is_forwarded = outcome == "ok" and self._truth.image.controller_id != command.via
        self._truth.saw("forwarded command", is_forwarded)

    def _check_answer(self, command: Command, answer: object, image: ClusterImage) -> None:
        if isinstance(answer, int):
            if answer in self.producer_ids:
                self._truth.violate("commands", f"producer id {answer} was given out twice")
            self.producer_ids.add(answer)
        elif command.key not in keys_of(self._truth.records).values():
            self._truth.violate("commands", f"{command.key} is acknowledged, and in nobody's log")
        if isinstance(answer, Topic) and not self._is_deleted(answer.topic_id):
            shown = image.topics.get(answer.name)
            if shown is None or len(shown.partitions) < len(answer.partitions):
                self._truth.violate("commands", f"{command.key}: node {command.via} acknowledges, and does not show it")

    def _is_deleted(self, topic_id: str) -> bool:
        return any(record == TopicDeleted(topic_id) for record in self._truth.records.values())

    def check_all(self) -> None:
        """Compares the recorded outcomes of all commands with the complete metadata log; reports each contradiction as
        a violation."""
        offsets: dict[str, list[int]] = {}
        for offset, key in keys_of(self._truth.records).items():
            offsets.setdefault(key, []).append(offset)
        commands: dict[str, list[Command]] = {}
        for command in self.commands:
            commands.setdefault(command.key, []).append(command)
        for key, key_offsets in offsets.items():
            for wrong in _wrong_with(key, commands.get(key, []), len(key_offsets)):
                self._truth.violate("commands", wrong)
        for command in self.commands:
            if command.outcome == "ok" and not command.key.startswith("allocate") and command.key not in offsets:
                self._truth.violate("commands", f"{command.key} was acknowledged, and is lost")
        self._truth.saw("command done again", any(len(key_offsets) > 1 for key_offsets in offsets.values()))
        lost = [command for command in self.commands if command.outcome == "unknown" and command.key in offsets]
        self._truth.saw("lost reply after commit", bool(lost))
        self._check_order([(command, offsets[command.key][0]) for command in self.commands if command.key in offsets])

    def _check_order(self, done: list[tuple[Command, int]]) -> None:
        """Checks linearizability: a command that began after another one's acknowledgement comes later in the log."""
        unique = [(command, at) for command, at in done if command.key.startswith(("create", "configure"))]
        for earlier, first in unique:
            for later, second in unique:
                if earlier.outcome == "ok" and earlier.ended_s < later.begun_s and second < first:
                    self._truth.violate("commands", f"{later.key}, begun after {earlier.key} was done, came before it")


def _wrong_with(key: str, commands: list[Command], times: int) -> Iterator[str]:
    if not commands:
        yield f"{key} was done, and nobody asked"
    elif all(command.outcome == "refused" for command in commands):
        yield f"{key} was refused with a definite error, and done"
    if times > 1 and not key.startswith(REPEATABLE):
        yield f"{key} was done {times} times"


def _prepare(number: int, order: Order, image: ClusterImage) -> tuple[str, Work] | None:
    """Returns the key of a command, and the function that sends its request to a broker; None if the command acts on a
    topic and there is none."""
    if order.kind == "create":
        return _create(number, order, image)
    if order.kind == "allocate":
        return f"allocate {number}", lambda broker: broker.admin.allocate_producer_id()
    topics = [topic for topic in image.topics.values() if not topic.name.startswith(DATA)]
    if not topics:
        return None
    topic = topics[order.target % len(topics)]
    match order.kind:
        case "delete":
            return f"delete {topic.topic_id}", lambda broker: broker.admin.delete_topic(topic.name)
        case "grow":
            total = len(topic.partitions) + 1 + order.target % 3
            return f"grow {topic.topic_id} to {total}", lambda broker: broker.admin.add_partitions(topic.name, total)
        case "configure":
            value = str(CONFIG_FIRST + number)
            return f"configure {value}", lambda broker: broker.admin.alter_topic_configs(topic.name, {CONFIG: value})
        case kind:
            raise AssertionError(f"unknown kind of order: {kind}")


def _create(number: int, order: Order, image: ClusterImage) -> tuple[str, Work]:
    name = f"{TOPIC}{number}"
    live = len(image.live_brokers)
    partitions = (None, 1, 2, 5)[order.target % 4]
    factor = None if order.target % 3 else max(1, live)
    topic = NewTopic(name, partitions, factor)
    return f"create {name}", lambda broker: broker.admin.create_topic(topic)
