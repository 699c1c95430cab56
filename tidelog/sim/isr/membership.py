"""The processes and disks of a run, and the controller's knowledge of them.

It plays the part of `Registration`, the shipped asyncio code that registers a broker and sends its heartbeats.
"""

from __future__ import annotations

from tidelog.controller.commands import BrokerAdmitted, BrokerHeartbeat, Command, FenceBroker
from tidelog.model.cluster import ClusterImage
from tidelog.model.errors import StaleBrokerEpoch, TidelogError
from tidelog.sim.isr.controller import SimController, first_heartbeat, registration
from tidelog.sim.isr.dice import Dice
from tidelog.sim.isr.disk import Disk
from tidelog.sim.isr.parts import Parts
from tidelog.sim.isr.process import Process
from tidelog.sim.isr.scenario import Topic
from tidelog.sim.isr.truth import Truth
from tidelog.sim.isr.wire import CONTROLLER, Wire


class Membership:
    """The processes and disks of one run. Nodes are 1 and up; each has one newest process, and earlier processes and
    disks stay."""

    def __init__(self, topic: Topic, parts: Parts) -> None:
        self.topic = topic
        self.parts = parts
        self.wire = Wire()
        self.disks: dict[str, Disk] = {}
        self.processes: dict[str, Process] = {}
        self.truth = Truth(self.disks, self.processes)
        self.controller = SimController(self._decided)
        self.current: dict[int, Process] = {}
        """The newest process of each node."""
        self.now_ms = 0
        for node in range(1, topic.brokers + 1):
            self._found_broker(node)

    def _found_broker(self, node: int) -> None:
        process = self.new_process(node, self.new_disk(node))
        self.controller.submit(registration(node, process.incarnation, process.disk.storage, -1, -1))
        process.broker_epoch = self.controller.broker(node).epoch
        self.controller.submit(first_heartbeat(self.controller.image, node))

    def new_disk(self, node: int) -> Disk:
        storage = f"disk {node}.{len(self.disks)}"
        return self.disks.setdefault(storage, self.parts.disk(storage))

    def new_process(self, node: int, disk: Disk) -> Process:
        incarnation = f"process {node}.{len(self.processes)}"
        disk.open()
        process = self.current[node] = self.processes[incarnation] = Process(node, incarnation, disk)
        return process

    def _decided(self, command: Command, before: ClusterImage, after: ClusterImage) -> None:
        self.truth.decided(command, before, after, self.controller.min_isr(after) if after.topics else 0)

    @property
    def newest(self) -> int:
        """Number of the controller's newest image."""
        return len(self.controller.history) - 1

    def running(self) -> list[Process]:
        """Returns all running processes, earlier ones of a node included."""
        return [process for process in self.processes.values() if process.is_running]

    def registered(self, node: int) -> Process | None:
        """Returns the running process that the controller knows under this node id; None if that process has ended."""
        process = self.processes.get(self.controller.broker(node).incarnation)
        return process if process is not None and process.is_running else None

    def register(self, process: Process) -> None:
        """Sends the registration of a process; it may arrive again when it is long out of date. (The step in which a
        process first learns which registration it replaces is left out.)"""
        disk, newest = process.disk, self.controller.broker(process.node).epoch
        command = registration(process.node, process.incarnation, disk.storage, process.clean_epoch, newest)

        def arrive(_: Dice) -> None:
            try:
                answer = self.controller.submit(command)
            except TidelogError:
                return
            if isinstance(answer, BrokerAdmitted):
                epoch = answer.broker_epoch
                self.wire.send(CONTROLLER, process.node, lambda _: self._admitted(process, epoch))

        self.wire.send(process.node, CONTROLLER, arrive)

    @staticmethod
    def _admitted(process: Process, broker_epoch: int) -> None:
        process.broker_epoch = max(process.broker_epoch, broker_epoch)

    def heartbeat(self, process: Process) -> None:
        """Sends a heartbeat, or the registration if the process has none."""
        if process.broker_epoch < 0:
            self.register(process)
            return
        position = self.controller.history[process.applied_image].position if process.applied_image >= 0 else 0
        command = BrokerHeartbeat(process.node, process.broker_epoch, position)

        def arrive(_: Dice) -> None:
            try:
                self.controller.submit(command)
            except StaleBrokerEpoch:
                self.wire.send(CONTROLLER, process.node, lambda _: self._deposed(process, command.broker_epoch))
            except TidelogError:
                return

        self.wire.send(process.node, CONTROLLER, arrive)

    def _deposed(self, process: Process, broker_epoch: int) -> None:
        """Registers again, if another process has registered under this node id."""
        if process.is_running and process.broker_epoch == broker_epoch:
            self.register(process)

    def fence(self, node: int) -> None:
        """Ends a node's session at the controller."""
        self.controller.submit(FenceBroker(node, self.controller.broker(node).epoch))

    def end(self, process: Process) -> None:
        """Ends a process; of its high watermark only the checkpoint on the disk stays."""
        process.is_running = False
        process.core = process.settling = process.truncating = None
        process.attempts.clear()
