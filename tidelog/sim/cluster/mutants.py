"""Planted bugs of a cluster: each breaks one rule of the shipped code, and some seed has to notice.

As in `tidelog.sim.mutants`, a mutant patches the code for as long as it is open.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from msgspec import structs

from tidelog.broker.controller import active, decide_brokers
from tidelog.broker.controller.active import ActiveController
from tidelog.broker.controller_channel import ControllerChannel
from tidelog.broker.quorum.quorum_log import QuorumLog
from tidelog.model.cluster import ClusterImage, Voter
from tidelog.model.errors import NotController
from tidelog.replication.election import Election
from tidelog.replication.paxos.events import Proposed
from tidelog.replication.paxos.journal import Journal
from tidelog.replication.paxos.replica import Replica
from tidelog.replication.paxos.state import StoredLog
from tidelog.replication.paxos.voters import Membership
from tidelog.replication.quorum import Joint, Majority
from tidelog.sim.mutants import Mutant, patched, skip_fsync

_Image = Callable[[], ClusterImage]


def accept_does_not_raise_the_promise() -> AbstractContextManager[None]:
    """A slot takes an older number over a newer one that it has accepted (Mesos' hole)."""
    return patched(Replica, "_is_outdated", lambda replica, number, slot: number < replica.metadata.promised)


def answer_before_the_disk() -> AbstractContextManager[None]:
    """Promises and acceptances are told before they are durable."""

    def at_once(journal: Journal[Any], effect: Any) -> list[Any]:
        return [effect]

    return patched(Journal, "when_durable", at_once)


def forget_the_promise_at_restart() -> AbstractContextManager[None]:
    """A voter starts without what it had promised, though its slots are there."""
    begin = Replica.__init__

    def amnesiac(replica: Replica, stored: StoredLog) -> None:
        begin(replica, structs.replace(stored, metadata=structs.replace(stored.metadata, promised=0)))

    return patched(Replica, "__init__", amnesiac)


def keep_the_voter_id_of_a_wiped_disk() -> AbstractContextManager[None]:
    """A new disk votes as the one that was lost."""

    def by_node(membership: Membership, node_id: int, incarnation: str) -> Voter | None:
        return next((voter for voter in membership.voters.voters if voter.node_id == node_id), None)

    return patched(Membership, "voter_of", by_node)


def no_joint_quorum() -> AbstractContextManager[None]:
    """New voters are decided on without the old ones."""
    return patched(Joint, "is_met", lambda joint, nodes: joint.quorums[-1].is_met(nodes))


def one_too_few() -> AbstractContextManager[None]:
    """A quorum is one less than a majority: things are applied that are not chosen."""
    return patched(
        Majority, "is_met", lambda majority, nodes: len(set(nodes) & set(majority.members)) >= _fewer(majority)
    )


def _fewer(majority: Majority) -> int:
    return max(1, len(majority.members) // 2)


def acknowledge_before_it_is_chosen() -> AbstractContextManager[None]:
    """An append returns as soon as it has its place in the log."""
    on_proposed = QuorumLog._on_proposed

    def eager(log: QuorumLog, proposed: Proposed) -> None:
        on_proposed(log, proposed)
        if log._asking is not None and not log._asking.done():
            log._asking.set_result(proposed.value.base_offset)

    return patched(QuorumLog, "_on_proposed", eager)


def never_fence() -> AbstractContextManager[None]:
    """A broker that is not heard of stays live, and leader."""
    return patched(active, "overdue", lambda *_: [])


def fence_and_leave_in_the_lead() -> AbstractContextManager[None]:
    """A fenced broker keeps the partitions that it led."""
    return patched(decide_brokers, "without", lambda image, node, config, loss=None: ())


def take_any_broker_epoch() -> AbstractContextManager[None]:
    """A heartbeat of an earlier process counts for the present one."""
    return patched(decide_brokers, "registered_broker", lambda image, node_id, broker_epoch: image.brokers[node_id])


def decide_on_an_old_image() -> AbstractContextManager[None]:
    """A controller does not see what its last decision did."""
    begin = ActiveController.__init__

    def late(
        controller: ActiveController, node_id: Any, log: Any, image: Callable[[], ClusterImage], *rest: Any
    ) -> None:
        seen: list[ClusterImage] = []

        def before_last() -> ClusterImage:
            if not seen or seen[-1].position < image().position:
                seen.append(image())
            return seen[max(0, len(seen) - 2)]

        begin(controller, node_id, log, before_last, *rest)

    return patched(ActiveController, "__init__", late)


def unknown_is_called_refused() -> AbstractContextManager[None]:
    """Says "nothing was done" of a command that a controller may have done."""
    refused = staticmethod(lambda failure, is_begun: NotController("nothing was done"))
    return patched(ControllerChannel, "_gave_up", refused)


def promise_whoever_asks() -> AbstractContextManager[None]:
    """Leases bind nobody."""
    return patched(Election, "may_promise", lambda election, candidate, now_s: True)


MUTANTS: tuple[Mutant, ...] = (
    accept_does_not_raise_the_promise,
    answer_before_the_disk,
    forget_the_promise_at_restart,
    skip_fsync,
    keep_the_voter_id_of_a_wiped_disk,
    no_joint_quorum,
    one_too_few,
    acknowledge_before_it_is_chosen,
    never_fence,
    fence_and_leave_in_the_lead,
    take_any_broker_epoch,
    decide_on_an_old_image,
    unknown_is_called_refused,
    promise_whoever_asks,
)
