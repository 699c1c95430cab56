"""The decision whether a partition without a leader may continue with what is left of it, from the replicas' answers.

With in-sync replicas that is the log with the highest leader epoch and end, which the others follow from then on: an
unclean election after all replicas were asked. Or, where a leader waits for another broker's answer about the damaged
end of its log, that leader continues without the answer. With Paxos it is the union of all replicas that answer: the
values in their journals, and, if the longest log has more than any journal accounts for, that log (the *source*).

Even with a majority of the votes an election may wait: for a journal position where a lost voter may have been the only
one with the chosen value. Once all remaining voters have answered what they have there, it can continue, too.

Refused as long as the partition may get a leader by itself, and while a broker cannot be asked that the operator
has not named (`even_though`): it may have what all others lack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidelog.broker.repair.repair_messages import ReplicaState
from tidelog.model.cluster import NO_LEADER, PartitionInfo, Regrouping
from tidelog.model.losses import LossStatement

NOBODY = -1


@dataclass(frozen=True, slots=True)
class RemainsReport:
    """The decision about one partition. It cannot continue while there are `refusals`."""

    kept: tuple[int, ...]
    source: int
    end: int
    """End offset of what is surely left: acknowledged records behind it are given up."""
    position: int
    birth: int
    statements: tuple[LossStatement, ...]
    refusals: tuple[str, ...]
    before: Regrouping | None
    """The last such decision for this partition, if the partition continues from it already or is about to;
    else None."""


def judge_remains(
    info: PartitionInfo, replies: Mapping[int, ReplicaState], even_though: Sequence[int], *, votes: bool
) -> RemainsReport:
    """Returns whether and with what a partition can continue, from the states of the replicas that answered. `votes` is
    True for a partition that commits by majority (Paxos)."""
    kept = tuple(node for node in info.replicas if node in replies)
    statements = tuple(
        LossStatement(node, _said(info, node, replies.get(node), votes=votes)) for node in sorted(info.replicas)
    )
    refusals = _about_votes(info, replies) if votes else _about_leader(info, replies)
    before = info.regroupings[-1] if refusals and info.regroupings else None
    if not refusals:
        refusals = [
            f"broker {node} cannot be asked now, and may have {_hope(info, node, votes=votes)}: start it, or say "
            f"--even-though {node}"
            for node in sorted(info.replicas)
            if node not in replies and node not in even_though
        ]
    source, end, position, birth = _paxos_source(replies) if votes else _most(info, replies)
    if votes and source != NOBODY and not replies[source].is_named and not refusals:
        ahead = [node for node, state in sorted(replies.items()) if state.journal_end > end]
        refusals += [
            f"the log of broker {source} does not say where it stands among the values in the journal of broker "
            f"{node}, which would be lost; nothing was given up"
            for node in ahead
        ]
    return RemainsReport(kept, source, end, position, birth, statements, tuple(refusals), before)


def _about_leader(info: PartitionInfo, replies: Mapping[int, ReplicaState]) -> list[str]:
    if info.leader == NO_LEADER:
        return []
    awaited = replies[info.leader].awaited if info.leader in replies else ()
    if not awaited:
        return [f"broker {info.leader} leads this partition: there is nothing to give up"]
    return [
        f"broker {info.leader} is about to lead this partition; before, broker {node} says what it has of the damaged "
        f"end of the log: ask again"
        for node in awaited
        if node in replies
    ]


def _about_votes(info: PartitionInfo, replies: Mapping[int, ReplicaState]) -> list[str]:
    leading = [node for node, state in replies.items() if state.is_leading]
    if leading:
        return [f"broker {leading[0]} leads this partition: there is nothing to give up"]
    voting = [member.node_id for member in info.members if _has_vote(member.engine_id, replies.get(member.node_id))]
    if len(voting) < info.majority:
        return []
    waiting = next((state for state in replies.values() if state.unsettled >= 0), None)
    if waiting is not None:
        return [
            f"an election waits for position {waiting.unsettled} of the journal, and broker {member.node_id} says soon "
            f"what it has there: ask again"
            for member in info.members
            if member.engine_id in waiting.unheard and member.node_id in voting
        ]
    named = ", ".join(map(str, voting))
    return [
        f"{len(voting)} of {len(info.members)} voters can vote (brokers {named}), which is enough to elect a leader"
    ]


def _has_vote(engine_id: int, state: ReplicaState | None) -> bool:
    return state is not None and engine_id in state.engine_ids


def _hope(info: PartitionInfo, node: int, *, votes: bool) -> str:
    if votes:
        return "its vote, or what nobody else has"
    is_complete = node in (*info.elr, *info.isr)
    return "everything that was acknowledged" if is_complete else "what nobody else has"


def _said(info: PartitionInfo, node: int, state: ReplicaState | None, *, votes: bool) -> str:
    if state is None:
        return "unreachable"
    log = f"log {state.log_start_offset} to {state.log_end_offset}"
    if not votes:
        return f"{log}, leader epoch {state.epoch}"
    has_vote = any(_has_vote(member.engine_id, state) for member in info.members if member.node_id == node)
    journal = f"journal to {max(state.journal_end, state.agreed_end)}"
    return f"{'vote' if has_vote else 'no vote'}, {log}, {journal}{_wait(info, state)}"


def _wait(info: PartitionInfo, state: ReplicaState) -> str:
    if state.unsettled < 0:
        return ""
    unheard = ", ".join(str(member.node_id) for member in info.members if member.engine_id in state.unheard)
    return f", waits for position {state.unsettled}" + (f" and broker {unheard}" if unheard else "")


def _most(info: PartitionInfo, replies: Mapping[int, ReplicaState]) -> tuple[int, int, int, int]:
    """Returns (node id, log end offset, 0, 0) of the replica to continue from: the appointed leader, which has every
    acknowledged record even while it does not serve yet; without a leader the replica with the highest leader epoch and
    log end, the first in the order of the replicas. The zeros stand where `_paxos_source` returns a Paxos position and
    ballot number."""
    if info.leader in replies:
        return info.leader, replies[info.leader].log_end_offset, 0, 0
    held = [node for node in info.replicas if node in replies]
    if not held:
        return NOBODY, 0, 0, 0
    best = max(held, key=lambda node: (replies[node].epoch, replies[node].log_end_offset))
    return best, replies[best].log_end_offset, 0, 0


def _paxos_source(replies: Mapping[int, ReplicaState]) -> tuple[int, int, int, int]:
    """Returns (source, end, position, birth): the replica whose log has more than all journals account for, or
    `NOBODY`; the end of what is left; the position where the source's journal is to begin; and the birth (the ballot
    number of the first proposal) of the last batch there that names its Paxos position."""
    agreed = max((state.agreed_end for state in replies.values()), default=0)
    longest = max(sorted(replies), key=lambda node: replies[node].log_end_offset, default=NOBODY)
    if longest == NOBODY or replies[longest].log_end_offset <= agreed:
        return NOBODY, agreed, 0, 0
    source = replies[longest]
    position = source.position
    if not source.is_named:  # behind all that anybody knows of: nothing of it can be behind this log
        position = max(max(state.top_position, state.position) for state in replies.values())
    return longest, source.log_end_offset, position, source.birth
