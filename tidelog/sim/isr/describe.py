"""Text of a run for traces: one line per step, with the controller's entry and each broker's role."""

from __future__ import annotations

from tidelog.sim.isr.process import Process
from tidelog.sim.isr.repairing import Repairing


def state_text(world: Repairing) -> str:
    """Returns the controller's entry for the partition and the state of each running broker in one line."""
    now = world.controller.now
    sets = f"leader {now.leader} of epoch {now.leader_epoch}, {now.partition_epoch}: isr {_nodes(now.isr)}"
    if now.elr:
        sets += f" elr {_nodes(now.elr)}"
    if now.replicas != tuple(sorted(now.replicas)) or now.adding or now.removing:
        sets += f" replicas {_nodes(now.replicas)} +{_nodes(now.adding)} -{_nodes(now.removing)}"
    brokers = "; ".join(_process_text(process) for process in world.running())
    return f"{sets}, {len(world.truth.committed)} committed | {brokers}"


def _process_text(process: Process) -> str:
    core, disk = process.core, process.disk
    role = "leads" if process.leading is not None else "follows" if process.following is not None else "has no role"
    high_watermark = process.high_watermark if core is None else core.high_watermark
    epoch = "" if core is None else f" {core.leader_epoch}"
    flags = (" truncating" if process.truncating is not None else "") + (" offline" if disk.is_offline else "")
    return f"{process.node} {role}{epoch}, {disk.start}..{high_watermark}..{disk.kept}..{len(disk.log)}{flags}"


def _nodes(nodes: tuple[int, ...]) -> str:
    return ",".join(map(str, nodes)) or "none"
