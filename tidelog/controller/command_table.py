"""The table of all commands: for each its sender, the rights that it needs, and the functions that decide and answer
it.

All code that distinguishes commands reads this table: `decide`, the rights of clients (`judge.py`), and the check of a
broker's statements about itself (`broker/peer_claims.py`). A command without a row raises an error at import.

- A client's command is allowed by the rights of the client, whichever broker it is connected to.
- A broker's command is about that broker, or for its own work. A `Claim` names the message fields that identify the
  sender, which are compared with the connection's broker; brokers need no rights.
- The controller's own commands are never sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from tidelog.config.schema import BrokerConfig
from tidelog.controller import access_commands, commands, decide_cluster, decide_topics, partition_commands, rights
from tidelog.controller.commands import BrokerCommand, ClientCommand, Command, CommandAnswer, ControllerElsewhere, Done
from tidelog.controller.decide_access import decide_access
from tidelog.controller.decide_brokers import fence, heartbeat, note_stamps, register, remove
from tidelog.controller.decide_level import raise_level
from tidelog.controller.decide_losses import accept_loss
from tidelog.controller.decide_members import alter_members, report_leader, report_lost_votes
from tidelog.controller.decide_offsets_topic import create_offsets_topic
from tidelog.controller.decide_partitions import alter_partition, elect_leaders, hand_over
from tidelog.controller.decide_quotas import alter_quotas
from tidelog.controller.decide_reassignments import alter_reassignments
from tidelog.controller.decide_regrouping import regroup
from tidelog.controller.decide_unfit import report_lost, report_unfit
from tidelog.controller.decision import Decision
from tidelog.model.cluster import ClusterImage

C = TypeVar("C", bound=Command)
CC = TypeVar("CC", bound=ClientCommand)
Decide = Callable[[ClusterImage, C, BrokerConfig], Decision]
Needs = Callable[[ClusterImage, CC], Sequence[rights.Need]]


class Claim(NamedTuple):
    """The names of the fields in which a command identifies its sender; empty for a field that the command lacks."""

    node: str = ""
    epoch: str = ""
    incarnation: str = ""


NO_CLAIM: Final = Claim()
OF_BROKER: Final = Claim("node_id", "broker_epoch")
BY_WAY_OF: Final = Claim("via")


class Row(NamedTuple):
    """The properties of one kind of command."""

    decide: Callable[[ClusterImage, Any, BrokerConfig], Decision] | None
    """The deciding function; None if the active controller only records the command in memory."""
    claim: Claim = NO_CLAIM
    needs: Callable[[ClusterImage, Any], Sequence[rights.Need]] | None = None
    """A function that returns the rights that a client's command needs; None if it is no client's command."""
    answers: tuple[type[CommandAnswer], ...] = (Done,)
    """The types of answer that the deciding broker gives; a broker that is not the controller answers
    `ControllerElsewhere`."""
    is_sent: bool = True
    """False if only the controller itself issues the command, so that it is never sent."""


def _simple(decide: Callable[[ClusterImage, C], Decision]) -> Decide[C]:
    return lambda image, command, _config: decide(image, command)


def _client(
    kind: type[CC], decide: Decide[CC], needs: Needs[CC], claim: Claim = NO_CLAIM, answer: type[CommandAnswer] = Done
) -> tuple[type[Command], Row]:
    return kind, Row(decide, claim, needs, (answer,))


def _broker(
    kind: type[C], decide: Decide[C] | None, claim: Claim, *answers: type[CommandAnswer]
) -> tuple[type[Command], Row]:
    return kind, Row(decide, claim, answers=answers or (Done,))


def _own(kind: type[C], decide: Decide[C]) -> tuple[type[Command], Row]:
    return kind, Row(decide, is_sent=False)


COMMANDS: Final[Mapping[type[Command], Row]] = dict(
    (
        _client(commands.CreateTopic, decide_topics.create_topic, rights.create_topic, answer=commands.TopicPlaced),
        _client(commands.AddPartitions, decide_topics.add_partitions, rights.alter_topic, answer=commands.TopicPlaced),
        _client(commands.DeleteTopic, decide_topics.delete_topic, rights.delete_topic),
        _client(commands.AlterTopicConfigs, decide_topics.alter_configs, rights.alter_topic_configs),
        _client(commands.AlterQuotas, _simple(alter_quotas), rights.alter_cluster_configs),
        _client(commands.RemoveBroker, remove, rights.alter_cluster),
        _client(commands.RaiseLevel, _simple(raise_level), rights.alter_cluster, answer=commands.LevelAnswered),
        _client(
            partition_commands.ElectLeaders,
            elect_leaders,
            rights.alter_cluster,
            BY_WAY_OF,
            partition_commands.LeadersElected,
        ),
        _client(partition_commands.AlterReassignments, alter_reassignments, rights.reassign),
        _client(partition_commands.AcceptLoss, _simple(accept_loss), rights.give_up, BY_WAY_OF),
        _client(partition_commands.RegroupPartition, regroup, rights.give_up, BY_WAY_OF),
        _client(access_commands.StoreUser, decide_access, rights.alter_cluster),
        _client(access_commands.RemoveUser, decide_access, rights.alter_cluster),
        _client(access_commands.StoreToken, decide_access, rights.store_token),
        _client(access_commands.RemoveTokens, decide_access, rights.remove_tokens),
        _client(access_commands.AddAcls, decide_access, rights.alter_cluster),
        _client(access_commands.RemoveAcls, decide_access, rights.alter_cluster),
        _broker(commands.CreateOffsetsTopic, create_offsets_topic, NO_CLAIM, commands.TopicPlaced),
        _broker(
            commands.AllocateProducerIds,
            _simple(decide_cluster.allocate_producer_ids),
            NO_CLAIM,
            commands.ProducerIdBlock,
        ),
        _broker(
            commands.RegisterBroker,
            register,
            Claim("node_id", incarnation="incarnation"),
            commands.BrokerAdmitted,
            commands.RegistrationOutdated,
        ),
        _broker(commands.BrokerHeartbeat, heartbeat, OF_BROKER, commands.HeartbeatAnswered),
        # Told often, and kept in the controller's memory only: a record for each would fill the log.
        _broker(commands.MetadataApplied, None, OF_BROKER),
        _broker(commands.ReportSilence, None, OF_BROKER),
        _broker(commands.ReportRemoved, _simple(decide_topics.report_removed), Claim("node_id")),
        _broker(partition_commands.AlterPartition, alter_partition, OF_BROKER, partition_commands.PartitionsAltered),
        _broker(partition_commands.HandOver, hand_over, OF_BROKER, partition_commands.LeadersElected),
        _broker(partition_commands.ReportUnfitReplicas, report_unfit, OF_BROKER),
        _broker(partition_commands.ReportLostReplicas, report_lost, OF_BROKER),
        _broker(partition_commands.AlterMembers, alter_members, OF_BROKER, partition_commands.MembersAltered),
        _broker(partition_commands.ReportLostVotes, report_lost_votes, OF_BROKER),
        _broker(partition_commands.ReportPaxosLeader, report_leader, OF_BROKER),
        # A broker that could send these could fence others, or begin a term.
        _own(commands.LeadCluster, _simple(decide_cluster.lead)),
        _own(commands.FenceBroker, fence),
        _own(commands.NoteStamps, _simple(note_stamps)),
        _own(commands.AssignVoter, _simple(decide_cluster.assign_voter)),
        _own(commands.TakeSnapshot, _simple(decide_cluster.take_snapshot)),
        _own(commands.AgreeSnapshot, _simple(decide_cluster.agree_snapshot)),
    )
)
"""The table of all commands: the properties of each kind, by its class."""
CLIENT_COMMANDS: Final = tuple(kind for kind, row in COMMANDS.items() if row.needs is not None)
"""The commands that brokers send on behalf of their clients."""
WIRE_COMMANDS: Final = tuple(kind for kind, row in COMMANDS.items() if row.is_sent)
"""The commands that a controller accepts from other brokers."""


ANSWERS: Final[tuple[type[CommandAnswer], ...]] = tuple(
    dict.fromkeys((ControllerElsewhere, *(answer for row in COMMANDS.values() for answer in row.answers)))
)
"""All types of answer to a command."""


def _kinds(base: type[Command]) -> Iterator[type[Command]]:
    for kind in base.__subclasses__():
        if kind not in (BrokerCommand, ClientCommand):
            yield kind
        yield from _kinds(kind)


def check_rows(rows: Mapping[type[Command], Row]) -> None:
    """Raises `TypeError` if a kind of command has no row, or a client's command no rights."""
    for kind in _kinds(Command):
        if kind not in rows:
            raise TypeError(f"{kind.__name__} has no row in COMMANDS: who may give it, and what decides it?")
        # A client's command without rights would be open to everybody.
        if issubclass(kind, ClientCommand) is not (rows[kind].needs is not None):
            raise TypeError(f"{kind.__name__} is a client's command if it takes rights, and only then")


check_rows(COMMANDS)
