"""A replica as a candidate: it campaigns when the controller appoints it, and when the voters of its log change.

The log alone decides who votes in it; the metadata say whom the controller wants. A change of voters follows
`consensus.voter_change`, within one leader epoch: each term of it uses another attempt of that epoch (`ballots`).
Producers' requests wait in the mailbox meanwhile, for a few round trips.
"""

from __future__ import annotations

from tidelog.broker.consensus.engine import Engine
from tidelog.broker.consensus.routes import Routes
from tidelog.broker.consensus.voter_change import VoterChanger
from tidelog.broker.paxos.ballots import BallotNumbers
from tidelog.broker.paxos.journal import Floor, VoterHistory
from tidelog.broker.paxos.leaders import Leaders
from tidelog.model.errors import LeaderNotAvailable
from tidelog.model.ports import Entropy
from tidelog.replication.paxos.events import Applied, Elected, Enlist, Lost
from tidelog.replication.paxos.voters import Membership, VoterSet, decode_voters


class Voting:
    """The `Candidate` (the side of a voter change that wins elections) of one replica."""

    def __init__(
        self,
        engine: Engine,
        membership: Membership,
        history: VoterHistory,
        routes: Routes,
        entropy: Entropy,
        engine_id: int,
        leaders: Leaders,
    ) -> None:
        self.membership = membership
        self.history = history
        self._engine = engine
        self._leaders = leaders
        self.ballots = BallotNumbers(engine, membership, entropy, engine_id=engine_id)
        self.voter_changer = VoterChanger(engine, membership, routes, self, refusal=LeaderNotAvailable)

    @property
    def is_leading(self) -> bool:
        """True if elected under the current ballot number, and no change of voters is to be made in this term."""
        coordinator = self._engine.node.coordinator
        # A term under an earlier number is about to end: nothing of it is shown any more.
        is_elected = coordinator is not None and coordinator.number == self.ballots.attempt
        return is_elected and self.membership.phase is None and not self.membership.is_union

    @property
    def is_settled(self) -> bool:
        """True of an elected leader without an open change of voters: the voters known here are in force, and no others
        can be."""
        return self.is_leading and not self.voter_changer.is_changing and self.membership.is_settled

    def enlist(self, engine_id: int) -> None:
        """Takes up a fresh engine id, under which this disk has never voted."""
        self.ballots.engine_id = engine_id
        # The engine may go by an earlier id that the log still names; it changes only if no set names that.
        if self._engine.node.node != engine_id:
            self.ballots.begin_anew()
            self._engine.step(self.membership.reconfigure(engine_id))
        self._engine.step(Enlist())

    def close(self) -> None:
        """Cancels the timers, and ends the wait for a change of voters."""
        self.voter_changer.close()
        self.ballots.give_up()

    async def change(self, voters: VoterSet) -> None:
        """Changes the voters of the log by one step. Raises `LeaderNotAvailable` if nothing has begun, `ControllerLost`
        if it may have."""
        if not self.is_leading:
            raise LeaderNotAvailable("this broker cannot change the voters now; try again")
        await self.voter_changer.change(voters, self.ballots.attempt)

    # -- `Candidate`, for the change of voters -------------------------------------------------------------------------

    @property
    def engine_id(self) -> int:
        """The engine id that this disk uses now; the controller assigns it."""
        return self._engine.node.node

    def next_number(self) -> int | None:
        return self.ballots.next_number()

    def hold(self) -> None:
        self._leaders.hold()

    def end_term(self) -> None:
        self.ballots.begin_anew()
        # Elected again in a few round trips, so producers may wait; else they are told to look for another leader.
        if self.voter_changer.is_changing:
            self._leaders.hold()
        else:
            self._leaders.stop()

    def seek_election(self) -> None:
        if self._engine.node.node in self.membership.quorum():
            self.ballots.campaign()
        else:
            self.ballots.abdicate()

    # -- what the engine says ------------------------------------------------------------------------------------------

    def on_elected(self, elected: Elected) -> None:
        """Writes the new voters if this term is for that; else ends the wait for a change, as this node is elected."""
        if elected.number != self.ballots.attempt:
            return
        if self.membership.is_union:
            # All who were left have elected it: VOTERS end the union, and a majority decides from then on.
            self.voter_changer.append(self.membership.voters)
        elif not self.voter_changer.write(elected.number):
            self.voter_changer.settle()

    def on_lost(self, lost: Lost) -> None:
        """Ends this node's term or election attempt under a ballot number, and the change of voters that depended on
        it."""
        self._end_change_of(lost.number)
        if self.ballots.on_lost(lost):
            self._leaders.stop()

    def on_refused(self, number: int) -> None:
        """Ends an election attempt that the engine could not begin, and the change of voters that depended on it."""
        self._end_change_of(number)
        self.ballots.on_refused(number)

    def _end_change_of(self, number: int) -> None:
        if self.voter_changer.lose(number):
            self.voter_changer.reconfigure()

    # -- what the log says ---------------------------------------------------------------------------------------------

    def on_applied(self, applied: Applied) -> None:
        """Puts voters into force if the value applied at the next position names some."""
        self.history.seen(applied.position)
        if self.voter_changer.on_applied(applied):
            self.history.note(self.membership)

    def on_repaired(self, position: int) -> None:
        """Puts voters into force whose value was applied earlier, and whose payload has arrived now."""
        if self.voter_changer.on_repaired(position):
            self.history.note(self.membership)

    def on_copied(self, floor: Floor) -> None:
        """Puts the voters into force that another replica's journal names at its floor (first position), which the log
        here has reached. Ignores voters behind the engine's position: it learns them later, from the log or by asking
        again."""
        applied = self._engine.node.replica.applied.position
        # The engine must have come as far: its log on disk must never be older than the voters that it goes by.
        if floor.voters and floor.voters_position < max(applied, 0):
            voters = decode_voters(floor.voters)
            self.voter_changer.on_snapshot(voters, floor.voters_position, max(1, floor.position))
            if self.membership.is_known:
                self.history.installed(voters, floor.voters_position, max(floor.position, applied))
