"""The voters of one log, and the only procedure that changes them, for every owner of an engine.

`Membership` (`replication.paxos.voters`) decides who votes; this module keeps the engine in line with it. A leader
changes the voters from C to C', which differ by one added, removed or replaced voter, in these steps:

    change -> hold -> join -> write -> settle

*Why no two quorums decide differently, and what a crash leaves.* Every candidate needs promises of a majority of C as
long as it has not applied VOTERS(C'), the value that puts C' in force. Let n be the ballot number of the term in
`write`.

hold     The leader takes no more values, and waits until all of its own are applied. Only majorities of C decide. The
         engine enforces this as well: it refuses VOTERS while a value of the term is not applied, and any value behind
         them. A crash leaves nothing: the change is in this process's memory alone.

join     The term ends. Under n, a fresh number, a majority of C *and* one of C' have to elect this leader again. (The
         number is fresh because each has one quorum from its promises to its last write, and C' promised nothing to the
         term before.) Every quorum of n meets every quorum of C, so n finds what those chose, and they find what n
         writes, as in plain Paxos. A crash leaves a number that is used up: the next candidate is one of C.

write    VOTERS(C') is the only value of n behind its barrier, and its last. It is chosen when majorities of C and of C'
         have accepted it. Until then no node decides by C' alone, because none has applied it. A crash leaves it with
         some voters. A later candidate of C either meets none of them: then it is not chosen, another value comes to
         its position, and C' is never in force. Or it finds the value, ends with `VotersFound`, and needs both
         majorities too.

settle   A node that applies VOTERS(C') decides by C', and this leader is elected again, under a fresh number, by C'
         alone. A candidate that still decides by C meets, in each majority of C, a voter that accepted VOTERS(C') under
         n: with a smaller number it is refused; with a larger one it learns of C', and joins C' to its quorum. A
         promise counts for a candidate of C' only if its sender has VOTERS(C') on disk, so from this election on a
         majority of C' knows that it decides, and C is not needed any more. A crash before leaves VOTERS(C') chosen:
         any node that applies it continues from here. Until this election is won, majorities of both may be needed.

A change that is not written yet is given up when its term, its time, or its caller ends: n wrote no voters, and never
will. A written change is left to its term, and if that is lost to the log, which shows whether it was chosen. An id
belongs to one disk for ever (`VoterSet.check_step`), so a disk that forgot its promises is in no majority. That all
this stays true over several changes, with candidates that missed them all, is proved in docs/replication-paxos.md
("Changing the voters").
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from tidelog.broker.consensus.engine import Engine
from tidelog.broker.consensus.inflight import fail, resolve
from tidelog.broker.consensus.routes import Routes
from tidelog.model.errors import ControllerLost, TidelogError
from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import Append, Applied, VotersFound
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


class Candidate(Protocol):
    """The owner of an engine, in its role as leader or candidate. How elections are won is its own matter."""

    @property
    def engine_id(self) -> int:
        """The engine id for this disk under the current membership."""

    def next_number(self) -> int | None:
        """Returns the ballot number of the next attempt to be elected; None if there is none left."""

    def hold(self) -> None:
        """Stops accepting new values: a change of voters begins."""

    def end_term(self) -> None:
        """Ends the current term or attempt, since other voters decide now."""

    def seek_election(self) -> None:
        """Campaigns among the voters that decide now; gives leadership up if this node is none of them."""


class VoterChanger:
    """Keeps one engine's quorum in line with the voters of its log, and changes them where the engine leads."""

    def __init__(
        self,
        engine: Engine,
        membership: Membership,
        routes: Routes,
        candidate: Candidate,
        *,
        refusal: Callable[[str], TidelogError],
    ) -> None:
        """`refusal` makes the error that is raised for a change that has certainly not begun."""
        self.membership = membership
        self._engine = engine
        self._routes = routes
        self._candidate = candidate
        self._refusal = refusal
        self._outcome: asyncio.Future[None] | None = None
        self._is_closed = False
        routes.set_voters(membership.voters)

    @property
    def is_changing(self) -> bool:
        """True while a call of `change` waits for its outcome."""
        return self._outcome is not None

    def close(self) -> None:
        """Fails a waiting change. Voters that are already proposed may still be chosen."""
        self._is_closed = True
        fail(self._outcome, ControllerLost("this broker is stopping; whether the voters change is unknown"))

    # -- the change, by the leader -----------------------------------------------------------------------------------

    async def change(self, voters: VoterSet, number: int) -> None:
        """Replaces the voters in force by `voters`, which differ by one step. `number` is the ballot number of the
        current term.

        Returns when the new voters have elected this node; if it is not one of them, when they are in force. Raises
        `refusal`'s error if nothing has begun, `ControllerLost` if the outcome is unknown.
        """
        if self.is_changing:
            raise self._refusal("this broker changes the voters already; try again")
        try:
            # hold: from here on only values that are in flight already are still decided, by majorities of C.
            self.membership.begin(voters, number)
        except InvalidVoters as error:
            raise self._refusal(f"the voters cannot be changed now: {error}") from error
        self._outcome = asyncio.get_running_loop().create_future()
        self._candidate.hold()
        self._join_if_drained()
        try:
            async with asyncio.timeout(CHANGE_S_MAX):
                await self._outcome
        except TimeoutError:
            # What is written may be chosen later, so this is no refusal.
            raise ControllerLost("the voters could not be changed in time; whether they will is unknown") from None
        finally:
            # A change that is not written yet is given up: its term wrote no voters, and never will. One that is
            # written may be chosen, and is left to the log.
            self._outcome = None
            self._give_up_unless_written()

    def _join_if_drained(self) -> None:
        coordinator = self._engine.node.coordinator
        # The last value of the term may be chosen and not applied: C' would decide behind a position that C has not
        # settled.
        if self.membership.phase is not Phase.DRAINING or coordinator is None or not coordinator.is_drained:
            return
        # join: a fresh number, since C' has promised nothing to the term so far. With the old one C' could accept
        # VOTERS without having told what it knows.
        number = self._candidate.next_number()
        if number is not None:
            self.membership.join(number)
            self.reconfigure()

    def write(self, number: int) -> bool:
        """Proposes the new voters if this node was elected under `number` for that; returns True if so: the term ends
        then."""
        # write: the only value of this number behind its barrier. Chosen, it has majorities of C and of C'.
        voters = self.membership.write(number)
        if voters is not None:
            self.append(voters)
        return voters is not None

    def append(self, voters: VoterSet) -> None:
        """Proposes these voters as the last value of this term."""
        # Count 0: voters take no offsets, so the state machines of all replicas keep their numbering.
        self._engine.step(Append(0, self._engine.payloads.hold(encode_voters(voters)), Kind.VOTERS))

    def settle(self) -> None:
        """Completes a waiting change, if this node is elected by the voters in force alone."""
        # settle: elected by C' alone. Before this, candidates of C may come, and majorities of both may be needed.
        if self.membership.phase is None:
            resolve(self._outcome)

    def lose(self, number: int) -> bool:
        """Ends the change that depends on the term or attempt under `number`. Returns True if the deciding voters have
        changed by that, so that `reconfigure` has to be called."""
        # An end of another term tells nothing of this change.
        if self.membership.changing_under != number:
            return False
        fail(
            self._outcome,
            ControllerLost("leadership was lost while the voters changed; whether they will change is unknown"),
        )
        return self.membership.on_lost(number)

    def is_overtaken(self, number: int) -> bool:
        """Gives up a change of voters that depends on another ballot number than `number`, the one under which this
        node is about to campaign. Returns True if the new voters were already part of the quorum; then another
        campaign, among the old voters, has begun in place of this one."""
        joined_under = self.membership.changing_under
        # Under a larger number than it joined for, the promises of C' are those of another attempt.
        if joined_under in (0, number) or not self.lose(joined_under):
            return False
        self.reconfigure()
        return True

    def _give_up_unless_written(self) -> None:
        """Gives up a change whose voters are not proposed yet, so that it does not delay the voters in force."""
        is_unwritten = self.membership.phase in (Phase.DRAINING, Phase.JOINING)
        if is_unwritten and not self._is_closed and self.lose(self.membership.changing_under):
            self.reconfigure()

    # -- what the log says, at every node ----------------------------------------------------------------------------

    def on_applied(self, applied: Applied) -> bool:
        """Puts voters into force if the applied value names some; advances a change that waits for it. Returns True if
        other voters decide now."""
        voters = None
        # VOTERS of an older era name voters that do not decide here any more.
        if applied.value.names_voters(self.membership.since):
            payload = self._engine.payload_of(applied.position, applied.value)
            if payload is None and applied.verdict is Verdict.APPLIED:
                # Unknown voters decide from here on. Whoever goes by the old ones now could elect beside them.
                self.membership.on_unread(applied.position)
                return False
            voters = None if payload is None else decode_voters(payload)
        is_changed = self.membership.on_applied(applied.position, voters, applied.verdict)
        if is_changed:
            self.reconfigure()
        self._join_if_drained()
        return is_changed

    def on_repaired(self, position: int) -> bool:
        """Puts voters into force whose payload has arrived after their value was applied. Returns True if other voters
        decide now."""
        slot = self._engine.node.replica.slots.get(position)
        if slot is None or not slot.value.names_voters(self.membership.since):
            return False
        return self.on_applied(Applied(position, slot.value, Verdict.APPLIED))

    def on_found(self, effect: VotersFound) -> None:
        """Adds voters, which ended an election attempt because they may be in force, to the quorum."""
        payload = self._engine.payload_of(effect.position, effect.value)
        # They may be in force: without their majority a value could be chosen beside what they have chosen.
        if payload is not None and self.membership.on_found(effect.position, effect.value, decode_voters(payload)):
            self.reconfigure()

    def on_snapshot(self, voters: VoterSet, position: int, end: int) -> None:
        """Puts the voters of a snapshot into force. The snapshot covers everything below `end`; the voters' value is at
        `position`."""
        if self.membership.on_snapshot(voters, position, end):
            self.reconfigure()

    def reconfigure(self) -> None:
        """Passes the current membership to the engine as its quorum; a leader is elected anew by the voters that
        decide."""
        # A term has one quorum from its promises to its last write, so another quorum is another term.
        self._candidate.end_term()
        self._routes.set_voters(self.membership.voters)
        me = self._candidate.engine_id
        self._engine.step(self.membership.reconfigure(me))
        self._candidate.seek_election()
        # A leader that removed itself is not elected again: its work ends when the others are in force.
        if me not in self.membership.quorum():
            resolve(self._outcome)
