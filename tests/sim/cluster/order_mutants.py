"""Planted bugs of topics whose commits do not wait for all before them (`commit.order=key` or `none`): each breaks one
rule of what brokers do with the core, and some story about holes has to notice.

The rules of the core itself (what a value names, what waits for what) are taken away in the simulator of the pure cores
(tests/sim/paxos/mutants.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import replace

from tests.sim.planting import Mutant
from tidelog.broker.consensus.inflight import InFlightProposal, InFlightProposals
from tidelog.broker.partitions.intake import Group
from tidelog.broker.paxos import conflict_keys, proposing
from tidelog.broker.paxos.partition import PaxosPartition
from tidelog.model.batch_header import Compression, RecordBatch
from tidelog.sim.kit.patching import patched


def release_when_it_is_proposed() -> AbstractContextManager[None]:
    """A leader answers a batch that conflicts with nothing as soon as it is proposed, though nobody has it yet."""
    append = PaxosPartition._append_group

    def eager(leader: PaxosPartition, group: Group) -> None:
        append(leader, group)
        if leader.config.commit_order != "total":
            for position in leader._in_flight._proposals:
                leader.release(position)

    return patched(PaxosPartition, "_append_group", eager)


def release_what_is_chosen() -> AbstractContextManager[None]:
    """A batch is answered when it is chosen, whatever it conflicts with."""
    note = PaxosPartition.chosen

    def eager(leader: PaxosPartition, position: int, accepted_by: tuple[int, ...]) -> None:
        note(leader, position, accepted_by)
        if leader.config.commit_order != "total":
            leader.release(position)

    return patched(PaxosPartition, "chosen", eager)


def show_what_is_chosen() -> AbstractContextManager[None]:
    """Early readers are shown what is chosen, though something that it conflicts with is open."""

    def all_chosen(in_flight: InFlightProposals[Any]) -> list[tuple[int, InFlightProposal[Any]]]:
        return [(position, proposal) for position, proposal in in_flight._proposals.items() if proposal.accepted_by]

    return patched(InFlightProposals, "released", all_chosen)


def show_the_first_alone() -> AbstractContextManager[None]:
    """Early readers are shown one released value, though more were acknowledged."""
    released = InFlightProposals.released
    return patched(InFlightProposals, "released", lambda in_flight: released(in_flight)[:1])


def forget_the_producers() -> AbstractContextManager[None]:
    """Batches of one idempotent producer do not conflict unless their records' keys do."""
    keys = conflict_keys.conflict_keys

    def of_records(batches: list[RecordBatch], order: str) -> frozenset[int] | None:
        anonymous = [replace(batch, header=batch.header._replace(producer_id=-1)) for batch in batches]
        return keys(anonymous, order)

    return patched(proposing, "conflict_keys", of_records)


def take_compressed_records_for_keyless() -> AbstractContextManager[None]:
    """The keys of compressed batches are not read, and conflict with nothing."""
    keys = conflict_keys._keys_of_records

    def of_plain_ones(batch: RecordBatch) -> Iterator[int]:
        return keys(batch) if batch.header.compression is Compression.NONE else iter(())

    return patched(conflict_keys, "_keys_of_records", of_plain_ones)


def remember_in_the_table_of_the_log() -> AbstractContextManager[None]:
    """A leader remembers the batches in flight in its log's table, which then knows batches that turn out void."""
    begin = PaxosPartition.begin

    def sharing(leader: PaxosPartition) -> None:
        begin(leader)
        leader._producers = leader.log.producers

    return patched(PaxosPartition, "begin", sharing)


MUTANTS: tuple[Mutant, ...] = (
    release_when_it_is_proposed,
    release_what_is_chosen,
    show_what_is_chosen,
    show_the_first_alone,
    forget_the_producers,
    take_compressed_records_for_keyless,
    remember_in_the_table_of_the_log,
)
