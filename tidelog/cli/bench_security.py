"""Workloads of `tidelog bench` about security, on clusters started for them."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.bench.guesses import GuessesOptions, measure_guesses
from tidelog.bench.revocation import RevocationOptions, measure_revocation
from tidelog.bench.security import SecurityOptions, measure_security
from tidelog.cli.measuring import BatchBytes, ProtocolOption, workload
from tidelog.model.cluster import ISR


@workload(measure_security, SecurityOptions)
def security(
    rounds: Annotated[int, typer.Option(min=1, metavar="N", help="How often each is measured, in turn.")] = 7,
    requests: Annotated[int, typer.Option(min=1, metavar="N", help="Of batches, a round, for each size.")] = 300,
    batches: Annotated[int, typer.Option(min=1, metavar="N", help="In each request.")] = 4,
    batch_bytes: BatchBytes = 65536,
    records: Annotated[int, typer.Option(min=1, metavar="N", help="Single records a round.")] = 300,
    connections: Annotated[int, typer.Option(min=1, metavar="N", help="New ones a round, of each kind.")] = 1_000,
    protocol: ProtocolOption = ISR,
) -> None:
    """Compare brokers with TLS, tokens and ACLs to brokers without.

    Three clusters of three brokers run at once and get the same work in turn: batches of records of 100 bytes and of
    1,000, and single records. Shows the loss against plain text, the cost of a new connection for a broker, and the
    time to check rights among 1,000 ACLs.

    \b
    Examples:
      tidelog bench security
      tidelog bench security --rounds 3 --requests 200 --protocol paxos --json
    """


@workload(measure_revocation, RevocationOptions)
def revocation(
    times: Annotated[int, typer.Option(min=1, metavar="N", help="Of each: a token, a user, the ACLs of a user.")] = 100,
    at_once: Annotated[int, typer.Option(min=1, metavar="N", help="Of different users.")] = 5,
) -> None:
    """Revoke rights of users with open reads and streams.

    Shows the time until three brokers have ended these reads and streams and reject new ones, counted from the response
    to the revocation.

    \b
    Examples:
      tidelog bench revocation
      tidelog bench revocation --times 20 --at-once 1 --json
    """


@workload(measure_guesses, GuessesOptions)
def guesses(
    logins: Annotated[int, typer.Option(min=1, metavar="N", help="Wrong passwords of each kind of user.")] = 50,
    topics: Annotated[int, typer.Option(min=1, metavar="N", help="Questions about each kind of topic.")] = 500,
    reads: Annotated[int, typer.Option(min=1, metavar="N", help="Of others, alone and beside guesses.")] = 1_000,
    guessers: Annotated[int, typer.Option(min=1, metavar="N", help="That try passwords at one time.")] = 8,
) -> None:
    """Guess passwords and names of topics, and time the rejections.

    Shows the difference in time between responses about existing and unknown users, and about hidden and unknown
    topics; and the latency of other users' reads, alone and during continuous guesses.

    \b
    Examples:
      tidelog bench guesses
      tidelog bench guesses --logins 20 --guessers 32 --json
    """
