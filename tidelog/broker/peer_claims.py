"""A broker names itself in its messages, and is believed only so far.

Whoever is at the other end of a connection, and however it has proved that, a message is believed only as far as a
correct broker could have sent it. A broker speaks for itself alone: the node that a message names as its sender is the
one that said hello on the connection, in the process that said it, and in no later epoch than the metadata give that
process. Ids of engines are judged by the log that they belong to (`consensus.routes`), numbers by what the log has
(`consensus.plausible`) and by the types of the fields (`model.wire_numbers`). What a broker says of its own disk, and
could be true, is believed: against a broker that lies about itself there is no help but to have more than one.

Every message has an entry in `CLAIMS`, or the brokers do not start; commands have theirs in the one list of commands,
`controller/command_table.py`. `OPEN` are those that a process may send before the
metadata name it as its node's broker: to found a cluster, to join it, to vote in its log, and to catch up with it. They
change nothing but by the rules of that log. A broker that is behind in the metadata takes others for strangers until it
has caught up, which takes only these; what it refuses meanwhile comes again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from tidelog.broker.consensus.messages import (
    DescribeQuorum,
    DescribeSnapshots,
    ElectionFrame,
    FetchSnapshot,
    PaxosFrame,
    QuorumDescribed,
    SnapshotPart,
    SnapshotsDescribed,
)
from tidelog.broker.groups.messages import GROUP_MESSAGES
from tidelog.broker.isr.replica_messages import FetchReplicas, ReplicasFetched, ReplicasFlushed
from tidelog.broker.paxos.messages import PAXOS_MESSAGES
from tidelog.broker.repair.repair_messages import REPAIR_MESSAGES
from tidelog.broker.rest_consumers.requests import REST_CONSUMER_MESSAGES
from tidelog.broker.routing.forwarding_messages import FORWARDING_MESSAGES
from tidelog.controller.command_table import ANSWERS, COMMANDS, NO_CLAIM, WIRE_COMMANDS, Claim
from tidelog.controller.commands import BrokerHeartbeat, RegisterBroker
from tidelog.model.cluster import BrokerInfo, ClusterImage
from tidelog.model.errors import BrokerNotRegistered, ForeignSender
from tidelog.model.ids import NodeId
from tidelog.transport.peer import Hello

NOBODY: Final = -1
"""`ElectLeaders` of an older version names no broker; the other fields cannot be -1."""

CLAIMS: Final[Mapping[type[msgspec.Struct], Claim]] = {
    **dict.fromkeys(
        (
            PaxosFrame,
            ElectionFrame,
            DescribeQuorum,
            QuorumDescribed,
            DescribeSnapshots,
            SnapshotsDescribed,
            FetchSnapshot,
            SnapshotPart,
            ReplicasFetched,
            *ANSWERS,
            *FORWARDING_MESSAGES,
            *REPAIR_MESSAGES,
            *PAXOS_MESSAGES,
            *GROUP_MESSAGES,
            *REST_CONSUMER_MESSAGES,
        ),
        NO_CLAIM,
    ),
    FetchReplicas: Claim("replica", "broker_epoch"),
    ReplicasFlushed: Claim("replica", "broker_epoch"),
    **{kind: COMMANDS[kind].claim for kind in WIRE_COMMANDS},
}
"""How each message names its sender. Those without a claim do not: their engine ids are judged by the log that they
belong to, what a broker hands on for a client is judged by the client's rights, and answers come to who has asked."""

OPEN: Final = (
    DescribeQuorum,
    DescribeSnapshots,
    FetchSnapshot,
    PaxosFrame,
    ElectionFrame,
    RegisterBroker,
    BrokerHeartbeat,
)
"""A process that the metadata do not name may send these. The controller judges heartbeats itself, since a broker that
was removed, or has a later life, is to be told so."""


def check_complete(messages: Sequence[type[msgspec.Struct]]) -> None:
    """Raises `TypeError` if a message has no claim, or a claim names a field that the message does not have."""
    for message in messages:
        if message not in CLAIMS:
            raise TypeError(f"{message.__name__} has no entry in CLAIMS: how does it name its sender?")
        lacking = [name for name in CLAIMS[message] if name and name not in message.__struct_fields__]
        if lacking:
            raise TypeError(f"{message.__name__} has no field {lacking[0]}")


class ClaimChecks:
    """Judges the messages that come to one broker. `image` is that of the cluster, as far as it is known here."""

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image

    def check(self, caller: Hello, message: msgspec.Struct, *, is_open: bool = False) -> None:
        """Raises `ForeignSender`, `BrokerNotRegistered`. `is_open`: whoever sends it, it does no harm here now."""
        broker = self._image().brokers.get(NodeId(caller.node_id))
        is_member = broker is not None and broker.incarnation == caller.incarnation
        if not is_member and not is_open and type(message) not in OPEN:
            raise BrokerNotRegistered(
                f"node {caller.node_id} is not registered as far as this broker has read the metadata, in the process "
                f"that sent {type(message).__name__}; nothing was done, ask again once it is"
            )
        claim = CLAIMS[type(message)]
        if claim is not NO_CLAIM:
            _check_claim(caller, broker, message, claim)


def _check_claim(caller: Hello, broker: BrokerInfo | None, message: msgspec.Struct, claim: Claim) -> None:
    node = getattr(message, claim.node)
    if node not in (caller.node_id, NOBODY):
        raise ForeignSender(f"node {caller.node_id} sent {type(message).__name__} in the name of node {node}")
    if claim.epoch and broker is not None:
        _check_epoch(caller, broker, message, getattr(message, claim.epoch))
    if claim.incarnation and getattr(message, claim.incarnation) != caller.incarnation:
        raise ForeignSender(f"node {node} sent {type(message).__name__} for another process than its own")


def _check_epoch(caller: Hello, broker: BrokerInfo, message: msgspec.Struct, epoch: int) -> None:
    """An older epoch is found stale by whoever acts on it; a later one of another process may be to be read yet."""
    is_member = broker.incarnation == caller.incarnation
    if epoch > broker.epoch if is_member else epoch == broker.epoch:
        whose = "its process" if is_member else "another process"
        raise ForeignSender(
            f"node {caller.node_id} sent {type(message).__name__} under the epoch {epoch}, and the metadata give "
            f"{whose} {broker.epoch}"
        )
