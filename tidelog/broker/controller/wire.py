"""The answers of a controller that travel between brokers. The commands are in `controller.command_table`."""

from __future__ import annotations

from tidelog.controller.commands import (
    BrokerAdmitted,
    CommandAnswer,
    ControllerElsewhere,
    Done,
    HeartbeatAnswered,
    LevelAnswered,
    ProducerIdBlock,
    RegistrationOutdated,
    TopicPlaced,
)
from tidelog.controller.partition_commands import LeadersElected, MembersAltered, PartitionsAltered

ANSWERS: tuple[type[CommandAnswer], ...] = (
    ControllerElsewhere,
    Done,
    TopicPlaced,
    ProducerIdBlock,
    BrokerAdmitted,
    RegistrationOutdated,
    HeartbeatAnswered,
    LevelAnswered,
    PartitionsAltered,
    LeadersElected,
    MembersAltered,
)
"""What it answers."""
