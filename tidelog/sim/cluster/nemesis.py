"""The faults of one run (`Nemesis`): each kind, from its beginning to its end.

A fault is a coroutine: it does its damage, waits, and undoes what can be undone. Several are under way at a time; each
works whether the machine it hits is up, down, or starting. Kinds whose name is not enough:

| kind | what happens |
|---|---|
| die at an operation | the power fails in the midst of one of the next operations on the disk |
| leader ..., last one leaves, lame follower, controller ... | the broker with that role is looked up: `RoleStrikes` |
| split | the named nodes are cut off from the others, both ways |
| cut one way | what the first sends to the second does not arrive |
| bridge | two halves, and one node that sees both |
| rival majorities | each node sees two others, its neighbours in a circle |
| deafen | nothing reaches a node (or nothing leaves it), while all else works |
| flap | the links of a node are cut and healed, again and again |
| lose answers | a node does what it is asked, and its answers are lost with their connections |
| crash loop | a broker dies whenever it is up |
| pauses in turn | some nodes, and others when these go on |
| relay | pause, lose and resume three groups so that those who remember least meet (`ProcessStrikes`) |
| full disks | of all |
| swizzle | nodes are clogged one by one, and freed in another order (FoundationDB) |
| repeat frames | requests arrive again, later, on any connection of the same caller |
| rot | a bit of the metadata turns over while the machine is down |
| rot of a replica, rot of all copies | bits of committed batches turn over: `DataRot` |
| rot of a journal | bits of what a Paxos replica has accepted and promised: `JournalRot` |
| wipe | the disk is replaced by an empty one |
| tail of ... | all die at an acknowledgement, and the end of a log is damaged: `TailStrikes` |
| director..., old data directory | all die; one starts without what its disk had, or with less: `DirectoryStrikes` |
| metadata ... | all die, and start without what the disks of some knew of the cluster: `MetadataStrikes` |
| all logs and no journal, all journals and no log | a batch is bad in all copies of one kind: `ApartStrikes` |
| journal ... | all die; a journal has lost its end, or all of it, and the log beside it stays: `ApartStrikes` |
| pattern of ... | any copies but one of each of the last entries of a log are damaged: `SweepStrikes` |
| late copy | a batch is given up while the only broker that has it whole is away: `LossStrikes` |
| unreadable ... | sectors that held something give EIO: `ReadStrikes` |
| hung ... | a broker or its disk hangs, and the time without a commit is checked: `HungStrikes` |
| lose writes | writes of some positions of Paxos partitions do not arrive, and those behind them do: `HoleStrikes` |
| forged by ... | messages arrive that no correct broker has sent: `ForgedStrikes` |
| restore | a disk comes back as it was some time ago; of brokers without data that never voted: docs/testing.md |
"""

from __future__ import annotations

from typing import Protocol

from tidelog.sim.cluster.apart_strikes import ApartStrikes
from tidelog.sim.cluster.data_rot import DataRot
from tidelog.sim.cluster.directory_strikes import DirectoryStrikes
from tidelog.sim.cluster.disk_strikes import DiskStrikes
from tidelog.sim.cluster.forged_strikes import ForgedStrikes
from tidelog.sim.cluster.hole_strikes import HoleStrikes
from tidelog.sim.cluster.hung_strikes import HungStrikes
from tidelog.sim.cluster.journal_rot import JournalRot
from tidelog.sim.cluster.ledger import Ledger
from tidelog.sim.cluster.loss_strikes import LossStrikes
from tidelog.sim.cluster.metadata_strikes import MetadataStrikes
from tidelog.sim.cluster.network_strikes import NetworkStrikes
from tidelog.sim.cluster.process_strikes import ProcessStrikes
from tidelog.sim.cluster.read_strikes import ReadStrikes
from tidelog.sim.cluster.role_strikes import RoleStrikes
from tidelog.sim.cluster.scenario import Effects, Strike
from tidelog.sim.cluster.sweep_strikes import SweepStrikes
from tidelog.sim.cluster.tail_strikes import TailStrikes
from tidelog.sim.cluster.world import World
from tidelog.sim.kit.seeds import stream


class Part(Protocol):
    """Class that carries out a group of faults, such as those of disks."""

    def effects(self) -> Effects: ...


class Nemesis:
    """Carries out the faults of one run."""

    def __init__(self, seed: int, world: World, ledger: Ledger) -> None:
        self._seed = seed
        self._world = world
        self._effects: Effects = {}
        processes = ProcessStrikes(world)
        parts: tuple[Part, ...] = (processes, NetworkStrikes(world), DiskStrikes(world), RoleStrikes(world))
        data_rot = DataRot(world, ledger)
        tails = TailStrikes(world, ledger, data_rot)
        parts += data_rot, JournalRot(world, ledger, data_rot), tails, SweepStrikes(world, ledger, data_rot, tails)
        parts += DirectoryStrikes(world, ledger, data_rot, processes), MetadataStrikes(world, ledger)
        parts += ApartStrikes(world, ledger, data_rot), ReadStrikes(world, ledger, data_rot), LossStrikes(world, ledger)
        parts += HungStrikes(world, ledger), ForgedStrikes(world), HoleStrikes(world)
        for part in parts:
            self._effects |= part.effects()

    async def strike(self, strike: Strike) -> None:
        """Carries out a fault, and returns when it is over."""
        rng = stream(self._seed, f"strike {strike}")
        self._world.truth.note("strike", strike.kind, *strike.nodes)
        self._world.truth.saw(f"fault: {strike.kind}")
        await self._effects[strike.kind](strike, rng)
        self._world.truth.note("over", strike.kind, *strike.nodes)
