"""Decisions about accepted losses: offset ranges of a partition that an operator gives up.

A broker that asked the replicas has found that no copy is left; here only the limits are checked. A range that was
given up before keeps its first record, so a command that comes twice, or two that overlap, end in the union.
"""

from __future__ import annotations

from tidelog.controller.decision import Decision
from tidelog.controller.partition_commands import AcceptLoss
from tidelog.controller.records import GivenUpRange, LossAccepted
from tidelog.model.cluster import ClusterImage, PartitionInfo
from tidelog.model.errors import InvalidRequest, UnknownPartition, UnknownTopic
from tidelog.model.losses import LOSSES_MAX, LostRanges

RANGES_MAX = 64
"""The most ranges that one command may give up."""
STATEMENTS_MAX = 100
"""The most replicas whose statements about one given-up range a command may carry."""
DIGESTS_MAX = 64
"""The most batches that a range may name."""
WORD_CHARS_MAX = 256


def accept_loss(image: ClusterImage, command: AcceptLoss) -> Decision:
    """Records that an operator gives up ranges. Raises `UnknownTopic`, `UnknownPartition`, or `InvalidRequest` for
    invalid ranges, or too many."""
    info = _partition(image, command)
    _check(command)
    accepted = LostRanges(info.losses)
    # What was given up before keeps its first record; a repetition finds nothing new.
    new_ranges = tuple(lost for lost in command.ranges if not accepted.covers(lost.start, lost.end))
    # A range that overlaps accepted ones falls into the parts between them, each an entry of its own.
    parts = sum(len(list(accepted.rest(lost.start, lost.end))) for lost in new_ranges)
    if len(info.losses) + parts > LOSSES_MAX:
        raise InvalidRequest(
            f"partition {command.partition} has {len(info.losses)} ranges that were given up, and can have at most "
            f"{LOSSES_MAX}; nothing was given up now"
        )
    if not new_ranges:
        return Decision()
    return Decision(
        (LossAccepted(command.topic_id, command.partition, new_ranges, command.at_ms, command.by, command.via),)
    )


def _partition(image: ClusterImage, command: AcceptLoss) -> PartitionInfo:
    topic = image.topic_by_id(command.topic_id)
    if topic is None:
        raise UnknownTopic("the topic was deleted meanwhile; nothing was given up")
    if not 0 <= command.partition < len(topic.partitions):
        raise UnknownPartition(f"topic {topic.name} has no partition {command.partition}; nothing was given up")
    return topic.partitions[command.partition]


def _check(command: AcceptLoss) -> None:
    if not 1 <= len(command.ranges) <= RANGES_MAX:
        raise InvalidRequest(f"{len(command.ranges)} ranges are to be given up; one command takes 1 to {RANGES_MAX}")
    if len(command.by) > WORD_CHARS_MAX:
        raise InvalidRequest(f"the name of the user is longer than {WORD_CHARS_MAX} characters")
    end = 0
    for lost in command.ranges:
        # In order and disjoint, so that one range cannot count for several.
        if not end <= lost.start < lost.end:
            raise InvalidRequest(f"[{lost.start}, {lost.end}) is no range of offsets behind {end}")
        _check_words(lost)
        end = lost.end


def _check_words(lost: GivenUpRange) -> None:
    words = [*lost.digests, *(said.status for said in lost.statements)]
    is_bounded = len(lost.statements) <= STATEMENTS_MAX and len(lost.digests) <= DIGESTS_MAX
    if not is_bounded or any(len(word) > WORD_CHARS_MAX for word in words):
        raise InvalidRequest(f"too much is said of [{lost.start}, {lost.end})")
