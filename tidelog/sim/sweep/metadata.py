"""The sweep over the metadata log: four settings of a topic are changed, one entry each, and a pattern damages these
entries.

A cluster has one metadata log, so every case starts brokers of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Set
from functools import partial
from typing import Final, NamedTuple

from tidelog.broker.broker import Broker, NewTopic
from tidelog.sim.kit import rot
from tidelog.sim.kit.seeds import stream
from tidelog.sim.sweep.brokers import IDLE_S, LOOK_S, Brokers, brokers_of
from tidelog.sim.sweep.cases import ENTRIES, Case, Plan, Variant
from tidelog.sim.sweep.copies import Content, Copy, check_majority, damage_copies, find_copies
from tidelog.sim.sweep.verdicts import Result, Verdict
from tidelog.storage.log_manager import JOURNAL, METADATA

TOPIC: Final = "swept"
CHANGES: Final = {
    "retention.ms": "8100000001",
    "retention.bytes": "8200000002",
    "segment.ms": "8300000003",
    "message.timestamp.before.max.ms": "8400000004",
}
"""Settings and values, in the order of their entries."""
AFTER: Final = ("max.message.bytes", "850005")
SAYS: Final = "tidelog cluster recover"
TELL_S_MAX: Final = 12.0
"""Seconds that brokers may need to report an unrecoverable entry; the slowest so far took 8.1 s."""
SETTLE_S_MAX: Final = 30.0


class Written(NamedTuple):
    """The disks of brokers that have ended, and the sound copies of the entries on them."""

    plan: Plan
    disks: dict[int, Content]
    copies: list[Copy]


async def write(plan: Plan) -> Written:
    """Starts brokers, writes the four entries, ends the brokers, and returns their disks."""
    rng = stream(plan.seed, f"metadata {plan}")
    behind = rng.choice(plan.nodes) if plan.variant is Variant.BEHIND else 0
    async with brokers_of(plan, f"{plan.seed}/written") as brokers:
        await brokers.start_in_turn(rng)
        assert await brokers.are_up(), brokers.words()
        await brokers.insist(_create, lambda: 1)
        for entry, change in enumerate(CHANGES.items()):
            if behind and entry == ENTRIES // 2:
                await asyncio.sleep(IDLE_S)
                await brokers.down(behind)
            await _alter(brokers, *change)
        disks = await brokers.end()
    copies = _find(disks)
    check_majority(copies, plan.variant.replicas)
    return Written(plan, disks, copies)


async def _create(broker: Broker) -> bool:
    if TOPIC not in broker.image.topics:
        await broker.admin.create_topic(NewTopic(TOPIC, 1, 1))
    return True


async def _alter(brokers: Brokers, name: str, value: str) -> None:
    async def alter(broker: Broker) -> bool:
        await broker.admin.alter_topic_configs(TOPIC, {name: value})
        return True

    up = [node for node, machine in brokers.machines.items() if machine.is_up]
    await brokers.insist(alter, lambda: up[0])


def _find(disks: Mapping[int, Content]) -> list[Copy]:
    values = [value.encode() for value in CHANGES.values()]
    return [
        copy for node, content in disks.items() for copy in find_copies(node, content, f"{METADATA}/", values, JOURNAL)
    ]


async def play(written: Written, case: Case, seed: str) -> Result:
    """Runs a case: damages the copies, starts the brokers, and judges what they show."""
    plan = written.plan
    rng = stream(seed, "damage")
    async with brokers_of(plan, seed) as brokers:
        brokers.restore(written.disks)
        left = damage_copies(case, written.copies, brokers.media, plan.variant.replicas, rng)
        if plan.variant is Variant.DIRECTORY:
            rot.lose_directory(brokers.media[case.wiped], METADATA)
        elif case.wiped:
            brokers.machines[case.wiped].replace_disk()
        good = {copy.entry for copy in left if copy.node != case.wiped}
        await brokers.start_in_turn(rng)
        judge = MetadataJudge(case, good)
        await judge.ask(brokers)
        return judge.result()


class MetadataJudge:
    """Judges the metadata log of one case; `good` are the entries that must be in force."""

    def __init__(self, case: Case, good: Set[int]) -> None:
        self._case = case
        self._good = good
        self._lost = ENTRIES - len(good)
        self._problems: dict[Verdict, str] = {}
        self._answered = 0
        self._seconds = 0.0

    async def ask(self, brokers: Brokers) -> None:
        """Waits for the brokers; compares the settings that each shows, and changes another one."""
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        if await (brokers.are_up(TELL_S_MAX, partial(_all_tell, brokers)) if self._lost else brokers.are_up()):
            self._compare(brokers)
            await self._write(brokers)
        elif self._lost:
            self._listen(brokers)
        else:
            self._note(Verdict.STUCK, f"not ready: {brokers.words()}")
        self._seconds = loop.time() - begun_s

    def _compare(self, brokers: Brokers) -> None:
        for node, machine in brokers.machines.items():
            image = machine.broker.image if machine.broker is not None else None
            configs = image.topics[TOPIC].configs if image is not None and TOPIC in image.topics else {}
            for entry, (name, value) in enumerate(CHANGES.items()):
                shown = configs.get(name)
                if shown is None:
                    gone = Verdict.LOST if entry in self._good else Verdict.SILENT
                    self._note(gone, f"node {node} does not know {name}")
                elif shown != value:
                    self._note(Verdict.WRONG, f"node {node} has {name}={shown}")

    async def _write(self, brokers: Brokers) -> None:
        name, value = AFTER
        try:
            await _alter(brokers, name, value)
        except AssertionError as error:
            self._note(Verdict.STUCK, f"a change is answered {error}")
            return
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + SETTLE_S_MAX
        while late := [node for node in brokers.machines if not _knows(brokers, node, name, value)]:
            if loop.time() > deadline_s:
                self._note(Verdict.UNREPAIRED, f"nodes {late} do not follow: {brokers.words()}")
                return
            await asyncio.sleep(LOOK_S)

    def _listen(self, brokers: Brokers) -> None:
        """Checks, while no broker may become ready, that at least one of them says what an operator has to do."""
        words = brokers.words()
        if any(SAYS in text for text in words.values()):
            self._answered = self._lost
        else:
            self._note(Verdict.UNTOLD, f"brokers say {sorted(set(words.values()))}")

    def _note(self, verdict: Verdict, problem: str) -> None:
        self._problems.setdefault(verdict, problem)

    def result(self) -> Result:
        verdict = next((kind for kind in Verdict if kind in self._problems), Verdict.RECOVERED)
        return Result(self._case, verdict, self._problems.get(verdict, ""), self._lost, self._answered, self._seconds)


def _all_tell(brokers: Brokers) -> bool:
    words = brokers.words()
    return all(SAYS in words.get(node, "") for node in brokers.machines)


def _knows(brokers: Brokers, node: int, name: str, value: str) -> bool:
    broker = brokers.machines[node].broker
    return broker is not None and TOPIC in broker.image.topics and broker.image.topics[TOPIC].configs.get(name) == value
