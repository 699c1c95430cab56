"""Observes the replicas: passes what logs, leaders and followers of the shipped code do to the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
from tidelog.sim.kit.patching import patched
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

    @contextmanager
    def open(self) -> Iterator[None]:
        """Installs the hooks while the context is open."""
        with ExitStack() as stack:
            for owner, name, replacement in (
                (LogOpener, "open_log", self._open_log),
                (Appender, "append", self._append),
                (Appender, "append_lost", self._append_lost),
                (Truncator, "truncate_to", self._truncate("truncate_to")),
                (Truncator, "start_over", self._truncate("start_over")),
                (Partition, "__init__", self._lead),
                (Partition, "_execute", self._commit),
                (Partition, "request_deletion", self._request_deletion),
                (Follower, "_execute", self._follow),
                (Mender, "repair", self._repair),
                (Repairer, "put_back", self._put_back),
                (Machine, "_end", self._end),
                (Machine, "stop", self._stop),
                (Machine, "replace_disk", self._replace_disk),
            ):
                stack.enter_context(patched(owner, name, replacement(getattr(owner, name))))
            yield

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

    def _append(self, original: Any) -> Any:
        def append(appender: Appender, batches: Any, *args: Any, **kwargs: Any) -> Any:
            outcome = original(appender, batches, *args, **kwargs)
            if (shadow := self._shadows.get(appender._state)) is not None:
                self._ledger.appends(shadow, [held(batch) for batch in batches])
            return outcome

        return append

    def _append_lost(self, original: Any) -> Any:
        def append_lost(appender: Appender, start: int, end: int, *args: Any, **kwargs: Any) -> None:
            original(appender, start, end, *args, **kwargs)
            if (shadow := self._shadows.get(appender._state)) is not None:
                self._ledger.goes_on(shadow.partition_id, range(start, end))

        return append_lost

    def _truncate(self, name: str) -> Any:
        def wrap(original: Any) -> Any:
            def truncate(truncator: Truncator, *args: Any, **kwargs: Any) -> Any:
                outcome = original(truncator, *args, **kwargs)
                if (shadow := self._shadows.get(truncator._state)) is not None:
                    dropped = [*shadow.batches.values()] if name == "start_over" else []
                    if name == "start_over":
                        shadow.batches, shadow.agreed = {}, 0
                        self._world.truth.saw("follower starts over")
                    self._ledger.truncates(shadow, dropped or shadow.truncated())
                return outcome

            return truncate

        return wrap

    # -- roles -------------------------------------------------------------------------------------------------------

    def _lead(self, original: Any) -> Any:
        def init(partition: Partition, *args: Any, **kwargs: Any) -> None:
            original(partition, *args, **kwargs)
            node = int(partition._node_id)
            life = self._world.machine(node).lives
            protocol = partition._protocol
            said = Committed(partition.leader_epoch, protocol.high_watermark, len(protocol.in_sync))
            self._ledger.leads(_id(partition), node, life, said)

        return init

    def _commit(self, original: Any) -> Any:
        def execute(partition: Partition, effects: Any) -> None:
            node, protocol = int(partition._node_id), partition._protocol
            if self._ledger.is_running(node):  # a paused process that dies still turns over what was ready in it
                said = Committed(partition.leader_epoch, protocol.high_watermark, len(protocol.in_sync))
                self._ledger.commits(_id(partition), node, said)
            original(partition, effects)

        return execute

    def _request_deletion(self, original: Any) -> Any:
        def request_deletion(partition: Partition, offset: int) -> None:
            self._ledger.deletes(_id(partition), offset)
            original(partition, offset)

        return request_deletion

    def _follow(self, original: Any) -> Any:
        def execute(follower: Follower, effects: Any) -> None:
            original(follower, effects)
            shadow = self._shadows.get(follower.log)
            if shadow is not None and self._ledger.is_running(shadow.node):
                self._ledger.follows(follower.partition_id, shadow.node, follower.high_watermark)

        return execute

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

    def _end(self, original: Any) -> Any:
        async def end(machine: Machine, disk_ends: Any, host_ends: Any) -> Any:
            if machine.has_life:
                is_power_cut = disk_ends is SimDisk.crash
                self._ledger.ended(self._nodes[machine.name], is_power_cut=is_power_cut)
            return await original(machine, disk_ends, host_ends)

        return end

    def _stop(self, original: Any) -> Any:
        async def stop(machine: Machine) -> None:
            await original(machine)
            self._ledger.ended(self._nodes[machine.name], is_power_cut=False, is_clean=True)

        return stop

    def _replace_disk(self, original: Any) -> Any:
        def replace_disk(machine: Machine) -> None:
            original(machine)
            self._ledger.wiped(self._nodes[machine.name])

        return replace_disk


def _id(partition: Partition) -> PartitionId:
    return PartitionId(partition.topic_id, partition.partition)
