"""Damage in a simulated run: batches rot, brokers ask each other for copies, and new leaders settle what was committed.

It plays the part of the shipped shells (`Copies`, `Repairer`, `Settler`: the asyncio code around the pure core),
reduced to what the core can see. A copy is right if it is the same batch, as its digest would tell. A process may ask
repeatedly, so answers may be long out of date.
"""

from __future__ import annotations

from tidelog.model.holdings import Holding
from tidelog.replication.isr.settlement import Answered, PutBack, Repaired, Settlement, TruncateAt, TruncatedAt
from tidelog.sim.isr.controller import partition_of
from tidelog.sim.isr.dice import Dice
from tidelog.sim.isr.disk import Disk, Entry
from tidelog.sim.isr.process import Process
from tidelog.sim.isr.replication import Replication

NO_EPOCH = -1


class Repairing(Replication):
    """A simulated partition whose disks are damaged and repaired."""

    def ask_for_copies(self, process: Process, dice: Dice) -> None:
        """Asks another replica that the process knows of for a copy of a damaged batch."""
        damaged = process.settling.open if process.settling is not None else [*process.disk.faulty]
        if not damaged or process.role_epoch == NO_EPOCH:
            return
        image = self.controller.history[process.applied_image]
        others = [node for node in partition_of(image).replicas if node != process.node and node in image.brokers]
        if others:
            replica = self.processes[image.brokers[dice.pick(others)].incarnation]
            self.ask_for_copy(process, replica, dice.pick(damaged))

    def ask_for_copy(self, process: Process, replica: Process, offset: int) -> None:
        """Asks another replica for its copy of the batch at an offset. The request names the batch, so that a copy can
        be checked against it."""
        if offset >= len(process.disk.log):
            return
        entry, role_epoch = process.disk.log[offset], process.role_epoch

        def arrive(_: Dice) -> None:
            if not replica.is_running:
                return
            is_known = replica.role_epoch != NO_EPOCH and replica.truncating is None
            holding = holding_of(replica.disk, offset, entry) if is_known else Holding.UNKNOWN
            high_watermark = replica.high_watermark_now if is_known else 0
            answer = Answered(replica.node, replica.broker_epoch, replica.role_epoch, high_watermark, offset, holding)
            self.wire.send(
                replica.node, process.node, lambda _: self._copy_answered(process, role_epoch, entry, answer)
            )

        self.wire.send(process.node, replica.node, arrive)

    def _copy_answered(self, process: Process, role_epoch: int, entry: Entry, answer: Answered) -> None:
        is_same = process.disk.log[answer.offset : answer.offset + 1] == [entry]
        if not process.is_running or process.role_epoch != role_epoch or not is_same:
            return
        if process.settling is not None:
            self._settle(process, process.settling, answer)
        elif answer.holding is Holding.HAVE:
            self._put_back(process, answer.offset)

    def _settle(self, process: Process, core: Settlement, answer: Answered) -> None:
        committed_end, is_others = core.committed_end, answer.node not in process.member_disks
        effects = core.step(answer)
        is_later = is_others and core.committed_end > committed_end
        self.truth.saw("a leader begins behind what another knows to be committed", is_later)
        for effect in effects:
            match effect:
                case PutBack(offset):
                    self._put_back(process, offset)
                    core.step(Repaired(offset))
                case TruncateAt(offset):
                    self.truth.saw("a damaged end is truncated")
                    self.truth.judge_cut(process, process.role_epoch, offset)
                    process.disk.truncate(offset)
                    core.step(TruncatedAt(offset))
        self.lead_if_settled(process)

    def _put_back(self, process: Process, offset: int) -> None:
        self.truth.saw("a damaged batch is repaired", offset in process.disk.faulty)
        process.disk.repair(offset)

    # -- the fault atlas -----------------------------------------------------------------------------------------------

    def rot(self, disk: Disk, offset: int) -> None:
        """Damages a batch on one disk, if another disk of the ISR or ELR has it undamaged: a test that damages the last
        good copy cannot demand that the batch be there."""
        others = [peer for peer in self.counted_on() if peer is not disk]
        if any(holding_of(peer, offset, disk.log[offset]) is Holding.HAVE for peer in others) or (
            others and not any(peer.faulty for peer in others) and offset >= len(self.truth.committed)
        ):
            self.truth.saw("a batch rots, and was committed", offset < len(self.truth.committed))
            self.truth.saw("a batch rots, and was not committed", offset >= len(self.truth.committed))
            disk.faulty[offset] = None

    def rot_alike(self, offset: int, *, spares_one: bool, dice: Dice) -> list[Disk]:
        """Damages the committed batch at an offset on every disk that has it undamaged, but for one drawn disk if
        `spares_one`; returns the damaged disks. If no disk is spared, that batch is lost, and no other batch may be."""
        entry = self.truth.committed[offset]
        holders = [disk for disk in self._replicas() if holding_of(disk, offset, entry) is Holding.HAVE]
        spared = dice.pick(holders) if holders and spares_one else None
        damaged = [disk for disk in holders if disk is not spared]
        for disk in damaged:
            disk.faulty[offset] = None
        self.truth.saw("a batch rots on several disks", len(damaged) > 1)
        return damaged

    def _replicas(self) -> list[Disk]:
        image = self.controller.image
        return [self.disks[image.brokers[node].storage] for node in self.controller.now.replicas]

    def counted_on(self) -> list[Disk]:
        """Returns the disks of the members of ISR and ELR."""
        image = self.controller.image
        now = self.controller.now
        return [self.disks[image.brokers[node].storage] for node in (*now.isr, *now.elr)]

    def is_anything_gone(self) -> bool:
        """Returns True if there is a damaged batch of which no replica has an undamaged copy."""
        disks = self._replicas()
        return any(
            not any(holding_of(holder, offset, disk.log[offset]) is Holding.HAVE for holder in disks)
            for disk in disks
            for offset in disk.faulty
        )


def holding_of(disk: Disk, offset: int, entry: Entry) -> Holding:
    """Returns what a disk holds of an entry, as `storage.copies.find_copy` does: the entry, damaged or not, deleted,
    another entry, or nothing."""
    if offset < disk.start:
        return Holding.DELETED
    if offset >= len(disk.log):
        return Holding.DONT_HAVE
    if disk.log[offset] == entry:
        return Holding.HAVE_FAULTY if offset in disk.faulty else Holding.HAVE
    return Holding.UNKNOWN if disk.log[offset][0] == entry[0] else Holding.DONT_HAVE
