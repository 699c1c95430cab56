"""A log by itself whose machines crash, pause, lose their disks and each other, in virtual time, and whose head is
truncated: what was acknowledged behind it is where it was said to be, on every replica, and nothing is there twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from tidelog.broker.consensus.founding import Address
from tidelog.broker.consensus.log_member import LogMember
from tidelog.config.schema import BrokerConfig
from tidelog.model.cluster import Voter
from tidelog.model.errors import ControllerLost, LeaderNotAvailable, NotController
from tidelog.replication.election_settings import ElectionSettings
from tidelog.replication.paxos.state import Status
from tidelog.replication.paxos.voters import Membership, VoterSet
from tidelog.sim.kit.environment import SimClock, SimEntropy
from tidelog.sim.kit.loop import run
from tidelog.sim.kit.machine import Incarnation, Machine
from tidelog.sim.kit.network import SimNetwork
from tidelog.sim.kit.process import context_of, owned_task
from tidelog.sim.kit.seeds import stream
from tidelog.standalone.client import LogClient
from tidelog.standalone.directory import ReplicaDirectory, initialise
from tidelog.standalone.entries import split_entry
from tidelog.standalone.replica import LogReplica

PORT = 5050
NODES = (1, 2, 3)
SEED_WITH_AMNESIA = 1
"""Here a disk is wiped that a majority needs: if it voted all the same, two values would be chosen."""
QUICK = (0, SEED_WITH_AMNESIA)
SEEDS = range(60)
STEPS = 40
QUIET_S_MAX = 120.0
MISFORTUNES = ("kill", "power", "pause", "resume", "cut", "heal", "boot", "boot", "wipe", "wipe")


class LogMachine(Machine):
    """A machine that runs a replica of a log."""

    def __init__(self, seed: str, node: int, servers: list[Address], network: SimNetwork) -> None:
        super().__init__(f"{seed}/{node}", BrokerConfig(), name=servers[node - 1][0], network=network)
        self.node = node
        self.replica: LogReplica
        self.is_wiped = False
        """Its disk was replaced, and has not voted yet."""
        self._servers = servers

    async def initialise(self) -> None:
        initialise(self.disk, self.clock, self._entropy)

    async def _make_broker(self, now: Incarnation) -> None:
        directory = ReplicaDirectory(now.disk, self.clock, self._entropy)
        settings = ElectionSettings()
        parts = (now.network, now.runner, self.clock, self._entropy)
        self.replica = LogReplica(self.node, directory, *parts, settings=settings)
        await self.replica.listen(self._servers[self.node - 1])

    async def boot(self) -> None:
        """Starts the next life. It may wait for others, so nobody waits for it."""
        await self.make_broker()
        if self._now is not None:
            start = self.replica.start(self._servers)
            asyncio.get_running_loop().create_task(start, context=context_of(self._now.process))

    async def wipe(self) -> None:
        await self.kill()
        self.replace_disk()
        self.is_wiped = True

    @property
    def votes(self) -> bool:
        return self.is_running and self.replica.has_voted_in.is_set()


class Story:
    """Three machines, a writer, and what befalls them."""

    def __init__(self, seed: int, quiet_s_max: float) -> None:
        self._quiet_s_max = quiet_s_max
        self.rng = stream(seed, "story")
        self._truncating = stream(seed, "truncation")
        self.network = SimNetwork(stream(seed, "network"))
        self.servers = [(f"10.0.0.{node}", PORT) for node in NODES]
        self.machines = [LogMachine(f"{seed}", node, self.servers, self.network) for node in NODES]
        self.acknowledged: dict[int, bytes] = {}
        self.unknown: set[bytes] = set()
        self.seen: Counter[str] = Counter()
        self.is_over = False
        self.truncated = 0
        """The log was asked to begin here at the latest."""

    def client(self) -> LogClient:
        clock = SimClock(asyncio.get_running_loop())
        return LogClient(self.servers, self.network.host("10.0.0.9"), clock, SimEntropy(self.rng))

    async def write(self) -> None:
        """Sends one entry after the other."""
        client, number = self.client(), 0
        while not self.is_over:
            content = b"entry %d" % number
            number += 1
            try:
                position = await client.append(content, deadline_s=10.0)
            except ControllerLost:
                self.unknown.add(content)
            except NotController:
                self.seen["nobody led"] += 1
            else:
                assert position > max(self.acknowledged, default=-1)
                self.acknowledged[position] = content
            await asyncio.sleep(self.rng.uniform(0.0, 0.2))
        await client.close()

    async def truncate(self) -> None:
        """Has the log begin at an entry of the last ones, now and then."""
        client = self.client()
        while not self.is_over:
            await asyncio.sleep(self._truncating.expovariate(0.3))
            if not self.acknowledged:
                continue
            begin = self._truncating.choice(list(self.acknowledged)[-20:])
            self.truncated = max(self.truncated, begin)
            with suppress(ControllerLost, NotController, LeaderNotAvailable):
                await client.truncate(begin, deadline_s=10.0)
                self.seen["truncated"] += 1
        await client.close()

    def is_settled(self) -> bool:
        ends = {machine.replica.learned_end for machine in self.machines if machine.votes}
        return len(ends) == 1 and all(machine.votes for machine in self.machines)

    async def misfortune(self) -> None:
        """One thing that happens. Until all have what the others have, no second memory is lost: two copies of three
        may be too many. Who is wiped may be the one that a majority needs, while the third lags and the other is off.
        """
        machine = self.rng.choice(self.machines)
        what = self.rng.choice(MISFORTUNES)
        if what == "power" and any(one.is_wiped for one in self.machines):
            what = "kill"
        if what == "wipe" and (not self.acknowledged or any(one.is_wiped for one in self.machines)):
            what = "boot"  # a disk that is lost while a log is founded ends that
        self.seen[what] += 1
        await self._befall(machine, what)
        for one in self.machines:
            one.is_wiped = one.is_wiped and not (one.votes and self.is_settled())

    async def _befall(self, machine: LogMachine, what: str) -> None:
        match what:
            case "kill" | "power" if machine.has_life:
                await (machine.kill() if what == "kill" else machine.cut_power())
            case "pause":
                machine.pause()
            case "resume":
                machine.resume()
            case "cut":
                self.network.cut(machine.name, self.rng.choice(self.machines).name)
            case "heal":
                self.network.heal()
            case "wipe":
                await machine.wipe()
                await machine.boot()
            case "boot":
                await self.revive()

    async def revive(self) -> None:
        for machine in self.machines:
            machine.resume()
            if not machine.is_running:
                await machine.kill()
                await machine.boot()

    async def play(self) -> None:
        for machine in self.machines:
            await machine.initialise()
            await machine.boot()
        clients = [asyncio.create_task(self.write()), asyncio.create_task(self.truncate())]
        for _ in range(STEPS):
            await asyncio.sleep(self.rng.expovariate(1.0))
            await self.misfortune()
        self.network.heal()
        await self.revive()
        self.is_over = True
        await asyncio.gather(*clients)
        async with asyncio.timeout(self._quiet_s_max):
            while not self.is_settled():
                await asyncio.sleep(0.1)
        await self.check()
        for machine in self.machines:
            await machine.kill()

    async def check(self) -> None:
        client = self.client()
        begin = max(part.begin for part in (await client.extents()).values())
        await client.close()
        assert begin <= self.truncated
        logs = [await self.read(server, begin) for server in self.servers]
        assert logs[0] == logs[1] == logs[2]
        acknowledged = {position: content for position, content in self.acknowledged.items() if position >= begin}
        assert self.acknowledged and acknowledged.items() <= logs[0].items()
        contents = list(logs[0].values())
        assert len(contents) == len(set(contents)), "something is there twice"
        assert set(contents) - set(self.acknowledged.values()) <= self.unknown

    async def read(self, server: Address, begin: int) -> dict[int, bytes]:
        """The users' entries at one replica."""
        client = self.client()
        end = (await client.extents())[server].end
        found = [one async for one in client.read([server], begin, end)]
        assert [one.entry.position for one in found] == list(range(begin, end))
        await client.close()
        entries = {
            one.entry.position: split_entry(one.payload or b"")
            for one in found
            if one.entry.kind == "append" and not one.entry.is_void
        }
        return {position: content for position, content in entries.items() if isinstance(content, bytes)}


def tell(seed: int, quiet_s_max: float = QUIET_S_MAX) -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(owned_task)
        await Story(seed, quiet_s_max).play()

    run(main, seed)


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.slow][seed in QUICK :]) for seed in SEEDS])
def test_what_was_acknowledged_is_there_on_every_replica(seed: int) -> None:
    tell(seed)


@pytest.mark.slow
def test_a_wiped_disk_that_votes_under_its_old_id_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Mesos' `initialize` does to a member of a log: two replicas learn different values, and one stands still."""
    remembered = LogMember.membership

    def remembering_nothing(member: LogMember) -> Membership:
        membership = remembered(member)
        if member.voter_id or membership.is_known:
            return membership
        old = [voter.voter_id for voter in membership.voters.voters if voter.node_id == member.node_id]
        member.metadata = structs.replace(member.metadata, status=Status.VOTING, cluster_id=member.cluster_id)
        member.voter_id = old[0]
        return Membership(membership.voters)

    def by_node_alone(voters: VoterSet, node_id: int, incarnation: str) -> Voter | None:
        return next((voter for voter in voters.voters if voter.node_id == node_id), None)

    monkeypatch.setattr(LogMember, "membership", remembering_nothing)
    monkeypatch.setattr(VoterSet, "find", by_node_alone)
    with capture_logs(), pytest.raises((TimeoutError, AssertionError)):  # to print every traceback takes minutes
        tell(SEED_WITH_AMNESIA, quiet_s_max=10)
