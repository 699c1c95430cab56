"""A history, interpreted: operations joined with their completions, and the facts that excuse anomalies.

The effects of a loss are applied here, so that no rule needs to know of losses: acknowledgements that only memory kept
become unknown outcomes, and reads of a partition that returned records which were not on disk yet are set aside. The
same goes for partitions whose copies were all destroyed. Acknowledgements with durability `none` promise nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from tidelog.checker.operations import Damage, Op, Poll, Prefix, Send, Unread, View

NEVER = 1 << 62
CLIENT = ("send", "poll", "txn", "assign", "subscribe", "seek", "crash")


@dataclass(slots=True, eq=False)
class Act:
    """An operation from its invocation to its completion. `completed` is `NEVER` if its result is unknown."""

    f: str
    process: str
    outcome: str
    invoked: int
    completed: int
    invoked_s: float
    completed_s: float
    sends: list[Send]
    polls: list[Poll]
    names: list[str]
    """Partitions or topics of an assign, subscribe or seek."""
    durability: str = "fsynced"
    guarantee: str = "sequence"
    epoch: int = -1
    replica: int | None = None
    rebalanced: list[str] = field(default_factory=list)
    is_view: bool = False

    def __str__(self) -> str:
        return f"{self.f} {self.invoked} of {self.process}"

    def polled(self) -> Iterator[tuple[str, int, str]]:
        """Yields (partition, offset, value) of all polled records."""
        for poll in self.polls:
            for key, records in poll.records.items():
                for offset, value in records:
                    yield key, offset, value


@dataclass(slots=True)
class Run:
    """The interpreted content of a history."""

    acts: list[Act] = field(default_factory=list)
    """All operations, in the order of their invocations."""
    forgotten: list[Act] = field(default_factory=list)
    """Polls of partitions that later lost unsynced records, or all copies; each with only its records of these
    partitions."""
    views: list[tuple[View, int | None]] = field(default_factory=list)
    """Contents of partitions at rest, each with the node whose copy was read; None for the leader's."""
    damaged: dict[str, set[int]] = field(default_factory=dict)
    unread: dict[str, set[int]] = field(default_factory=dict)
    requested: dict[str, int] = field(default_factory=dict)
    promised: dict[str, int] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    repeats: bool = False
    holes: set[str] = field(default_factory=set)
    """Partitions whose acknowledgements do not wait for the high watermark."""

    def start(self, key: str) -> int:
        """Returns the latest log start offset among the replicas read at the end; if none was read, the latest that a
        deletion allows."""
        starts = [view.start for view, _ in self.views if view.key == key]
        return max(starts, default=self.requested.get(key, 0))


def understand(history: Iterable[Op]) -> Run:
    """Returns the interpreted history. Raises `ValueError` for a completion without an invocation."""
    run = Run()
    begun: dict[int, Act] = {}
    last: dict[str, int] = {}
    losses: list[tuple[int, set[str]]] = []
    for op in history:
        if op.f not in CLIENT:
            _learn(run, op, losses)
        elif op.type == "invoke":
            begun[op.index] = act = _act(op, NEVER, float("inf"), "info")
            last[op.process] = op.index
            run.acts.append(act)
        elif op.invocation is None and op.f in ("assign", "subscribe", "seek", "crash") and op.process not in last:
            run.acts.append(_act(op, op.index, op.time, op.type))
        else:
            _complete(op, begun, last)
    for act in run.acts:
        _remember(act, losses, run)
    run.acts += [_read(view, replica) for view, replica in run.views]
    return run


def _act(op: Op, completed: int, completed_s: float, outcome: str) -> Act:
    act = Act(op.f, op.process, outcome, op.index, completed, op.time, completed_s, [], [], [], guarantee=op.guarantee)
    _fill(act, op)
    return act


def _fill(act: Act, op: Op) -> None:
    if op.value:
        act.sends = [part for part in op.value if isinstance(part, Send)]
        act.polls = [part for part in op.value if isinstance(part, Poll)]
        act.names = [part for part in op.value if isinstance(part, str)]


def _complete(op: Op, begun: dict[int, Act], last: dict[str, int]) -> None:
    invocation = last.pop(op.process, None) if op.invocation is None else op.invocation
    act = begun.pop(invocation, None) if invocation is not None else None
    if act is None or act.f != op.f:
        raise ValueError(f"operation {op.index} completes nothing that was invoked")
    if last.get(op.process) == invocation:
        del last[op.process]
    _fill(act, op)
    act.outcome, act.completed, act.completed_s = op.type, op.index, op.time
    act.durability, act.epoch, act.replica, act.rebalanced = op.durability, op.epoch, op.replica, op.rebalanced


def _learn(run: Run, op: Op, losses: list[tuple[int, set[str]]]) -> None:
    names = [part for part in op.value if isinstance(part, str)]
    match op.f:
        case "fault":
            run.faults += names
        case "loss":
            losses.append((op.index, set(names)))
        case "gone":
            run.gone.update(names)
        case "holes":
            run.holes.update(names)
        case "repeats":
            run.repeats = True
        case _:
            for part in op.value:
                _learn_of(run, part, op.replica)


def _learn_of(run: Run, part: object, replica: int | None) -> None:
    match part:
        case Damage(key, offsets):
            run.damaged.setdefault(key, set()).update(offsets)
        case Unread(key, offsets):
            run.unread.setdefault(key, set()).update(offsets)
        case Prefix(key, requested, promised):
            run.requested[key] = max(requested, run.requested.get(key, 0))
            run.promised[key] = max(promised, run.promised.get(key, 0))
        case View():
            run.views.append((part, replica))
        case _:
            raise ValueError(f"{part} is no fact")


# -- what is forgotten -----------------------------------------------------------------------------------------------


def _remember(act: Act, losses: list[tuple[int, set[str]]], run: Run) -> None:
    """Removes from an operation what the checker may not rely on after losses of memory and destroyed partitions. If an
    acknowledged send may be lost by them, its outcome becomes unknown. Reads of lost partitions are moved to
    `run.forgotten`. `losses` are pairs of an index in the history and the partitions concerned."""
    if act.sends and act.outcome == "ok" and not _is_kept(act, losses, run.gone):
        act.outcome, act.completed, act.completed_s = "info", NEVER, float("inf")
        act.sends = [Send(send.key, None, send.value) for send in act.sends]
    lost = {key for index, keys in losses if index > act.invoked for key in keys} | run.gone
    lost &= {key for poll in act.polls for key in poll.records}
    if lost:
        run.forgotten.append(replace(act, sends=[], polls=[_only(poll, lost) for poll in act.polls]))
        kept = {key for poll in act.polls for key in (*poll.records, *poll.ends)} - lost
        act.polls = [_only(poll, kept) for poll in act.polls]


def _is_kept(act: Act, losses: list[tuple[int, set[str]]], gone: set[str]) -> bool:
    if act.durability == "none" or any(send.key in gone for send in act.sends):
        return False
    return act.durability == "fsynced" or all(index < act.completed for index, _ in losses)


def _only(poll: Poll, keys: set[str]) -> Poll:
    return Poll(
        {key: records for key, records in poll.records.items() if key in keys},
        {key: end for key, end in poll.ends.items() if key in keys},
    )


def _read(view: View, replica: int | None) -> Act:
    """Returns a view as a poll by a process of its own, after all other operations."""
    process = f"view of {view.key}" + ("" if replica is None else f" on node {replica}")
    polls = [Poll({view.key: view.records})]
    return Act(
        "poll", process, "ok", NEVER, NEVER, float("inf"), float("inf"), [], polls, [], replica=replica, is_view=True
    )
