"""How a new disk comes to its log: founded with others, or joined. One way, for clusters and for logs by themselves.

A disk that remembers a log resumes it, whatever anybody says, and never comes here. A new one goes in named steps:

    ask -> judge -> begin -> Found: EMPTY, STARTING, VOTING

ask      Every server that is named, and every contact, is asked what it knows. Nothing is written anywhere.
judge    If any of them is of a log, this disk joins it: it learns, and has no vote until the log gives it an id. If it
         used to vote there under the same node id, the voters replace it: a new disk is another voter. Only if *all*
         named answer, all of them new and naming the same voters, do they found a log. Its id and its voters are drawn
         from what they are, so each comes to the same without being told.
         A disk that is new in a directory with a past (`Past`) only joins: it lost what it had promised, and nobody
         founds with it. Nor does anybody join a log whose voters have lost a majority of their disks: it is dead.
begin    `LogMember.begin` keeps what was judged. A disk that joins has written it down when this returns. One that
         founds has not: until its status says STARTING it may ask anew after a crash, and be told otherwise.
Found    The engine's two phases (`replication.paxos.recover`). STARTING, with the incarnations of all founders, is on
         disk before anybody votes; a vote needs every founder STARTING with the same list, or one of them VOTING.

*Why no two groups are founded that could decide differently, and what a crash leaves.* Judging is not what makes it
safe: two disks may judge at different times, and differently. It only decides whether to begin. A founder votes if all
founders, by their incarnations, have said so on disk. So two groups that share a disk are one: its list is written
once. A wiped founder has another incarnation, is in no list, and cannot vote as one; if the rest already vote it finds
them, and joins; if not, the founding can end no more, and says so, with nothing stored yet. A crash before STARTING
leaves a new disk; after it, a disk that resumes and asks its fellow founders again. Groups without a common disk are
two logs with two ids, and peers of different ids refuse each other: who names half of the servers to each half has
asked for two.
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
"""Rounds without an outcome before the first line in the log, some two seconds, and between any two."""

logger = structlog.get_logger("tidelog.quorum")

Address = tuple[str, int]
NO_PAST = Past()
Ask = Callable[[Address], Awaitable[QuorumDescribed]]


@dataclass(frozen=True, slots=True)
class NamedVoter:
    """An entry of `cluster.voters`."""

    node_id: int
    address: Address

    def __str__(self) -> str:
        return f"{self.node_id}@{self.address[0]}:{self.address[1]}"


@dataclass(frozen=True, slots=True)
class LogOrigin:
    """The log that a new disk founds, or joins."""

    cluster_id: str
    voters: VoterSet
    is_founder: bool
    """The engine is to found this cluster with these voters; otherwise they exist, and this broker only learns."""
    generation: int = 0
    """How often the cluster's metadata log was begun anew."""
    recovery_id: str = ""
    """The id of the last time."""


def _tell_nobody(reason: str) -> None:
    """Drops a reason: whoever has the log has it there."""


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
    """Decides for a new disk: join a log that there is, or found one with the other voters that are `named`.

    `contacts` are brokers of an existing cluster (`--join`); `named_by` says to people what named the voters. Raises
    `ConfigError` if these contradict each other, `WrongCluster` if they are of another cluster than the `past` is;
    waits for ever for voters that do not answer, and says so in the log and to `tell`: founding without them would be
    unsafe.
    """
    node_id = me.node_id
    others = [voter for voter in named if voter.node_id != node_id]
    # Nobody else is named, so there is nobody who could know of another log.
    if not others and not contacts and past.may_found:
        return _founding({node_id: incarnation}, named or [me], entropy.token_hex(8))
    addresses = [address for address in (*contacts, *(voter.address for voter in others)) if address != me.address]
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
    """Asks the broker at this address what it knows of its log. Raises as `PeerNode.request_at`."""
    answer = await peers.request_at(*address, DescribeQuorum(), deadline_s=ASK_S_MAX)
    assert isinstance(answer.message, QuorumDescribed)
    return answer.message


async def _ask(ask: Ask, address: Address) -> QuorumDescribed | None:
    """Returns what is answered; None if nothing is, or not now. Raises `ConfigError` if the broker there will not talk
    to this one, which is new: it has the same node id."""
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
    """Returns how to join the cluster that any of the answers is of; None if none is. Raises `ConfigError`,
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
    """Returns the id of the recovery by which members of one generation began. Raises `WrongCluster` if there are two,
    or if this disk is of another one."""
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
    """Returns how to found a log, if all named voters are new, or are in the midst of founding with this very disk;
    else None. Raises `ConfigError`."""
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
    """Returns voter id and incarnation of each founder: ids count from 1, in the order of the node ids."""
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
    """Returns these voters, the founders among them with the incarnations by which they founded the log."""
    incarnations = dict(metadata.founders)
    corrected = tuple(
        # What the founders had on disk when they began to vote is binding, not what a disk was told while it judged.
        structs.replace(voter, incarnation=incarnations.get(voter.voter_id, voter.incarnation))
        for voter in voters.voters
    )
    return VoterSet(corrected, voters.next_voter_id)
