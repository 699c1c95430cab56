"""The commands and answers that travel between brokers."""

from __future__ import annotations

from tidelog.controller.commands import (
    AddPartitions,
    AllocateProducerIds,
    AlterTopicConfigs,
    BrokerAdmitted,
    BrokerHeartbeat,
    Command,
    CommandAnswer,
    ControllerElsewhere,
    CreateOffsetsTopic,
    CreateTopic,
    DeleteTopic,
    Done,
    HeartbeatAnswered,
    MetadataApplied,
    ProducerIdBlock,
    RegisterBroker,
    RegistrationOutdated,
    RemoveBroker,
    ReportRemoved,
    ReportSilence,
    TopicPlaced,
)
from tidelog.controller.partition_commands import (
    AcceptLoss,
    AlterMembers,
    AlterPartition,
    AlterReassignments,
    ElectLeaders,
    HandOver,
    LeadersElected,
    MembersAltered,
    PartitionsAltered,
    RegroupPartition,
    ReportLostReplicas,
    ReportLostVotes,
    ReportPaxosLeader,
    ReportUnfitReplicas,
)

WIRE_COMMANDS: tuple[type[Command], ...] = (
    CreateTopic,
    CreateOffsetsTopic,
    AddPartitions,
    DeleteTopic,
    AlterTopicConfigs,
    ReportRemoved,
    AllocateProducerIds,
    RegisterBroker,
    BrokerHeartbeat,
    MetadataApplied,
    ReportSilence,
    RemoveBroker,
    AlterPartition,
    ElectLeaders,
    HandOver,
    AlterReassignments,
    AcceptLoss,
    RegroupPartition,
    ReportUnfitReplicas,
    ReportLostReplicas,
    AlterMembers,
    ReportLostVotes,
    ReportPaxosLeader,
)
"""What a controller takes from other brokers."""

ANSWERS: tuple[type[CommandAnswer], ...] = (
    ControllerElsewhere,
    Done,
    TopicPlaced,
    ProducerIdBlock,
    BrokerAdmitted,
    RegistrationOutdated,
    HeartbeatAnswered,
    PartitionsAltered,
    LeadersElected,
    MembersAltered,
)
"""What it answers."""
