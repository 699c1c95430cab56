"""Observes the replicas: passes what logs, leaders and followers of the shipped code do to the ledger."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from tidelog.broker.isr.follower import Follower
from tidelog.broker.isr.partition import Partition
from tidelog.broker.repair.repairer import Repairer
from tidelog.model.batch_header import iter_batches
from tidelog.model.ids import PartitionId
from tidelog.sim.cluster.book import Committed
from tidelog.sim.cluster.ledger import Ledger
from tidelog.sim.cluster.shadows import Shadow, held
from tidelog.sim.cluster.world import World
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.machine import Machine
from tidelog.sim.kit.patching import after, before, hooked
from tidelog.sim.kit.process import OWNER
from tidelog.storage.appender import Appender
from tidelog.storage.log_opener import LogOpener
from tidelog.storage.log_state import LogState
from tidelog.storage.mender import Mender
from tidelog.storage.repair import Repair
from tidelog.storage.truncator import Truncator


class ReplicaWatch:
    """Hooks into the replicas of one run."""

    def __init__(self, world: World, ledger: Ledger) -> None:
        self._world = world
        self._ledger = ledger
        self._nodes = {keeper.machine.name: node for node, keeper in world.keepers.items()}
        self._shadows: dict[LogState, Shadow] = {}
        ledger.process_of = self._process_of
        ledger.is_running = lambda node: world.machine(node).is_running

    def open(self) -> AbstractContextManager[None]:
        """Installs the hooks while the context is open."""
        return hooked(
            (LogOpener, "open_log", self._open_log),
            (Appender, "append", after(self._appended)),
            (Appender, "append_lost", after(self._appended_lost)),
            (Truncator, "truncate_to", after(self._truncated)),
            (Truncator, "start_over", after(self._started_over)),
            (Partition, "__init__", after(self._leads)),
            (Partition, "_execute", before(self._commits)),
            (Partition, "request_deletion", before(self._deletes)),
            (Follower, "_execute", after(self._followed)),
            (Mender, "repair", self._repair),
            (Repairer, "put_back", self._put_back),
            (Machine, "_end", before(self._ends)),
            (Machine, "stop", self._stop),
            (Machine, "replace_disk", after(self._replaced_disk)),
        )

    def _process_of(self, node: int) -> str:
        broker = self._world.machine(node).broker
        return "" if broker is None else broker._introduction.hello.incarnation

    # -- logs --------------------------------------------------------------------------------------------------------

    def _open_log(self, original: Any) -> Any:
        def open_log(manager: LogOpener, partition_id: PartitionId, *args: Any, **kwargs: Any) -> Any:
            log, report = original(manager, partition_id, *args, **kwargs)
            owner = OWNER.get()
            if partition_id in self._ledger.books and owner is not None:
                shadow = self._shadows[log] = self._ledger.shadow(self._nodes[owner.name], partition_id)
                shadow.opened(log)
                self._ledger.finds(shadow)
            return log, report

        return open_log

    def _appended(self, appender: Appender, batches: Any, *_: Any, **__: Any) -> None:
        if (shadow := self._shadows.get(appender._state)) is not None:
            self._ledger.appends(shadow, [held(batch) for batch in batches])

    def _appended_lost(self, appender: Appender, start: int, end: int, *_: Any, **__: Any) -> None:
        if (shadow := self._shadows.get(appender._state)) is not None:
            self._ledger.goes_on(shadow.partition_id, range(start, end))

    def _truncated(self, truncator: Truncator, *_: Any, **__: Any) -> None:
        if (shadow := self._shadows.get(truncator._state)) is not None:
            self._ledger.truncates(shadow, shadow.truncated())

    def _started_over(self, truncator: Truncator, *_: Any, **__: Any) -> None:
        if (shadow := self._shadows.get(truncator._state)) is not None:
            dropped = [*shadow.batches.values()]
            shadow.batches, shadow.agreed = {}, 0
            self._world.truth.saw("follower starts over")
            self._ledger.truncates(shadow, dropped)

    # -- roles -------------------------------------------------------------------------------------------------------

    def _leads(self, partition: Partition, *_: Any, **__: Any) -> None:
        node = int(partition._node_id)
        self._ledger.leads(_id(partition), node, self._world.machine(node).lives, _said(partition))

    def _commits(self, partition: Partition, effects: Any) -> None:
        node = int(partition._node_id)
        if self._ledger.is_running(node):  # a paused process that dies still turns over what was ready in it
            self._ledger.commits(_id(partition), node, _said(partition))

    def _deletes(self, partition: Partition, offset: int) -> None:
        self._ledger.deletes(_id(partition), offset)

    def _followed(self, follower: Follower, effects: Any) -> None:
        shadow = self._shadows.get(follower.log)
        if shadow is not None and self._ledger.is_running(shadow.node):
            self._ledger.follows(follower.partition_id, shadow.node, follower.high_watermark)

    def _repair(self, original: Any) -> Any:
        """Notes a repaired batch as soon as it is in its place, since a leader may commit more because of it."""

        def repair(mender: Mender, data: Any, *args: Any, **kwargs: Any) -> Repair:
            verdict: Repair = original(mender, data, *args, **kwargs)
            shadow = self._shadows.get(mender._state)
            if verdict is Repair.DONE and shadow is not None and shadow.log is mender._state:
                shadow.repaired([held(batch) for batch in iter_batches(data)])
            return verdict

        return repair

    def _put_back(self, original: Any) -> Any:
        async def put_back(*args: Any, **kwargs: Any) -> bool:
            is_repaired: bool = await original(*args, **kwargs)
            self._world.truth.saw("batch repaired from a peer", is_repaired)
            return is_repaired

        return put_back

    # -- machines ----------------------------------------------------------------------------------------------------

    def _ends(self, machine: Machine, disk_ends: Any, host_ends: Any) -> None:
        if machine.has_life:
            self._ledger.ended(self._nodes[machine.name], is_power_cut=disk_ends is SimDisk.crash)

    def _stop(self, original: Any) -> Any:
        async def stop(machine: Machine) -> None:
            await original(machine)
            self._ledger.ended(self._nodes[machine.name], is_power_cut=False, is_clean=True)

        return stop

    def _replaced_disk(self, machine: Machine) -> None:
        self._ledger.wiped(self._nodes[machine.name])


def _said(partition: Partition) -> Committed:
    protocol = partition._protocol
    return Committed(partition.leader_epoch, protocol.high_watermark, len(protocol.in_sync))


def _id(partition: Partition) -> PartitionId:
    return PartitionId(partition.topic_id, partition.partition)
