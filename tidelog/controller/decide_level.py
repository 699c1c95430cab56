"""Decisions about the cluster's feature level, which permits records that only newer brokers understand.

The level rises to the highest that any registered broker supports, if every one of them supports it, and every voter of
the metadata log is a registered broker. Brokers that are away count with the levels of their registration; at level 1
registrations have no levels, so all brokers have to be present. A broker's statement holds for its present process: an
earlier or later process may be of an older version.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.controller.commands import CommandAnswer, LevelAnswered, RaiseLevel, SpokenLevels
from tidelog.controller.decision import Decision
from tidelog.controller.records import LevelRaised
from tidelog.model.cluster import ClusterImage
from tidelog.model.errors import UnsupportedLevel
from tidelog.model.ids import NodeId
from tidelog.model.levels import LevelRange


def raise_level(image: ClusterImage, command: RaiseLevel) -> Decision:
    """Raises the cluster's feature level. Raises `UnsupportedLevel`, which names the brokers that do not support the
    level, and their levels."""
    # The word of the running process counts for more than its registration: at level 1 that says nothing of levels.
    heard = _heard(image, command.spoken)
    spoken = {node: heard.get(node, broker.levels) for node, broker in image.brokers.items()}
    # The highest that anybody speaks, not the highest that all do: a half upgraded cluster is refused, with the names
    # of those that lag, and not raised half the way.
    level = max([image.level, *(levels.highest for levels in spoken.values())])
    unfit = [_words(node, levels, is_heard=node in heard) for node, levels in spoken.items() if level not in levels]
    # A voter that has not registered applies the same records, and nobody knows which it understands.
    strangers = sorted({voter.node_id for voter in image.voters} - {*map(int, image.brokers)})
    unfit += [f"broker {node} votes on the metadata log, and is not registered" for node in strangers]
    if unfit:
        raise UnsupportedLevel(
            f"the cluster stays at feature level {image.level}, since not all brokers speak level {level}: "
            f"{'; '.join(unfit)}. Upgrade these and start them, or remove them by `tidelog broker remove`"
        )

    def answer(after: ClusterImage) -> CommandAnswer:
        return LevelAnswered(after.position, image.level, level)

    if level == image.level or command.validate_only:
        return Decision(answer=answer)
    spoken_levels = tuple(
        SpokenLevels(node, broker.incarnation, spoken[node]) for node, broker in image.brokers.items()
    )
    return Decision((LevelRaised(level, spoken_levels),), answer)


def _heard(image: ClusterImage, spoken: Sequence[SpokenLevels]) -> dict[NodeId, LevelRange]:
    """Returns, by node id, the feature levels that the broker's registered process has reported itself; brokers that
    have reported none are left out."""
    # By incarnation: a process that was replaced since may have been of another version.
    levels_by_process = {(answer.node_id, answer.incarnation): answer.levels for answer in spoken}
    levels_of = {
        node: levels_by_process.get((broker.node_id, broker.incarnation)) for node, broker in image.brokers.items()
    }
    return {node: levels for node, levels in levels_of.items() if levels is not None}


def _words(node: NodeId, levels: LevelRange, *, is_heard: bool) -> str:
    if is_heard:
        return f"broker {node} speaks {levels}"
    return f"broker {node} is not heard of now, and is known for {levels}"
