"""The right of a replica to vote: founding a log, and rejoining after the loss of a disk.

A replica votes by what it remembers. A replica that forgot a promise could give it again to an older coordinator, a
replica that forgot an accepted value could deny it, and either way two values may be chosen. So an empty disk must not
vote, unless it is certain that no vote was lost with it.

*Founding*, in two phases. A replica allowed to found (`Found`, with the cluster's id) asks all members until every one
is EMPTY or STARTING, with that id; it then makes itself STARTING, with the incarnations of all members. Once every
member is STARTING or VOTING, *with the same founders*, or one is VOTING, it votes: it has been a member from the
beginning and has never voted. Mesos' two phases lack the founders. There, a member that voted and lost its disk while
others were still STARTING is taken for a founder; here its new incarnation is not among the founders, and it must
rejoin.

*Rejoining*. To take over the peers' status, end, or highest promise is not enough: promises and accepts of the lost
incarnation may still be in flight to a coordinator. A fence is safe:

1. The replica does not vote: it is RECOVERING, and answers IGNORED.
2. A caller that knows all issued numbers issues a number R larger than every number ever issued for this log.
3. A quorum of *others* promises R, and reports its slots after that.
4. Everything below the end that the quorum reports is settled under R, and learned on this replica's disk.
5. The replica has promised R, and votes.

After 3 no coordinator below R can have any value chosen that is not reported, whatever the lost incarnation answered
it; so it does not matter what was forgotten. For the metadata log, whose controller issues the numbers, no such R can
be issued: there, a lost voter is replaced.
"""

from __future__ import annotations

from msgspec import structs

from tidelog.replication.paxos.events import Action, Applied, Proceed, Send, SetTimer, Timer
from tidelog.replication.paxos.messages import RecoverRequest, RecoverResponse
from tidelog.replication.paxos.proposer import Proposer
from tidelog.replication.paxos.replica import Replica
from tidelog.replication.paxos.state import Status
from tidelog.replication.paxos.term import Term
from tidelog.replication.quorum import Quorum

MAY_START = (Status.EMPTY, Status.STARTING)
HAVE_STARTED = (Status.STARTING, Status.VOTING)


class Founding:
    """The founding of one new replica, from EMPTY to STARTING to VOTING, together with the other founders."""

    def __init__(self, quorum: Quorum, replica: Replica) -> None:
        self._members = quorum.members
        self._replica = replica
        self._seen: dict[int, RecoverResponse] = {}

    def permit(self, cluster_id: str) -> list[Action]:
        """Permits this disk to found the cluster `cluster_id`. The permission is not durable: the caller gives it again
        at each start."""
        self._replica.metadata = structs.replace(self._replica.metadata, cluster_id=cluster_id)
        return self.ask()

    def ask(self) -> list[Action]:
        """Begins a round: asks every member for its status, incarnation and founders. Each RECOVER timer begins another
        round."""
        metadata = self._replica.metadata
        if metadata.status not in MAY_START or not metadata.cluster_id:
            return []
        # Each round begins anew: what a member said before may have been said by a disk that is lost since.
        self._seen = {}
        return [*(Send(node, RecoverRequest()) for node in self._members), SetTimer(Timer.RECOVER)]

    def answer(self, sender: int) -> list[Action]:
        """Returns the answer to a `RecoverRequest`: status, incarnation, cluster and founders of this replica."""
        metadata = self._replica.metadata
        return [
            Send(sender, RecoverResponse(metadata.status, metadata.incarnation, metadata.cluster_id, metadata.founders))
        ]

    def on_response(self, sender: int, response: RecoverResponse) -> list[Action]:
        metadata = self._replica.metadata
        if self._replica.is_changing or not metadata.cluster_id or sender not in self._members:
            return []
        self._seen[sender] = response
        if metadata.status is Status.EMPTY and self._may_start():
            return self._replica.change(structs.replace(metadata, status=Status.STARTING, founders=self._founders()))
        if metadata.status is Status.STARTING and self._may_vote(metadata.founders):
            return self._replica.change(structs.replace(metadata, status=Status.VOTING))
        return []

    def _founders(self) -> tuple[tuple[int, str], ...]:
        return tuple((node, self._seen[node].incarnation) for node in self._members)

    def _may_start(self) -> bool:
        # All of them, not a quorum: one that has not answered may have voted.
        if len(self._seen) < len(self._members):
            return False
        founders = self._founders()
        return all(
            peer.cluster_id == self._replica.metadata.cluster_id
            and peer.status in MAY_START
            and peer.founders in ((), founders)
            for peer in self._seen.values()
        )

    def _may_vote(self, founders: tuple[tuple[int, str], ...]) -> bool:
        # Only peers with the same list count. Mesos compares no incarnations: there a member that voted, and lost its
        # disk while others were still STARTING, passes for one that has been here from the beginning.
        cofounders = {node: peer for node, peer in self._seen.items() if peer.founders == founders}
        # The first founder to vote has seen all of the list STARTING, this replica among them.
        if any(peer.status is Status.VOTING for peer in cofounders.values()):
            return True
        return all(
            node in cofounders
            and cofounders[node].status in HAVE_STARTED
            and cofounders[node].incarnation == incarnation
            for node, incarnation in founders
        )


class Fence(Proposer):
    """An attempt of a replica that lost its disk to vote again: it has a quorum of other nodes promise a number larger
    than all issued before, which fences off its forgotten promises."""

    def __init__(self, number: int, term: Term, replica: Replica) -> None:
        # The quorum is one of the others by itself: this replica is RECOVERING, and answers its own requests IGNORED.
        super().__init__(number, term, replica)
        self._end: int | None = None
        self._is_closing = False

    def _on_quorum(self, end: int) -> list[Action]:
        self._end = end
        return self._advance()

    def on_applied(self, applied: Applied) -> list[Action]:
        return [*super().on_applied(applied), *self._advance()]

    def on_jumped(self, position: int) -> list[Action]:
        return [*super().on_jumped(position), *self._advance()]

    def _advance(self) -> list[Action]:
        """Makes durable all positions below the end that the promising quorum reported, once they are applied here;
        `proceed` is called when they are on disk."""
        if self._end is None or self._is_closing or self._replica.applied.position < self._end:
            return []
        self._is_closing = True
        journal = self._replica.journal
        # On disk before the replica may vote: a crash between the two must not leave a voter with half a memory.
        return [journal.persist(), *journal.when_durable(Proceed(self.number))]

    def proceed(self) -> list[Action]:
        return self._close() if self._is_closing else super().proceed()

    def _close(self) -> list[Action]:
        """Promises the fence's number, and makes this replica a voter."""
        metadata = self._replica.metadata
        assert self.number >= metadata.promised
        # In one write with the status: without the promise it could accept from a coordinator that is fenced off.
        return self._replica.change(structs.replace(metadata, status=Status.VOTING, promised=self.number))

    def _is_waiting(self) -> bool:
        return not self._is_closing
