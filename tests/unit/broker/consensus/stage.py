"""Members of one log that elects its leader, each a process of its own with a simulated disk; frames go from hand to
hand, late and out of order, and the stage says which are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from tests.unit.broker.isr.stage import until
from tidelog.broker.consensus.elected_log import ElectedLog
from tidelog.broker.consensus.founding import Address, NamedVoter, find_origin
from tidelog.broker.consensus.log_member import LogContext, LogMember
from tidelog.broker.consensus.messages import ElectionFrame, PaxosFrame, QuorumDescribed
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.broker.runtime.stats import Stats
from tidelog.model.cluster import Voter
from tidelog.model.ports import Buffer
from tidelog.replication.election_settings import ElectionSettings
from tidelog.replication.paxos.voters import VoterSet
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import DISK_DELAY_S, SimClock, SimEntropy, SimRunner
from tidelog.sim.kit.loop import SimLoop, run
from tidelog.sim.kit.process import Process, context_of, outside, owned_task
from tidelog.sim.kit.seeds import stream
from tidelog.storage.log_manager import LogManager

SETTINGS = ElectionSettings(heartbeat_ms=50, timeout_ms=500, lease_ms=200)
DELAY_S = 0.001

Frame = PaxosFrame | ElectionFrame


class Site:
    """One broker: a disk, and one life after the other. It is the `LogListener` of its log."""

    def __init__(self, stage: Stage, node_id: int) -> None:
        self.stage = stage
        self.node_id = node_id
        self.address: Address = ("127.0.0.1", node_id)
        self.disk = SimDisk(f"{stage.seed}/{node_id}")
        self.entropy = SimEntropy(stream(stage.seed, f"entropy {node_id}"))
        self.process: Process | None = None
        self.member: LogMember | None = None
        self.log: ElectedLog | None = None
        self.entries: dict[int, bytes] = {}
        self.lives = 0

    @property
    def running(self) -> ElectedLog:
        assert self.log is not None, "it takes part"
        return self.log

    @property
    def voter_ids(self) -> tuple[int, ...]:
        """The voters in force, as far as this broker knows."""
        return () if self.log is None else self.log.membership.voters.ids

    def boot(self) -> asyncio.Task[None]:
        """Starts the next life, on what the disk holds; done when it takes part."""
        self.lives += 1
        self.process = Process(f"broker {self.node_id}")
        return asyncio.get_running_loop().create_task(self._begin(), context=context_of(self.process))

    async def _begin(self) -> None:
        clock, stats = SimClock(asyncio.get_running_loop()), Stats()
        rng = stream(self.stage.seed, f"runner {self.node_id}.{self.lives}")
        writer = LogWriter(SimRunner(rng, DISK_DELAY_S), clock, stats)
        asyncio.get_running_loop().create_task(writer.run())
        manager = LogManager(self.disk, open_max=16, new_incarnation=lambda: self.entropy.token_hex(16))
        member = self.member = LogMember(self.node_id, *manager.open_slots(clock.wall_ms()))
        if member.is_new:
            named, me = self.stage.named, NamedVoter(self.node_id, self.address)
            contacts = [site.address for site in self.stage.sites.values() if self.stage.is_join(self)]
            named = [] if self.stage.is_join(self) else named
            origin = await find_origin(me, member.incarnation, named, contacts, self.stage.ask, self.entropy)
            await member.begin(origin, writer)
        context = LogContext(self._notify, writer, SETTINGS, clock, self.entropy)
        self.log = ElectedLog(member, member.membership(), context, self, self)
        asyncio.get_running_loop().create_task(self.log.disk.run())
        self.log.start()

    def _notify(self, node_id: int, frame: Frame, payloads: Sequence[Buffer]) -> None:
        self.stage.carry(self.node_id, node_id, frame, b"".join(payloads))

    def act(self, call: Callable[[], None]) -> None:
        """Has the broker do something, if it is up."""
        if self.process is not None:
            asyncio.get_running_loop().call_soon(call, context=context_of(self.process))

    def hear(self, sender: int, frame: Frame, payload: bytes) -> None:
        if self.log is None:
            return
        if isinstance(frame, PaxosFrame):
            self.log.receive_paxos(sender, frame, memoryview(payload))
        else:
            self.log.receive_election(sender, frame)

    def run(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Has the broker do something that takes time."""
        assert self.process is not None, "it is up"
        return asyncio.get_running_loop().create_task(work, context=context_of(self.process))

    async def crash(self) -> None:
        """Ends this life: power is lost."""
        process, self.process, self.log, self.member = self.process, None, None, None
        self.entries = {}
        self.disk = self.disk.crash()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        if process is None:
            return
        process.is_dying = True
        for _ in range(10):
            tasks = [task for task in process.tasks if not task.done()]
            for task in tasks:
                task.cancel()
            await loop.run_dry(process)
            for task in tasks:
                if task.done() and not task.cancelled():
                    task.exception()
        loop.bury(process)

    def wipe(self) -> None:
        """Puts another disk in the place of this one's."""
        self.disk = SimDisk(f"{self.stage.seed}/{self.node_id}/{self.lives}")

    # -- `LogListener` -----------------------------------------------------------------------------------------------

    def applied(self, payload: bytes, offset: int, position: int) -> None:
        self.entries[position] = payload

    def voters_applied(self, voters: VoterSet, position: int) -> None:
        self.running.set_learners(list(self.stage.sites))

    def leading(self, number: int) -> None: ...

    def deposed(self) -> None: ...

    def leader_changed(self, node_id: int | None) -> None: ...

    def halted(self) -> None:
        raise AssertionError("no disk fails here")

    def lacks_snapshot(self) -> None:
        raise AssertionError("no log is truncated here")


class Stage:
    """Brokers from 1 on; the first ones, `founders` of them, name each other, and the others join."""

    def __init__(self, seed: object, founders: int, spares: int = 0) -> None:
        self.seed = seed
        self.rng = stream(seed, "stage")
        self.sites = {node: Site(self, node) for node in range(1, founders + spares + 1)}
        self.named = [NamedVoter(node, ("127.0.0.1", node)) for node in range(1, founders + 1)]
        self.silent: set[int] = set()
        """Brokers whose frames, and answers, are lost."""

    def is_join(self, site: Site) -> bool:
        return site.node_id > len(self.named)

    async def ask(self, address: Address) -> QuorumDescribed:
        """Returns what a broker that starts is told by another."""
        await asyncio.sleep(DELAY_S)
        site = self.sites[address[1]]
        if site.process is None or site.member is None or site.node_id in self.silent:
            raise TimeoutError
        return site.member.described_as_new(self.named) if site.log is None else site.log.described(self.named)

    def carry(self, sender: int, to: int, frame: Frame, payload: bytes) -> None:
        if self.silent.isdisjoint((sender, to)):
            delay_s, site = self.rng.expovariate(1 / DELAY_S), self.sites[to]
            loop = asyncio.get_running_loop()
            outside(loop.call_later, delay_s, lambda: site.act(lambda: site.hear(sender, frame, payload)))

    # -- for the story -----------------------------------------------------------------------------------------------

    async def found(self) -> Site:
        """Has the founders found the log; returns the leader."""
        for voter in self.named:
            self.sites[voter.node_id].boot()
        return await self.leader()

    async def leader(self) -> Site:
        await until(lambda: any(self._leaders()))
        return self._leaders()[0]

    def _leaders(self) -> list[Site]:
        return [site for site in self.sites.values() if site.log is not None and site.log.is_leading]

    async def enlist(self, site: Site, voter_id: int) -> Voter:
        """Boots a broker that joins, and gives its disk an id."""
        await site.boot()
        site.act(lambda: site.running.leadership.enlist(voter_id))
        await until(lambda: site.running.voting_id == voter_id)
        return Voter(voter_id, site.node_id, site.running.described([]).incarnation, *site.address)

    async def agree(self, *voter_ids: int) -> None:
        """Waits until all that run know these voters, and one of them leads."""
        running = [site for site in self.sites.values() if site.process is not None]
        await until(lambda: all(site.voter_ids == voter_ids for site in running) and any(self._leaders()))

    async def check_serves(self) -> None:
        """An append is applied by everybody, and no two know different entries anywhere."""
        leader = await self.leader()
        applied = await leader.run(leader.running.append(b"at last", 1))
        running = [site for site in self.sites.values() if site.process is not None]
        await until(lambda: all(site.running.applied_position > applied.position for site in running))
        assert all(site.entries == leader.entries for site in running)


def play(story: Callable[[Stage], Awaitable[None]], *, founders: int, spares: int = 0, seed: object = 1) -> None:
    """Runs a story on a stage, in virtual time."""

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(owned_task)
        stage = Stage(seed, founders, spares)
        try:
            await story(stage)
        finally:
            for site in stage.sites.values():
                await site.crash()

    run(main, seed)
