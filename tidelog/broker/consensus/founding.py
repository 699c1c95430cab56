"""How a new disk comes to its log: it founds the log together with others, or joins an existing one.

A disk that remembers a log resumes it, and never comes here. A new disk goes through these steps:

    ask -> judge -> begin -> Found: EMPTY, STARTING, VOTING

ask      Every named server and every contact is asked what it knows. Nothing is written.
judge    If any of them is in a log, this disk joins it: it learns, and has no vote until the log gives it an id. If the
         same node id used to vote there, the voters replace the old disk: a new disk is another voter. Only if *all*
         named servers answer, are new, and name the same voters do they found a log. Its id and its voters are computed
         from these answers, so all servers come to the same result.
         A new disk in a directory that held data before (`Past`) only joins: it has lost its promises, so it founds
         nothing, and other servers do not found with it. A log whose voters have lost a majority of their disks is not
         joined: it can decide nothing any more.
begin    `LogMember.begin` stores the result. For a disk that joins it is durable when this returns. A founder stores
         nothing: until its status is STARTING it asks again after a crash, and may get another result.
Found    The engine's two phases (`replication.paxos.recover`). STARTING, with the incarnations of all founders, is on
         disk before any founder votes; a vote needs every founder STARTING with the same list, or one of them VOTING.

*Why no two groups are founded that could decide differently, and what a crash leaves.* The judging step is not what
makes it safe: two disks may judge at different times, and differently. It only decides whether to begin. A founder
votes if all founders, by their incarnations, have the same list on disk. So two groups that share a disk are one: its
list is written once. A wiped founder has another incarnation, is in no list, and cannot vote as a founder; if the
others already vote it finds them, and joins; if not, the founding cannot end any more, and an error says so, with
nothing stored yet. A crash before STARTING leaves a new disk; after it, a disk that resumes and asks its fellow
founders again. Groups without a common disk are two logs with two ids, and peers of different ids refuse each other:
an operator who names half of the servers to each half has asked for two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog
from msgspec import structs
from xxhash import xxh3_64_hexdigest

from tidelog.broker.consensus.lost_voters import lacks_majority, lost_voters
from tidelog.broker.consensus.messages import DescribeQuorum, QuorumDescribed
from tidelog.broker.consensus.waiting import Past, waiting_for
from tidelog.config.errors import ConfigError
from tidelog.model.cluster import Voter
from tidelog.model.errors import TidelogError, WrongCluster
from tidelog.model.ports import Entropy
from tidelog.replication.paxos.state import Metadata
from tidelog.replication.paxos.voters import VoterSet, decode_voters, encode_voters
from tidelog.transport.peer import PeerBusy, PeerNode, PeerRefused
from tidelog.transport.peer.hello import recovered_apart

ASK_S_MAX = 1.0
ASK_AGAIN_S = 0.05
ASK_AGAIN_S_MAX = 1.0
COMPLAIN_AFTER = 7
COMPLAIN_EVERY = 20
"""Rounds of questions without a result between two log lines that say so; the first comes after `COMPLAIN_AFTER`
rounds."""

logger = structlog.get_logger("tidelog.quorum")

Address = tuple[str, int]
NO_PAST = Past()
Ask = Callable[[Address], Awaitable[QuorumDescribed]]


@dataclass(frozen=True, slots=True)
class NamedVoter:
    """A voter that the setting `cluster.voters` names: its node id and address."""

    node_id: int
    address: Address

    def __str__(self) -> str:
        return f"{self.node_id}@{self.address[0]}:{self.address[1]}"


@dataclass(frozen=True, slots=True)
class LogOrigin:
    """The log that a new disk founds or joins, with its voters."""

    cluster_id: str
    voters: VoterSet
    is_founder: bool
    """True if the engine is to found the log with these voters; False if the log exists, and this disk only
    learns it."""
    generation: int = 0
    """Number of times that the cluster's metadata log was begun anew by an operator (`tidelog cluster recover`)."""
    recovery_id: str = ""
    """The id of the last recovery of the metadata log by an operator; empty if there was none."""


def _tell_nobody(reason: str) -> None:
    """Ignores the reason why a disk waits: it is in the operator's log anyway."""


async def find_origin(
    me: NamedVoter,
    incarnation: str,
    named: Sequence[NamedVoter],
    contacts: Sequence[Address],
    ask: Ask,
    entropy: Entropy,
    *,
    named_by: str = "cluster.voters",
    past: Past = NO_PAST,
    tell: Callable[[str], None] = _tell_nobody,
) -> LogOrigin:
    """Decides for a new disk whether it joins an existing log or founds one with the other `named` voters, and returns
    which.

    `contacts` are brokers of an existing cluster (`--join`); `named_by` is the setting that named the voters, for error
    messages; `tell` is called with the reason whenever the disk has to wait. Raises `ConfigError` if the answers
    contradict each other, `WrongCluster` if they are of another cluster than this directory's `past`. Waits without end
    for voters that do not answer, since founding without them would be unsafe.
    """
    node_id = me.node_id
    peers = [voter for voter in named if voter.node_id != node_id]
    # Nobody else is named, so there is nobody who could know of another log.
    if not peers and not contacts and past.may_found:
        return _founding({node_id: incarnation}, named or [me], entropy.token_hex(8))
    addresses = [address for address in (*contacts, *(voter.address for voter in peers)) if address != me.address]
    pause_s, rounds = ASK_AGAIN_S, 0
    while True:
        answers = {address: await _ask(ask, address) for address in addresses}
        described = [answer for answer in answers.values() if answer is not None]
        origin = _joining(node_id, described, named_by, past)
        lost = [] if origin is None else lost_voters(origin.voters, {node_id: incarnation}, described)
        # A log whose voters have lost a majority of their disks decides nothing any more: a learner would wait for
        # ever.
        if origin is not None and not lacks_majority(origin.voters, lost):
            return origin
        if origin is None and not past.is_shared(described):
            founding = _from_answers(node_id, incarnation, named, described, named_by)
            # A contact is a broker of an existing cluster; one that does not answer yet is no reason to found another.
            if founding is not None and not contacts:
                return founding
        rounds += 1
        silent = [f"{host}:{port}" for (host, port), answer in answers.items() if answer is None]
        reason = waiting_for(past, described, silent, [voter.node_id for voter in lost])
        tell(reason)
        if rounds % COMPLAIN_EVERY == COMPLAIN_AFTER:
            logger.warning("not part of a cluster yet", waits=reason)
        await asyncio.sleep(pause_s * entropy.uniform(1, 2))
        pause_s = min(pause_s * 1.5, ASK_AGAIN_S_MAX)


async def ask_member(peers: PeerNode, address: Address) -> QuorumDescribed:
    """Returns the description that the broker at this address gives of its log. Raises the `TidelogError` that the
    broker answers, `PeerRefused` if one of the brokers rejects the other, `PeerUnreachable`, `PeerLost` or
    `TimeoutError`."""
    answer = await peers.request_at(*address, DescribeQuorum(), deadline_s=ASK_S_MAX)
    assert isinstance(answer.message, QuorumDescribed)
    return answer.message


async def _ask(ask: Ask, address: Address) -> QuorumDescribed | None:
    """Returns the answer of the broker at an address; None if it does not answer or is busy. Raises `ConfigError` if it
    refuses this broker, as for a node id that is in use."""
    try:
        return await ask(address)
    except PeerBusy:
        return None
    except PeerRefused as error:
        raise ConfigError(f"the broker at {address[0]}:{address[1]} refuses this one: {error}") from error
    except (TidelogError, OSError, TimeoutError):
        # It counts as silent, and not as new: it may be of a log already.
        return None


def _joining(node_id: int, answers: Sequence[QuorumDescribed], named_by: str, past: Past) -> LogOrigin | None:
    """Returns how to join the cluster that the answers show; None if they show none. Raises `ConfigError`,
    `WrongCluster`."""
    for answer in answers:
        theirs = answer.remembers or (answer.cluster_id if answer.voters else "")
        if past.cluster_id and theirs not in ("", past.cluster_id):
            raise WrongCluster(
                f"this data directory belongs to cluster {past.cluster_id}, and node {answer.node_id}, which "
                f"{named_by} or --join names, to {theirs}; correct that setting, or choose another log.dir"
            )
    # Whoever was not there when the log was begun anew knows voters of the past, and is refused by those of today.
    generation = max([past.generation, *(answer.generation for answer in answers)])
    members = [answer for answer in answers if answer.voters and answer.generation == generation]
    if not members:
        return None
    remembered = {answer.remembers for answer in answers if answer.remembers}
    clusters = sorted(remembered.union(answer.cluster_id for answer in members))
    if len(clusters) > 1:
        raise ConfigError(
            f"the brokers named belong to several clusters ({', '.join(clusters)}); name brokers of one cluster in "
            f"{named_by} or --join"
        )
    recovery_id = _recovery_of(node_id, members, past)
    # The newest voters are the ones most likely to be there; they are only asked, and decide nothing by this.
    newest = decode_voters(max(members, key=lambda member: member.voters_position).voters)
    return LogOrigin(clusters[0], newest, is_founder=False, generation=generation, recovery_id=recovery_id)


def _recovery_of(node_id: int, members: Sequence[QuorumDescribed], past: Past) -> str:
    """Returns the id of the recovery with which the members of the newest generation began. Raises `WrongCluster` if
    they began with two different ones, or if this disk began with another."""
    generation = members[0].generation
    recovery_ids = {member.node_id: member.recovery_id for member in members}
    if past.recovery_id and past.generation == generation:
        recovery_ids[node_id] = past.recovery_id
    if len(set(recovery_ids.values())) > 1:
        raise WrongCluster(recovered_apart(generation, recovery_ids))
    return members[0].recovery_id


def _from_answers(
    node_id: int, incarnation: str, named: Sequence[NamedVoter], answers: Sequence[QuorumDescribed], named_by: str
) -> LogOrigin | None:
    """Returns how to found a log if all named voters are new, or are already founding with this very disk; else None.
    Raises `ConfigError`."""
    ours = tuple(map(str, named))
    for answer in answers if named else ():
        # Founders that name different voters could be two majorities of two logs.
        if tuple(sorted(answer.configured_voters)) != tuple(sorted(ours)):
            raise ConfigError(
                f"{named_by} differs between brokers: here it is {', '.join(ours)}, and on node {answer.node_id} "
                f"{', '.join(answer.configured_voters) or 'empty'}; make them equal, then start again"
            )
    incarnations = {answer.node_id: answer.incarnation for answer in answers} | {node_id: incarnation}
    if node_id not in [voter.node_id for voter in named]:
        return None
    # All of them: one that does not answer may be founding with others, or be of a log already.
    if any(voter.node_id not in incarnations for voter in named):
        return None
    begun = [answer for answer in answers if answer.founders]
    # A wiped founder cannot take the place of its old disk: that may have said STARTING, and be counted by the others.
    if begun and any(identity not in begun[0].founders for identity in _identities(incarnations, named)):
        raise ConfigError(
            "the cluster's founding had begun when a disk was lost, and cannot be ended; nothing has been stored yet: "
            f"empty the data directories of all brokers in {named_by}, then start them again"
        )
    # Each founder comes to the same id: by what has begun, or by drawing it from the very same voters.
    cluster_id = begun[0].cluster_id if begun else ""
    return _founding(incarnations, named, cluster_id)


def _identities(incarnations: dict[int, str], named: Sequence[NamedVoter]) -> list[tuple[int, str]]:
    """Returns voter id and incarnation of each founder; ids count from 1, in the order of the node ids."""
    # Sorted: all founders have to number themselves alike without a word.
    nodes = sorted(voter.node_id for voter in named)
    return [(number, incarnations[node]) for number, node in enumerate(nodes, start=1)]


def _founding(incarnations: dict[int, str], named: Sequence[NamedVoter], cluster_id: str) -> LogOrigin:
    addresses = {voter.node_id: voter.address for voter in named}
    identities = _identities(incarnations, named)
    voters = [
        Voter(voter_id, node, identity, *addresses[node])
        for (voter_id, identity), node in zip(identities, sorted(addresses), strict=True)
    ]
    # Drawn from the disks' incarnations: the same servers with new disks found another cluster.
    drawn = xxh3_64_hexdigest(encode_voters(VoterSet(tuple(voters), len(voters) + 1)))
    return LogOrigin(cluster_id or drawn, VoterSet(tuple(voters), len(voters) + 1), is_founder=True)


def founders_of(metadata: Metadata, voters: VoterSet) -> VoterSet:
    """Returns these voters, with the founders' incarnations replaced by those under which they founded the log."""
    incarnations = dict(metadata.founders)
    corrected = tuple(
        # What the founders had on disk when they began to vote is binding, not what a disk was told while it judged.
        structs.replace(voter, incarnation=incarnations.get(voter.voter_id, voter.incarnation))
        for voter in voters.voters
    )
    return VoterSet(corrected, voters.next_voter_id)
