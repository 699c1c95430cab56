"""Elections and voters of one replica: what it does when the controller names it, and how its leader changes who votes.

Who votes in a partition's log the log alone says (`Membership`); the metadata says whom the controller wants. A change
is one voter more, one less, or one for another, and has the steps of `replication.paxos.voters`: the leader drains what
is on its way, is elected again by majorities of the old voters and of the new, appends the new set, and is elected once
more, by the new alone. All that is one leader epoch; each reign has an attempt of it (`ballots`). Producers wait in the
mailbox meanwhile, for a few round trips.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidelog.broker.consensus.engine import Engine
from tidelog.broker.consensus.inflight import fail, resolve
from tidelog.broker.consensus.routes import Routes
from tidelog.broker.paxos.ballots import BallotNumbers
from tidelog.broker.paxos.journal import Floor, VoterHistory
from tidelog.model.errors import ControllerLost, LeaderNotAvailable
from tidelog.model.ports import Entropy
from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import Append, Applied, Elected, Enlist, Lost, VotersFound
from tidelog.replication.paxos.state import Kind
from tidelog.replication.paxos.voters import (
    InvalidVoters,
    Membership,
    Phase,
    VoterSet,
    decode_voters,
    encode_voters,
)

CHANGE_S_MAX = 10.0


class Voting:
    """One replica's. `ended` is called when a reign of this broker is over; with True if it goes on after a pause."""

    def __init__(
        self,
        engine: Engine,
        membership: Membership,
        history: VoterHistory,
        routes: Routes,
        entropy: Entropy,
        engine_id: int,
        ended: Callable[[bool], None],
    ) -> None:
        self.membership = membership
        self.history = history
        self._engine = engine
        self._routes = routes
        self._ended = ended
        self._changed: asyncio.Future[None] | None = None
        metadata = engine.node.replica
        self.ballots = BallotNumbers(
            engine.step, lambda: metadata.metadata, lambda: membership.is_known, entropy, engine_id=engine_id
        )
        routes.set_voters(membership.voters)

    @property
    def is_changing(self) -> bool:
        """Does this leader change the voters just now?"""
        return self._changed is not None

    @property
    def is_leading(self) -> bool:
        """Elected under the number that counts, with no change of voters to be made in this reign."""
        coordinator = self._engine.node.coordinator
        is_elected = coordinator is not None and coordinator.number == self.ballots.attempt
        return is_elected and self.membership.phase is None

    def enlist(self, engine_id: int) -> None:
        """This disk has an id under which it has never voted."""
        self.ballots.engine_id = engine_id
        if self._engine.node.node != engine_id:
            self.ballots.begin_anew()
            self._engine.step(self.membership.reconfigure(engine_id))
        self._engine.step(Enlist())

    def close(self) -> None:
        """No timer fires any more, and nobody waits."""
        self.ballots.close()
        fail(self._changed, ControllerLost("this broker is stopping; whether the voters change is unknown"))

    # -- elections ---------------------------------------------------------------------------------------------------

    def on_elected(self, elected: Elected) -> None:
        """A barrier of this node is applied."""
        if elected.number != self.ballots.attempt:
            return
        voters = self.membership.write(elected.number)
        if voters is not None:
            self._engine.step(Append(0, self._engine.payloads.hold(encode_voters(voters)), Kind.VOTERS))
        elif self.membership.phase is None:
            resolve(self._changed)

    def on_lost(self, lost: Lost) -> None:
        """A reign of this node, or an attempt, has ended."""
        self._end_change_of(lost.number)
        if self.ballots.on_lost(lost):
            self._ended(False)

    def on_refused(self, number: int) -> None:
        """An attempt cannot begin."""
        self._end_change_of(number)
        self.ballots.on_refused(number)

    def on_found(self, found: VotersFound) -> None:
        """An attempt ended because others may vote."""
        payload = self._engine.payload_of(found.position, found.value)
        if payload is not None and self.membership.on_found(found.position, found.value, decode_voters(payload)):
            self._reconfigure()

    # -- what the log says -------------------------------------------------------------------------------------------

    def on_applied(self, applied: Applied) -> None:
        """The next position is in force; again, when the payload of voters has come."""
        self.history.seen(applied.position)
        voters = None
        if applied.value.kind is Kind.VOTERS:
            payload = self._engine.payload_of(applied.position, applied.value)
            if payload is None and applied.verdict is Verdict.APPLIED:
                self.membership.on_unread(applied.position)
                return
            voters = None if payload is None else decode_voters(payload)
        if self.membership.on_applied(applied.position, voters, applied.verdict):
            self.history.note(self.membership)
            self._reconfigure()
        self._join_if_drained()

    def on_repaired(self, position: int) -> None:
        """A payload has come."""
        slot = self._engine.node.replica.slots.get(position)
        if slot is not None and slot.value.kind is Kind.VOTERS:
            self.on_applied(Applied(position, slot.value, Verdict.APPLIED))

    def on_copied(self, floor: Floor) -> None:
        """Another replica tells who voted at its floor, and the log here reaches it. Of voters that the engine has not
        come to, it learns when it has: from the log, or by asking again."""
        if floor.voters and floor.voters_position < max(self._engine.node.replica.applied.position, 0):
            voters, end = decode_voters(floor.voters), max(1, floor.position)
            if self.membership.on_snapshot(voters, floor.voters_position, end):
                self._reconfigure()
            if self.membership.is_known:
                self.history.installed(
                    voters, floor.voters_position, max(floor.position, self._engine.node.replica.applied.position)
                )

    def on_jumped(self, begin: int) -> None:
        """The log goes on there, and others may have been made voters before."""
        self.membership.on_jumped(begin)

    def _reconfigure(self) -> None:
        """The engine goes by what the membership says now; a leader is elected anew among those who vote."""
        self.ballots.begin_anew()
        self._ended(self.is_changing)
        self._routes.set_voters(self.membership.voters)
        me = self._engine.node.node
        self._engine.step(self.membership.reconfigure(me))
        if me in self.membership.quorum():
            self.ballots.campaign()
        else:
            self.ballots.abdicate()
            resolve(self._changed)

    # -- changing who votes --------------------------------------------------------------------------------------------

    async def change(self, voters: VoterSet) -> None:
        """Has these vote in place of those in force, from whom they differ by one change (`VoterSet.with_change`).

        Returns when they have elected this broker; if it is not one of them, when they are in force. Raises
        `LeaderNotAvailable` if nothing has begun, `ControllerLost` if it may have.
        """
        if not self.is_leading or self.is_changing:
            raise LeaderNotAvailable("this broker cannot change the voters now; try again")
        try:
            self.membership.begin(voters, self.ballots.attempt)
        except InvalidVoters as error:
            raise LeaderNotAvailable(f"the voters cannot be changed now: {error}") from error
        self._changed = asyncio.get_running_loop().create_future()
        self._ended(True)
        self._join_if_drained()
        try:
            async with asyncio.timeout(CHANGE_S_MAX):
                await self._changed
        except TimeoutError:
            raise ControllerLost("the voters could not be changed in time; whether they will is unknown") from None
        finally:
            self._changed = None
            self._give_up_change()

    def _join_if_drained(self) -> None:
        coordinator = self._engine.node.coordinator
        if self.membership.phase is Phase.DRAINING and coordinator is not None and coordinator.is_drained:
            number = self.ballots.next_number()
            if number is not None:
                self.membership.join(number)
                self._reconfigure()

    def _give_up_change(self) -> None:
        """One that came to nothing in time must not hold up those in force."""
        phase = self.membership.phase
        if phase is Phase.DRAINING or phase is Phase.JOINING:
            self._end_change_of(self.membership.changing_under)

    def _end_change_of(self, number: int) -> None:
        if self.membership.phase is None or self.membership.changing_under != number:
            return
        fail(self._changed, ControllerLost("the reign ended while the voters changed; whether they will is unknown"))
        if self.membership.on_lost(number):
            self._reconfigure()
