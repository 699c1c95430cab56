"""Planted bugs of a cluster: each breaks one rule of the shipped code, and some seed has to notice.

These are of the parts put together: the rules of Paxos, of elections and of changing voters are taken away one by one
in the simulators of the pure cores (tests/sim/paxos, tests/sim/election), which run a thousand lives where this one
runs ten.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from tests.sim.broker.mutants import skip_fsync
from tests.sim.planting import Mutant
from tidelog.broker.consensus.appending import PendingAppend
from tidelog.broker.consensus.delivery import Delivery
from tidelog.broker.consensus.inflight import InFlightProposal, InFlightProposals
from tidelog.broker.controller import active
from tidelog.broker.controller.active import ActiveController
from tidelog.broker.membership.controller_channel import ControllerChannel
from tidelog.controller import decide_brokers
from tidelog.model.cluster import ClusterImage
from tidelog.model.errors import NotController
from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import Applied
from tidelog.replication.paxos.journal import Journal
from tidelog.replication.quorum import Majority
from tidelog.sim.kit.patching import patched

_Image = Callable[[], ClusterImage]


def answer_before_the_disk() -> AbstractContextManager[None]:
    """Promises and acceptances are told before they are durable."""

    def at_once(journal: Journal[Any], effect: Any) -> list[Any]:
        return [effect]

    return patched(Journal, "when_durable", at_once)


def one_too_few() -> AbstractContextManager[None]:
    """A quorum is one less than a majority: things are applied that are not chosen."""
    return patched(
        Majority, "is_met", lambda majority, nodes: len(set(nodes) & set(majority.members)) >= _fewer(majority)
    )


def _fewer(majority: Majority) -> int:
    return max(1, len(majority.members) // 2)


def acknowledge_before_it_is_chosen() -> AbstractContextManager[None]:
    """An append returns as soon as it has its place in the log."""
    note = InFlightProposals.add

    def eager(in_flight: InFlightProposals[Any], position: int, proposal: InFlightProposal[Any]) -> None:
        note(in_flight, position, proposal)
        for waiter in proposal.waiters:
            if isinstance(waiter, PendingAppend):
                waiter.complete(Applied(position, proposal.value, Verdict.APPLIED))

    return patched(InFlightProposals, "add", eager)


def deliver_without_payload() -> AbstractContextManager[None]:
    """What cannot be read here is passed over."""

    def advance(delivery: Delivery) -> None:
        while delivery._waiting and delivery._waiting[0].position <= delivery.position:
            applied = delivery._waiting.popleft()
            if applied.position == delivery.position:
                delivery.position += 1
                delivery._deliver(applied, delivery._read(applied.position, applied.value))

    return patched(Delivery, "advance", advance)


def never_fence() -> AbstractContextManager[None]:
    """A broker that is not heard of stays live, and leader."""
    return patched(active, "overdue", lambda *_: [])


def fence_and_leave_in_the_lead() -> AbstractContextManager[None]:
    """A fenced broker keeps the partitions that it led."""
    return patched(decide_brokers, "without", lambda *_, **__: ())


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


MUTANTS: tuple[Mutant, ...] = (
    answer_before_the_disk,
    skip_fsync,
    one_too_few,
    acknowledge_before_it_is_chosen,
    deliver_without_payload,
    never_fence,
    fence_and_leave_in_the_lead,
    decide_on_an_old_image,
    unknown_is_called_refused,
)
