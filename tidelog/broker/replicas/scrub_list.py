"""Everything that a broker's scrubber reads of its replicas: logs, journals, and the metainfo of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tidelog.broker.repair.copies import Holder
from tidelog.broker.repair.scrub_targets import (
    JournalOwner,
    JournalTarget,
    LogTarget,
    Means,
    Target,
    journal_metainfo_target,
    metainfo_target,
)
from tidelog.model.ids import PartitionId


def replica_targets(
    holders: Mapping[PartitionId, Holder],
    journals: Callable[[], Mapping[PartitionId, JournalOwner]],
    means: Means,
) -> dict[str, Target]:
    """Returns the scrubber targets of the replicas present now, by name. `holders` goes on changing."""
    targets: dict[str, Target] = {}
    for partition_id, holder in list(holders.items()):
        find, name = partial(holders.get, partition_id), f"log {holder.topic}-{partition_id.partition}"
        targets[name] = LogTarget(find, means)
        targets[f"metainfo of {name}"] = metainfo_target(name, find, means)
    for partition_id, owner in journals().items():
        name = f"journal {holders[partition_id].topic}-{partition_id.partition}"
        targets |= journal_targets(name, owner, partial(_is_of, journals, partition_id, owner), means)
    return targets


def journal_targets(name: str, owner: JournalOwner, is_here: Callable[[], bool], means: Means) -> dict[str, Target]:
    """Returns the scrubber targets, by name, of one journal, and of the metainfo beside it."""
    return {
        name: JournalTarget(name, owner, is_here, means),
        f"metainfo of {name}": journal_metainfo_target(name, owner, is_here, means),
    }


def _is_of(
    journals: Callable[[], Mapping[PartitionId, JournalOwner]], partition_id: PartitionId, owner: JournalOwner
) -> bool:
    return journals().get(partition_id) is owner
