"""Planted bugs of belief: each has brokers take something for true that no correct broker has said, and some story with
forged messages has to show what comes of it. (That anybody may use an engine's id, no story has shown: unit tests of
routes do.)"""

from __future__ import annotations

from contextlib import AbstractContextManager

from tests.sim.planting import Mutant, all_patched
from tidelog.broker import peer_claims
from tidelog.broker.consensus import elected_log
from tidelog.broker.paxos import replica
from tidelog.broker.peer_answers import AnswerChecks
from tidelog.sim.kit.patching import patched
from tidelog.transport.peer.hello import Hello, Incarnations


def believe_any_name() -> AbstractContextManager[None]:
    """A message is from whoever it names."""
    return patched(peer_claims, "_check_claim", lambda caller, broker, message, claim: None)


def promise_any_number() -> AbstractContextManager[None]:
    """A ballot or a position is taken that fits into its field."""
    return all_patched(
        [
            (elected_log, "check_paxos", lambda frame, known: None),
            (elected_log, "check_election", lambda frame, known: None),
            (replica, "check_paxos", lambda frame, known: None),
        ]
    )


def believe_a_hello() -> AbstractContextManager[None]:
    """The life of a node that says the largest epoch is the newest."""
    hear = Incarnations.hear

    def believe(lives: Incarnations, theirs: Hello) -> str | None:
        why = hear(lives, theirs)
        if why is None and theirs.broker_epoch >= 0:
            lives.accept_only(theirs.node_id, theirs.incarnation, theirs.broker_epoch)
        return why

    return patched(Incarnations, "hear", believe)


def serve_strangers() -> AbstractContextManager[None]:
    """A process that the metadata do not name may ask for everything."""
    return patched(peer_claims, "OPEN", tuple(peer_claims.CLAIMS))


def believe_any_answer() -> AbstractContextManager[None]:
    """Whatever comes back is the answer to what was asked."""
    return patched(AnswerChecks, "check", lambda checks, answerer, asked, answer: None)


MUTANTS: tuple[Mutant, ...] = (
    believe_any_name,
    promise_any_number,
    believe_a_hello,
    serve_strangers,
    believe_any_answer,
)
