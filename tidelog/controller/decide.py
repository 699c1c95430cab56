"""The controller's core: `decide(image, command, config) -> Decision`.

Pure. Deciding looks at the image and changes nothing; the records take effect when the metadata log has them and
`apply` is done with them. Whatever is refused raises a `TidelogError`, and then nothing has happened. A command that
comes a second time, because its first answer was lost, finds its work done and gets the same answer.
"""

from __future__ import annotations

from tidelog.config.schema import BrokerConfig
from tidelog.controller.command_table import COMMANDS
from tidelog.controller.commands import Command
from tidelog.controller.decision import Decision
from tidelog.model.cluster import ClusterImage


def decide(image: ClusterImage, command: Command, config: BrokerConfig) -> Decision:
    """Returns what follows from a command. Raises what the deciding function of its kind raises."""
    decided_by = COMMANDS[type(command)].decide
    assert decided_by is not None, f"{command!r} is noted, not decided"
    return decided_by(image, command, config)
