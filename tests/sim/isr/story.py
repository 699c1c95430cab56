"""A walk that is told by hand: who does what, step by step, in words that say what a history needs."""

from __future__ import annotations

from tidelog.sim.isr.dice import Dice
from tidelog.sim.isr.parts import Parts
from tidelog.sim.isr.process import Process
from tidelog.sim.isr.repairing import Repairing
from tidelog.sim.isr.scenario import Topic
from tidelog.sim.isr.world import LAG_MS_MAX


class Story(Repairing):
    """A world that is told what to do; node 1 leads at first."""

    def __init__(self, parts: Parts, *, replicas: int, is_fsynced: bool, min_isr: int = 2) -> None:
        super().__init__(Topic(replicas, replicas, min_isr, is_fsynced, is_unclean_allowed=False), parts)
        self.dice = Dice(0)

    def node(self, node: int) -> Process:
        return self.current[node]

    def deliver(self) -> None:
        while self.wire.deliver_oldest(self.dice):
            pass

    def fetch_all(self, *nodes: int, syncing: bool = True) -> None:
        """They fetch until they have all, and say so; of high watermarks they hear no more than they must."""
        for node in nodes:
            process = self.node(node)
            leader = self._leader_of(process)
            assert leader is not None
            while len(process.disk.log) < len(leader.disk.log):
                self.fetch(process)
                self.deliver()
            if syncing:
                self.sync(process, self.dice, is_all=True)
            self.fetch(process)
            self.wire.messages[-1:] = []  # what would tell the high watermark that the fetch before has moved
            self.deliver()

    def report(self, *nodes: int) -> None:
        """They ask for more, which tells how far they are; the answer is lost."""
        for node in nodes:
            self.fetch(self.node(node))
            self.wire.messages.pop().deliver(self.dice)
            self.wire.messages.clear()

    def commit(self, *nodes: int, syncing: bool = True) -> None:
        """A batch that these acknowledge to the leader, without being told that it is committed."""
        leader = next(process for process in self.running() if process.leading is not None)
        self.produce(leader)
        if syncing:
            self.sync(leader, self.dice, is_all=True)
        before = len(self.truth.committed)
        self.fetch_all(*nodes, syncing=syncing)
        self.report(*nodes)
        assert len(self.truth.committed) == before + 1

    def restart(self, node: int) -> Process:
        """In a new life, which the cluster counts on at once."""
        process = self.new_process(node, self.node(node).disk)
        self.register(process)
        self.deliver()
        self.learn_newest(node)
        self.heartbeat(process)
        self.deliver()
        self.learn_newest(node)
        return process

    def learn_newest(self, *nodes: int) -> None:
        for node in nodes:
            self.learn(self.node(node), self.newest)

    def lose_power(self, node: int) -> None:
        """And all that was not synced."""
        process = self.node(node)
        del process.disk.log[process.disk.kept :]
        self.end(process)

    def tear(self, node: int) -> None:
        """It loses its power: of what was not synced it has the rows, and no batches."""
        disk = self.node(node).disk
        for offset in range(disk.kept, len(disk.log)):
            disk.faulty[offset] = None
            disk.torn.add(offset)
        self.end(self.node(node))

    def kill_leader(self, leader: int) -> None:
        self.end(self.node(leader))
        self.fence(leader)

    def ask(self, process: Process, other: int) -> None:
        """For a copy of what is damaged first."""
        damaged = process.settling.open if process.settling is not None else [*process.disk.faulty]
        self.ask_for_copy(process, self.node(other), damaged[0])
        self.deliver()

    def settle_down(self) -> None:
        """Whoever runs learns, fetches and syncs, until nothing changes."""
        for _ in range(12):
            self.now_ms += LAG_MS_MAX // 6
            for process in self.running():
                self.heartbeat(process)
                self.learn(process, self.newest)
                self.sync(process, self.dice, is_all=True)
                self.fetch(process)
                self.tick(process)
            self.deliver()
