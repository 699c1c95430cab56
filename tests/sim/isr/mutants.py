"""The protocol with one rule removed: each loses data, or contradicts itself, in some run, or the walks are too tame.

A mutant of a core is another class, in `leader_mutants` or `log_mutants`; one of the controller, or of
who hands messages on, replaces an attribute while its runs last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from tests.sim.isr.leader_mutants import (
    AnyBrokerEpoch,
    AnyPartitionEpoch,
    CommitsUnflushed,
    CommittedNotMaximal,
    DeletesAlone,
    DeletesWithTooFew,
    DivergingCounts,
    DurabilityBeforeTheSet,
    IgnoresPartitionEpoch,
    IgnoresUnheard,
    MinIsrFirst,
    NoEpochStart,
    NoHighWatermarkToJoin,
    NoLogStartToJoin,
    NoMinIsr,
    OldMinIsr,
    RemembersLives,
    RevertOnAmbiguous,
)
from tests.sim.isr.log_mutants import (
    AnyAnswer,
    AnyAnswerThatFits,
    AnybodyDenies,
    AnybodysHighWatermark,
    AnyEpochDenies,
    AnyLifeDenies,
    CheckpointCuts,
    CutsAtDamage,
    MinorityIsAll,
    OneRoundOnly,
    RetriesSync,
    SettlesNothing,
    TruncateToHighWatermark,
)
from tests.sim.planting import Patch, all_patched
from tidelog.controller import broker_state, decide_partitions, isr_leadership
from tidelog.model.cluster import NO_LEADER, PartitionInfo
from tidelog.replication.isr.leader import IsrLeader
from tidelog.sim.isr import disk, replication
from tidelog.sim.isr.parts import SHIPPED, Parts
from tidelog.sim.isr.process import Process


def _all_durable(of: disk.Disk, _: int) -> int:
    return of.durable


def _disk_only(lost: broker_state.Lost, _: object) -> bool:
    return lost.loss is broker_state.Loss.DISK


def _forgetting_what_was(lost: broker_state.Lost, _: object) -> broker_state.Lost:
    return lost


def _in_any_life(image: Any, _: PartitionInfo, member: Any) -> bool:
    return bool(image.is_live(member.node_id))


def _not_for_removals(was: PartitionInfo, now: PartitionInfo) -> PartitionInfo:
    if now == was:
        return was
    is_new_term = now.leader != was.leader
    return replace(now, leader_epoch=was.leader_epoch + is_new_term, partition_epoch=was.partition_epoch + 1)


def _of_any_epoch(process: Process, _: int) -> IsrLeader | None:
    return process.leading if process.is_running else None


_JUDGE = decide_partitions._judge


def _judged_without_its_epoch(image: Any, sender: Any, topic: Any, info: PartitionInfo, asked: Any) -> Any:
    if asked.leader_epoch == info.leader_epoch and info.leader != NO_LEADER:
        asked = structs.replace(asked, partition_epoch=info.partition_epoch)
    return _JUDGE(image, sender, topic, info, asked)


@dataclass(frozen=True)
class Mutant:
    """What is replaced."""

    parts: Parts = SHIPPED
    patches: tuple[Patch, ...] = ()


MUTANTS: Mapping[str, Mutant] = {
    "committed set instead of maximal": Mutant(Parts(leader=CommittedNotMaximal)),
    "durability before the set that goes with it": Mutant(Parts(leader=DurabilityBeforeTheSet)),
    "revert on an ambiguous answer": Mutant(Parts(leader=RevertOnAmbiguous)),
    "answers of any partition epoch": Mutant(Parts(leader=AnyPartitionEpoch)),
    "metadata of any partition epoch": Mutant(Parts(leader=IgnoresPartitionEpoch)),
    "no compare and set": Mutant(patches=((decide_partitions, "_judge", _judged_without_its_epoch),)),
    "fetches of any leader epoch": Mutant(patches=((replication, "_leading", _of_any_epoch),)),
    "no epoch start condition": Mutant(Parts(leader=NoEpochStart)),
    "no high watermark condition": Mutant(Parts(leader=NoHighWatermarkToJoin)),
    "deletions of the leader alone": Mutant(Parts(leader=DeletesAlone)),
    "deletions below min ISR": Mutant(Parts(leader=DeletesWithTooFew)),
    "no log start condition": Mutant(Parts(leader=NoLogStartToJoin)),
    "members not heard are ignored": Mutant(Parts(leader=IgnoresUnheard)),
    "no min ISR": Mutant(Parts(leader=NoMinIsr)),
    "memory counts as disk": Mutant(Parts(leader=CommitsUnflushed)),
    "a diverging fetch counts": Mutant(Parts(leader=DivergingCounts)),
    "no broker epochs": Mutant(Parts(leader=AnyBrokerEpoch), ((decide_partitions, "_is_eligible", _in_any_life),)),
    "earlier lives remembered": Mutant(Parts(leader=RemembersLives)),
    "truncate to the high watermark": Mutant(Parts(follower=TruncateToHighWatermark)),
    "one round of epochs": Mutant(Parts(follower=OneRoundOnly)),
    "answers to any question": Mutant(Parts(follower=AnyAnswer)),
    "answers to any question, if they fit": Mutant(Parts(follower=AnyAnswerThatFits)),
    "unclean restart not noticed": Mutant(patches=((broker_state.Lost, "takes_acknowledged", _disk_only),)),
    "durability as of now, not of the life": Mutant(patches=((broker_state.Lost, "of", _forgetting_what_was),)),
    "no new term when a replica goes": Mutant(patches=((isr_leadership, "_numbered", _not_for_removals),)),
    "a new min ISR before the set": Mutant(Parts(leader=MinIsrFirst)),
    "leaders not told of another min ISR": Mutant(Parts(leader=OldMinIsr)),
    "answers before their metadata": Mutant(Parts(waits_for_metadata=False)),
    "failed fsyncs are repeated": Mutant(Parts(disk=RetriesSync)),
    "logs truncated at their first damaged batch": Mutant(Parts(disk=CutsAtDamage)),
    "denials of any replica": Mutant(Parts(settlement=AnybodyDenies)),
    "denials of any life": Mutant(Parts(settlement=AnyLifeDenies)),
    "denials of any epoch": Mutant(Parts(settlement=AnyEpochDenies)),
    "damaged ends are truncated unasked": Mutant(Parts(settlement=SettlesNothing)),
    "anybody's high watermark is the leader's": Mutant(Parts(settlement=AnybodysHighWatermark)),
    "one damaged copy more is all": Mutant(Parts(settlement=MinorityIsAll)),
    "torn copies are acknowledged": Mutant(patches=((disk.Disk, "acknowledged_end", _all_durable),)),
    "logs truncated at their checkpoint": Mutant(Parts(disk=CheckpointCuts)),
}


@contextmanager
def planted(mutant: Mutant) -> Iterator[Parts]:
    """The parts to run with, while the patches are in force."""
    with all_patched(mutant.patches):
        yield mutant.parts
