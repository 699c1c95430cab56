"""Planted bugs of partitions that commit by majority: each breaks one rule of the shipped code, and some seed has to
notice.

The rules of Paxos itself (voids and barriers, promises and acceptances, faulty slots, changes of voters) are taken away
in the simulator of the pure cores (tests/sim/paxos/mutants.py), which runs a hundred lives where this one runs one.
These are of what brokers do with the core: who gets which id, when a leader serves, what a log is told and when a
journal may forget it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tests.sim.planting import Mutant
from tidelog.broker.consensus.disk import ReplicaDisk
from tidelog.broker.paxos import voter_reconciler
from tidelog.broker.paxos.applied_log import AppliedLog
from tidelog.broker.paxos.applying import Applying
from tidelog.broker.paxos.files import ReplicaFiles
from tidelog.broker.paxos.journal_truncation import JournalTruncation
from tidelog.broker.paxos.partition import PaxosPartition
from tidelog.broker.paxos.roles import PaxosRoles
from tidelog.broker.paxos.voting import Voting
from tidelog.model.cluster import ClusterImage, PartitionInfo
from tidelog.model.ports import Buffer
from tidelog.replication.paxos.events import Applied
from tidelog.replication.paxos.state import Value
from tidelog.sim.kit.patching import patched


def wiped_replica_votes_under_its_old_id() -> AbstractContextManager[None]:
    """A broker is a member, whichever disk it has."""

    def of_the_node(roles: PaxosRoles, info: PartitionInfo, image: ClusterImage) -> int:
        known = [*info.members, *info.wanted]
        return next((one.engine_id for one in known if one.node_id == roles._node_id), 0)

    return patched(PaxosRoles, "_engine_id", of_the_node)


def lost_journal_votes_on() -> AbstractContextManager[None]:
    """A journal that was begun anew votes under the id of the one that is lost."""
    return patched(ReplicaFiles, "may_vote_as", lambda files, engine_id: engine_id > 0)


def serve_before_the_log_is_whole() -> AbstractContextManager[None]:
    """An elected leader takes requests and answers readers, whatever its log still lacks."""
    return patched(Applying, "is_whole", lambda applying, next_offset: True)


def serve_before_the_barrier() -> AbstractContextManager[None]:
    """Whom the controller names serves readers what it has, as a leader."""
    lead = Voting.__init__

    def begin(voting: Voting, *args: Any, **kwargs: Any) -> None:
        lead(voting, *args, **kwargs)
        seek = voting.ballots.seek

        def serve(leader_epoch: int) -> None:
            seek(leader_epoch)
            voting._host.leader.begin()  # type: ignore[attr-defined]  # the replica's own method

        voting.ballots.seek = serve  # type: ignore[method-assign]  # that is the mutant

    return patched(Voting, "__init__", begin)


def acknowledge_before_what_lies_below() -> AbstractContextManager[None]:
    """A value is acknowledged when it is chosen, though something below it is not."""
    note = PaxosPartition.chosen

    def eager(partition: PaxosPartition, position: int, accepted_by: tuple[int, ...]) -> None:
        note(partition, position, accepted_by)
        in_flight = partition._in_flight._proposals.get(position)
        for proposal in in_flight.waiters if in_flight is not None else ():
            partition._complete(proposal, in_flight)

    return patched(PaxosPartition, "chosen", eager)


def forget_what_is_on_its_way() -> AbstractContextManager[None]:
    """Repeats are looked for among what is applied."""
    return patched(PaxosPartition, "_remember", lambda partition, fresh: None)


@contextmanager
def trim_before_any_log_is_durable() -> Iterator[None]:
    """Journals let go of what logs have in memory alone. Three rules see to that, and any of them is nearly enough: the
    leader asks how far a majority's logs are durable, each replica waits for its own, and hurries it up."""

    def of_the_leader(truncation: JournalTruncation, *_: Any) -> int:
        return max(truncation._durable.values(), default=0)

    def without_haste(applying: Applying, applied: Applied) -> None:
        applying.delivery.applied(applied)

    with (
        patched(ReplicaDisk, "_is_covered", lambda disk, unwritten: True),
        patched(JournalTruncation, "covered", of_the_leader),
        patched(Applying, "on_applied", without_haste),
        patched(AppliedLog, "durable_offset", property(lambda applied: applied.log.log_end_offset)),
    ):
        yield


def go_on_at_the_floor_without_copying() -> AbstractContextManager[None]:
    """A replica that is behind all journals applies what comes next, around the gap."""

    def pass_over(applying: Applying, position: int) -> None:
        if position > applying.delivery.position:
            applying.delivery.installed(position)

    return patched(Applying, "on_jumped", pass_over)


def apply_around_what_cannot_be_read() -> AbstractContextManager[None]:
    """A value whose payload is not here counts as applied."""
    read = Applying._read

    def empty(applying: Applying, position: int, value: Value) -> Buffer:
        return read(applying, position, value) or b""

    return patched(Applying, "_read", empty)


def member_before_it_has_caught_up() -> AbstractContextManager[None]:
    """Whoever is wanted is made a member at once."""
    return patched(voter_reconciler, "_has_caught_up", lambda replica, end, member: True)


MUTANTS: tuple[Mutant, ...] = (
    wiped_replica_votes_under_its_old_id,
    lost_journal_votes_on,
    serve_before_the_log_is_whole,
    serve_before_the_barrier,
    acknowledge_before_what_lies_below,
    forget_what_is_on_its_way,
    trim_before_any_log_is_durable,
    go_on_at_the_floor_without_copying,
    apply_around_what_cannot_be_read,
    member_before_it_has_caught_up,
)
