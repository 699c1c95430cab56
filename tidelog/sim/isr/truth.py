"""The truth of a run as seen from outside, and the rules that are checked at every change.

The truth is one list: everything that any leader ever called committed, which is what producers were acknowledged and
readers given. It grows, and changes only by a recorded *unclean election*, of a replica that was neither in the ISR nor
in the ELR: then it is what that leader knows of it, from its first moment on. A later leader may have heard of more, in
the time before that election; such *hearsay* is shown to readers, and may be lost until more is committed on it.

- *Committed is for ever*: whoever commits, or follows a high watermark, has at each offset what others had there.
- *Candidates are complete*: every member of the controller's ISR and ELR holds all that is committed, in what it has
  acknowledged. So each later leader does, and what was acknowledged outlives every election.
- *A torn copy is none*: what a member's power cut took before it was durable does not count for a commit, unless all
  have lost it. A settlement counts no copies: it calls committed what nobody can rule out, and all that lies before.
- *The maximal set is large enough*: it contains the controller's ISR; and the ELR, if enough are in sync.
- *Logs match*: batches of one epoch at one offset have one past.
- *Nobody truncates what is committed*, unless nobody counts with it.
- *Entries are sound*: one leader an epoch, epochs only rise, fenced brokers are not in sync, nobody is in both sets, no
  ELR while enough are in sync, a compare-and-set saw the entry before it, an unclean restart leaves the sets.
- *Nothing is invented, nothing is there twice, and what was refused is never seen.*
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tidelog.controller.commands import Command, RegisterBroker
from tidelog.controller.partition_commands import AlterPartition
from tidelog.model.cluster import NO_LEADER, ClusterImage, PartitionInfo
from tidelog.replication.isr.follower import IsrFollower
from tidelog.replication.isr.leader import IsrLeader
from tidelog.sim.isr.controller import TOPIC, partition_of
from tidelog.sim.isr.disk import Disk, Entry, lineage_of
from tidelog.sim.isr.process import Process


class Violation(AssertionError):
    """An invariant does not hold; the text begins with its name."""


class Truth:
    """The committed batches of one run, and the rules. `disks` (by storage id) and `processes` (by incarnation) are
    those of the simulated partition."""

    def __init__(self, disks: dict[str, Disk], processes: dict[str, Process]) -> None:
        self.committed: list[Entry] = []
        self.counters: Counter[str] = Counter()
        self.offered: dict[int, bool] = {}
        """Values that clients have sent; False for those that were refused."""
        self._deleted = 0
        """Offset below which a leader has deleted the records for good."""
        self._disks = disks
        self._processes = processes
        self._image = ClusterImage("")
        self._leaders: dict[int, int] = {}
        self._unclean_epoch = -1
        """The leader epoch of the newest unclean election."""
        self._proved: int | None = None
        """End offset of the entries that are surely committed. Those behind it a later leader took for committed, from
        the time before the unclean election: another leader may lack them. None if there are no such entries."""
        self._is_unclean_pending = False
        """True from an unclean election until the elected leader begins to lead."""

    def saw(self, name: str, is_seen: bool = True) -> None:
        """Counts an event that some runs of a batch have to reach."""
        if is_seen:
            self.counters[name] += 1

    def require(self, name: str, holds: bool, *what: object) -> None:
        if not holds:
            raise Violation(f"{name}: {', '.join(map(str, what))}")

    # -- the controller ----------------------------------------------------------------------------------------------

    def decided(self, command: Command, before: ClusterImage, after: ClusterImage, min_isr: int) -> None:
        """Checks a decision of the controller by its images before and after it: epochs, ISR and ELR, registrations and
        elections."""
        self._image = after
        if TOPIC not in before.topics:
            return
        was, now = partition_of(before), partition_of(after)
        self._judge_epochs(was, now)
        self._judge_sets(after, now, min_isr)
        if isinstance(command, AlterPartition) and now != was:
            self.require("compare and set", command.partitions[0].partition_epoch == was.partition_epoch, was, now)
        if isinstance(command, RegisterBroker):
            self._judge_registration(command, before, after)
        if now.leader not in (was.leader, NO_LEADER):
            self._elected(was, now)
        self.judge_candidates()

    def _judge_epochs(self, was: PartitionInfo, now: PartitionInfo) -> None:
        rises = now.partition_epoch == was.partition_epoch + (now != was)
        self.require("entries are sound", rises and was.leader_epoch <= now.leader_epoch, was, now)
        if now.leader != NO_LEADER:
            leader = self._leaders.setdefault(now.leader_epoch, now.leader)
            self.require("one leader an epoch", leader == now.leader, was, now)

    def _judge_sets(self, image: ClusterImage, now: PartitionInfo, min_isr: int) -> None:
        members = (*now.isr, *now.elr)
        is_placed = len(set(members)) == len(members) and all(node in now.replicas for node in members)
        self.require("entries are sound", is_placed and all(image.is_live(node) for node in now.isr), now)
        self.require("entries are sound", (now.leader in now.isr) == bool(now.isr), now)
        self.require("entries are sound", not now.elr or len(now.isr) < min_isr, "an ELR, and enough in sync", now)

    def _judge_registration(self, command: RegisterBroker, before: ClusterImage, after: ClusterImage) -> None:
        now, old = partition_of(after), next((b for b in before.brokers.values() if b.node_id == command.node_id), None)
        is_other_disk = old is None or old.storage != command.storage
        is_unclean = old is not None and command.clean_epoch != old.epoch and not _is_fsynced(before, old.epoch)
        if is_other_disk or is_unclean:
            self.saw("an unclean restart is noticed", is_unclean and command.node_id in partition_of(before).isr)
            is_out = command.node_id not in (*now.isr, *now.elr)
            self.require("an unclean restart leaves the sets", is_out, command, now)

    def _elected(self, was: PartitionInfo, now: PartitionInfo) -> None:
        self.saw("another leads")
        self.saw("the ELR elects", now.leader in was.elr)
        if now.leader not in (*was.isr, *was.elr):
            self.saw("an unclean election")
            self._unclean_epoch, self._is_unclean_pending = now.leader_epoch, True

    # -- leaders -----------------------------------------------------------------------------------------------------

    def took_office(self, process: Process, core: IsrLeader) -> None:
        self.saw("a leader takes office")
        log = process.disk.log
        if self._is_unclean_pending and core.leader_epoch >= self._unclean_epoch:
            self._is_unclean_pending = False
            del self.committed[max(core.high_watermark, process.disk.start) :]
            while self.committed != log[: len(self.committed)]:
                self.committed.pop()
            self._proved = None
            self._deleted = min(self._deleted, process.disk.start)
        if 0 <= self._unclean_epoch <= core.leader_epoch:
            self._take_hearsay(log, core.high_watermark)
        self.saw("a leader takes office with an old high watermark", core.high_watermark < len(self.committed))
        self.advanced(process, core, core.high_watermark, is_acknowledged=False)

    def _take_hearsay(self, log: list[Entry], high_watermark: int) -> None:
        if self._proved is not None:
            while len(self.committed) > self._proved and self.committed != log[: len(self.committed)]:
                self.committed.pop()
        if high_watermark > len(self.committed):
            self._proved = len(self.committed) if self._proved is None else self._proved
            self.committed.extend(log[len(self.committed) : high_watermark])

    @property
    def _proved_end(self) -> int:
        return len(self.committed) if self._proved is None else self._proved

    def advanced(self, process: Process, core: IsrLeader, to: int, *, is_acknowledged: bool = True) -> None:
        """Checks a leader that raises its high watermark to `to`: everything below is acknowledged by the members of
        the ISR, or, when the leader takes office, settled among them; and it agrees with what was committed before."""
        if not self._counts(process, core):
            return
        log, start = process.disk.log, process.disk.start
        common = min(to, len(self.committed))
        self.require(
            "committed is for ever",
            log[start:common] == self.committed[start:common],
            f"node {process.node} commits something else below {common}",
        )
        if to > len(self.committed):
            self.saw("a batch is committed")
            for epoch, value in log[len(self.committed) : to]:
                self.require("nothing is invented", self.offered.get(value, False), epoch, value)
            if is_acknowledged:
                self._judge_copies(process, len(self.committed), to)
            self.committed.extend(log[len(self.committed) : to])
            self._proved = None
            self.judge_candidates()

    def _judge_copies(self, leader: Process, start: int, end: int) -> None:
        """Checks that no committed batch is torn on a member's disk, unless all members have lost it. The leader's own
        disk is left out: which of its torn batches were committed was decided before its epoch began."""
        if self._is_unclean_pending:
            return
        now = partition_of(self._image)
        members = [self._image.brokers[node] for node in (*now.isr, *now.elr)]
        disks = [self._disks[member.storage] for member in members if _is_fsynced(self._image, member.epoch)]
        for offset in range(start, end):
            torn = [disk.storage for disk in disks if offset in disk.torn and disk is not leader.disk]
            is_lost = all(offset in disk.faulty for disk in disks)
            self.require("a torn copy is none", not torn or is_lost, f"{offset} is committed, and torn on {torn}")

    def _counts(self, process: Process, core: IsrLeader) -> bool:
        """Returns False for a leader whose high watermark is not checked: one of an epoch before the newest unclean
        election, or one that is alone in its ISR and whose disk was replaced while it ran. No protocol can know of the
        latter."""
        if core.leader_epoch < self._unclean_epoch:
            return False
        storage = next((b.storage for b in self._image.brokers.values() if b.node_id == process.node), "")
        return storage == process.disk.storage or core.in_sync != (process.node,)

    def judge_maximal(self, core: IsrLeader, min_isr: int) -> None:
        """Checks that a leader's maximal ISR contains the controller's ISR, and the ELR if enough are in sync."""
        now = partition_of(self._image)
        if core.leader_epoch != now.leader_epoch:
            return
        eligible = {*now.isr, *(now.elr if len(now.isr) >= min_isr else ())}
        holds = eligible <= {*core.maximal_isr}
        self.require("the maximal set is large enough", holds, f"{now.isr} is not within {core.maximal_isr}")

    def deleted(self, process: Process, core: IsrLeader) -> None:
        """Notes the low watermark of a leader when it answers the requests that waited for a deletion."""
        if self._counts(process, core) and core.low_watermark > self._deleted:
            self.saw("records are deleted for good", len(core.in_sync) > 1)
            self._deleted = core.low_watermark
            self.judge_candidates()

    def judge_candidates(self) -> None:
        """Checks that every member that may be elected holds everything committed, and nothing that was deleted."""
        if self._is_unclean_pending:
            return
        now, end = partition_of(self._image), self._proved_end
        for node in (*now.isr, *now.elr):
            broker = self._image.brokers[node]
            disk, process = self._disks[broker.storage], self._processes[broker.incarnation]
            is_fsynced = _is_fsynced(self._image, broker.epoch)
            if not is_fsynced and not process.is_running:
                continue  # it may have lost something, and when it comes back it says so
            has_all = disk.log[disk.start : end] == self.committed[disk.start : end]
            self.require("candidates are complete", has_all, f"node {node} may lead without all of {end}", now)
            is_gone = disk.start >= self._deleted
            self.require("what is deleted stays so", is_gone, f"node {node} has records below {self._deleted}", now)
            is_kept = not is_fsynced or disk.kept >= end
            self.require("candidates are complete", is_kept, f"node {node} has not on its disk what is committed", now)

    # -- followers ---------------------------------------------------------------------------------------------------

    def followed(self, process: Process, core: IsrFollower, to: int) -> None:
        """Checks a follower that shows its readers everything below `to`. After an unclean election a follower is only
        checked once its log has been found to be its leader's."""
        is_unclean = self._unclean_epoch >= 0 and not core.is_aligned
        if is_unclean or core.leader_epoch < self._unclean_epoch or self._is_unclean_pending:
            return
        start = process.disk.start
        if to <= start:
            return  # its log begins here: it shows nothing
        is_same = process.disk.log[start:to] == self.committed[start:to] and to <= len(self.committed)
        self.require("committed is for ever", is_same, f"node {process.node} shows something else below {to}")

    def judge_cut(self, process: Process, leader_epoch: int, to: int) -> None:
        """Checks that a process that truncates its log to `to` drops no committed entry. Allowed is that only to a
        process in neither ISR nor ELR that follows a leader of an earlier epoch."""
        self.saw("an uncommitted tail is truncated", to >= len(self.committed))
        now = partition_of(self._image)
        if self._is_unclean_pending or leader_epoch < self._unclean_epoch:
            return
        if leader_epoch == now.leader_epoch or process.node in (*now.isr, *now.elr):
            committed = self.committed[to : self._proved_end]
            lost = [entry for entry, chosen in zip(process.disk.log[to:], committed, strict=False) if entry == chosen]
            self.require(
                "nobody truncates what is committed", not lost, f"node {process.node} truncates {lost} from {to} on"
            )

    def judge_matching(self, disk: Disk) -> None:
        """Checks, after an append, that two logs which have a batch of the same epoch at one offset are the same before
        it. Only offsets that neither log has deleted are compared."""
        for peer in self._disks.values():
            for at in range(min(len(disk.log), len(peer.log)) - 1, -1, -1):
                if disk.log[at][0] == peer.log[at][0]:
                    start = max(disk.start, peer.start)
                    self.require(
                        "logs match",
                        disk.log[start : at + 1] == peer.log[start : at + 1],
                        f"disks {disk.storage} and {peer.storage} differ below {at}",
                    )
                    break

    def judge_lineage(self, disk: Disk, kept: Sequence[tuple[int, int]]) -> None:
        """Checks that the leader epochs which a core knows are those of its log."""
        rows = lineage_of(disk.log, disk.base)
        self.require("epochs are those of the log", tuple(kept) == rows[len(rows) - len(kept) :], kept, rows)

    def judge_end(self) -> None:
        values = [value for _, value in self.committed if value >= 0]  # else nobody knows any more what was there
        self.require("nothing is there twice", len(set(values)) == len(values), values)


def _is_fsynced(image: ClusterImage, broker_epoch: int) -> bool:
    """Returns True if everything that a broker acknowledged under this epoch is on its disk
    (`ack.durability=fsynced`)."""
    topic = image.topics[TOPIC]
    return topic.configs["ack.durability"] == "fsynced" and broker_epoch >= topic.volatile_before
