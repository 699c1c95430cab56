"""Checks of the senders of messages: a broker may send messages in its own name only.

However the process at the other end of a connection has authenticated itself, a message is accepted only if a correct
broker could have sent it. The node that a message names as its sender must be the one that introduced itself on the
connection, in the same process, and with no later broker epoch than the metadata give that process. Engine ids are
checked by the log that they belong to (`consensus.routes`), numbers by the log's state (`consensus.plausible`) and by
the field types (`model.wire_numbers`). Statements of a broker about its own disk are accepted if they could be true:
the only protection against a broker that lies about itself is to have more than one.

Every message type has an entry in `CLAIMS`, or brokers do not start; those of commands are in
`controller/command_table.py`. The types in `OPEN` may be sent by a process that the metadata do not name yet: to found
or join a cluster, to vote in its log, and to catch up with it. They change nothing outside that log's rules. A broker
that is behind in the metadata refuses messages of brokers that it does not know yet, until these types have let it
catch up; refused messages are repeated by their senders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from tidelog.broker.consensus.messages import (
    QUORUM_MESSAGES,
    DescribeQuorum,
    DescribeSnapshots,
    ElectionFrame,
    FetchSnapshot,
    PaxosFrame,
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
"""The node id -1, by which `ElectLeaders` of an older version names no broker; the other messages cannot contain it."""

CLAIMS: Final[Mapping[type[msgspec.Struct], Claim]] = {
    **dict.fromkeys(
        (
            *QUORUM_MESSAGES,
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
"""The fields in which each message type names its sender. Types without a claim name none: engine ids are checked by
their log, forwarded client requests by the client's rights, and answers by their request."""

OPEN: Final = (
    DescribeQuorum,
    DescribeSnapshots,
    FetchSnapshot,
    PaxosFrame,
    ElectionFrame,
    RegisterBroker,
    BrokerHeartbeat,
)
"""Message types that a process may send before the metadata name it. The controller checks heartbeats itself, so that
it can tell a broker that it was removed or that its node has registered in a later process."""


def check_complete(messages: Sequence[type[msgspec.Struct]]) -> None:
    """Raises `TypeError` if a message type has no entry in `CLAIMS`, or the entry names a field that the type lacks."""
    for message in messages:
        if message not in CLAIMS:
            raise TypeError(f"{message.__name__} has no entry in CLAIMS: how does it name its sender?")
        lacking = [name for name in CLAIMS[message] if name and name not in message.__struct_fields__]
        if lacking:
            raise TypeError(f"{message.__name__} has no field {lacking[0]}")


class ClaimChecks:
    """Checks of the senders of messages that one broker receives. `image` returns its metadata image."""

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image

    def check(self, caller: Hello, message: msgspec.Struct, *, is_open: bool = False) -> None:
        """Raises `BrokerNotRegistered` if the metadata do not name the sending process, `ForeignSender` if the message
        names another sender. `is_open` allows any process to send it."""
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
    """Raises `ForeignSender` if the sender names an epoch that is not its own. An older epoch is refused later, by the
    handler; a later one of another process may be in metadata that this broker has yet to apply."""
    is_member = broker.incarnation == caller.incarnation
    if epoch > broker.epoch if is_member else epoch == broker.epoch:
        whose = "its process" if is_member else "another process"
        raise ForeignSender(
            f"node {caller.node_id} sent {type(message).__name__} under the epoch {epoch}, and the metadata give "
            f"{whose} {broker.epoch}"
        )
