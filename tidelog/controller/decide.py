"""The controller's decisions: `decide(image, command, config) -> Decision`.

Pure. Deciding reads the image and changes nothing; the records take effect when they are in the metadata log and
`apply` has applied them. A refused command raises a `TidelogError`, and has no effect. A command that comes a second
time, because its first answer was lost, finds its work done and gets the same answer.
"""

from __future__ import annotations

from tidelog.config.schema import BrokerConfig
from tidelog.controller.command_table import COMMANDS
from tidelog.controller.commands import Command
from tidelog.controller.decision import Decision
from tidelog.model.cluster import ClusterImage


def decide(image: ClusterImage, command: Command, config: BrokerConfig) -> Decision:
    """Returns the records and the answer for a command. Raises the `TidelogError` with which the command is refused: it
    has no effect then."""
    decided_by = COMMANDS[type(command)].decide
    assert decided_by is not None, f"{command!r} is noted, not decided"
    return decided_by(image, command, config)
