"""Decisions about brokers: registration, heartbeats, fencing and removal.

One node id is one broker. A process that registers under the id of a broker that is not fenced is admitted only if the
earlier process is surely dead. A registration is compared and set: it names the registration that it replaces.
"""

from __future__ import annotations

from tidelog.config.schema import BrokerConfig
from tidelog.controller import commands, records
from tidelog.controller.broker_state import Loss
from tidelog.controller.decision import Decision
from tidelog.controller.leadership import including, without
from tidelog.model.cluster import BrokerInfo, ClusterImage
from tidelog.model.errors import (
    BrokerRemoved,
    InvalidRequest,
    NodeIdInUse,
    NotController,
    NotFound,
    OldDirectory,
    StaleBrokerEpoch,
    UnsupportedLevel,
    WrongCluster,
)
from tidelog.model.ids import NodeId
from tidelog.model.levels import FIRST_LEVEL, LEVEL_MIN, unfit_for_level

TOPICS_SHOWN = 5


def register(image: ClusterImage, command: commands.RegisterBroker, config: BrokerConfig) -> Decision:
    """Decides whether a broker's registration is admitted. Raises `WrongCluster`, `UnsupportedLevel`, `NodeIdInUse` or
    `OldDirectory`."""
    # The logs of another cluster have other topics under the same offsets and epochs.
    if command.cluster_id and command.cluster_id != image.cluster_id:
        raise WrongCluster(
            f"the data directory of node {command.node_id} belongs to cluster {command.cluster_id}, and this is "
            f"{image.cluster_id}; connect it to its own cluster, or give it an empty data directory"
        )
    # A broker that meets a record it does not know stops; it is better told at once.
    if image.level not in command.levels:
        raise UnsupportedLevel(unfit_for_level(command.node_id, command.levels, image.level))
    node = NodeId(command.node_id)
    registered_before = image.brokers.get(node)
    # The process asks again because the first answer was lost; it keeps its epoch.
    if registered_before is not None and registered_before.incarnation == command.incarnation:
        return Decision(answer=lambda after: _admitted(after, node))
    # An old copy of a directory lacks promises and acknowledged records, and looks sound.
    if registered_before is not None and _is_old(image, registered_before, command):
        raise OldDirectory(
            f"the data directory of node {node} is an old copy: its broker has been further since. It takes part again "
            "as with a new disk, and is filled from the others"
        )
    epoch = -1 if registered_before is None else registered_before.epoch
    # Compare and set. What a process sent before it died may arrive when the next one has long been admitted, and would
    # put that out for good; but it names a registration that is not the newest any more. A process that lives is told
    # the newest, and asks again.
    if command.replaces != epoch:
        return Decision(answer=lambda after: commands.RegistrationOutdated(after.position, epoch))
    # The same disk proves that the earlier process is dead, since a directory is locked as long as its process lives;
    # so does a new disk in a directory that remembers the one before. Another disk under a live id is either a second
    # broker with a wrong `node.id`, or one whose disk was replaced within its session's time: the latter succeeds
    # later.
    if (
        registered_before is not None
        and not registered_before.is_fenced
        and registered_before.storage not in (command.storage, command.lost_storage)
    ):
        raise NodeIdInUse(
            f"node id {node} belongs to a broker that is live, at {registered_before.http}. Give this one another "
            "node.id; if it is the same broker with a new disk, it will be admitted as soon as the old process's "
            "session is over"
        )
    # The epoch in the clean-shutdown file has to be that of the last life; an older file is one of a life before.
    loss = _loss(registered_before, command)
    registered = records.BrokerRegistered(
        node_id=node,
        incarnation=command.incarnation,
        listeners=dict(command.listeners),
        rack=command.rack,
        peer_host=command.peer_host,
        peer_port=command.peer_port,
        storage=command.storage,
        is_clean=loss is None,
        # A broker of the first version may still be running at the first level. It would stop at a record with fields
        # that it does not know.
        starts=command.starts if image.level > LEVEL_MIN else 0,
        stamp=command.stamp if image.level > LEVEL_MIN else 0,
        levels=command.levels if image.level > LEVEL_MIN else FIRST_LEVEL,
    )
    # One batch: the replicas lose their places before the new life begins. In between, a leader could count the new
    # process for in sync by what its predecessor had.
    lost = without(image, node, config, loss, new_disk=command.storage)
    return Decision((*lost, registered), lambda after: _admitted(after, node))


def _is_old(image: ClusterImage, registered_before: BrokerInfo, command: commands.RegisterBroker) -> bool:
    """Returns True if the disk is an old copy: its directory has older marks than the metadata, or another disk has
    replaced it and it still counts as a voter in some log."""
    if registered_before.storage == command.storage:
        # A directory counts its starts, and goes on marking time. One that shows less than was told is a copy of then.
        return command.starts > 0 and (
            command.starts <= registered_before.starts or command.stamp < registered_before.stamp
        )
    disk = (command.node_id, command.storage)
    return any((voter.node_id, voter.incarnation) == disk for voter in image.voters) or any(
        (member.node_id, member.storage) == disk
        for topic in image.topics.values()
        for info in topic.partitions
        for member in (*info.members, *info.wanted)
    )


def note_stamps(image: ClusterImage, command: commands.NoteStamps) -> Decision:
    """Records the time marks (growing counters in brokers' directories) that are newer than those in the metadata; none
    at feature level 1, whose metadata has none."""
    if image.level == LEVEL_MIN:
        return Decision()
    brokers = {int(node): broker for node, broker in image.brokers.items()}
    newer = [
        stamped
        for stamped in command.stamps
        if (broker := brokers.get(stamped.node_id)) is not None
        and broker.epoch == stamped.broker_epoch
        and stamped.stamp > broker.stamp
    ]
    return Decision((records.BrokersStamped(newer),)) if newer else Decision()


def _loss(registered_before: BrokerInfo | None, command: commands.RegisterBroker) -> Loss | None:
    # Nothing that was acknowledged on the old disk is on the new one.
    if registered_before is None or registered_before.storage != command.storage:
        return Loss.DISK
    return None if registered_before.epoch == command.clean_epoch else Loss.NOT_SYNCED


def _admitted(image: ClusterImage, node: NodeId) -> commands.CommandAnswer:
    return commands.BrokerAdmitted(image.position, image.brokers[node].epoch, image.cluster_id)


def registered_broker(image: ClusterImage, node_id: int, broker_epoch: int) -> BrokerInfo:
    """Returns the broker that is registered under this broker epoch.

    Raises `StaleBrokerEpoch`, `BrokerRemoved`, or `NotController` if the epoch is newer than every registration in the
    image.
    """
    # Epochs are positions in the log, so this registration is not in the part that is known here.
    if broker_epoch >= image.position:
        raise NotController(f"node {node_id} registered with another controller, later than anything known here")
    broker = image.brokers.get(NodeId(node_id))
    if broker is None:
        raise BrokerRemoved(f"node {node_id} was removed from this cluster; stop it, or start it again to join anew")
    if broker.epoch != broker_epoch:
        raise StaleBrokerEpoch(
            f"node {node_id} has registered again, at {broker.http}; two brokers with one node.id, or an "
            "old process that was not stopped"
        )
    return broker


def heartbeat(image: ClusterImage, command: commands.BrokerHeartbeat, config: BrokerConfig) -> Decision:
    """Unfences a broker that has applied its own registration; fences a broker that asks to stop.

    Raises `StaleBrokerEpoch`, `BrokerRemoved` or `NotController`.
    """
    broker = registered_broker(image, command.node_id, command.broker_epoch)
    node = broker.node_id

    def answer(after: ClusterImage) -> commands.CommandAnswer:
        is_fenced = not after.is_live(node)
        # Told by the image behind the records: a broker that stopped before its fencing is agreed on would still lead,
        # and every commit would wait for it.
        return commands.HeartbeatAnswered(after.position, is_fenced, command.wants_shutdown and is_fenced)

    # Fenced first, so that it leads nothing and is in no ISR when it stops; then its absence costs nobody a session.
    if command.wants_shutdown and not broker.is_fenced:
        return Decision((records.BrokerFenced(node, broker.epoch), *without(image, node, config)), answer)
    # The position is exclusive: the broker has applied its own registration, and all that was taken from it before.
    if broker.is_fenced and not command.wants_shutdown and command.position > broker.epoch:
        return Decision((records.BrokerUnfenced(node, broker.epoch), *including(image, node, config)), answer)
    return Decision(answer=answer)


def fence(image: ClusterImage, command: commands.FenceBroker, config: BrokerConfig) -> Decision:
    """Fences a broker whose session has expired, unless it has registered again."""
    node = NodeId(command.node_id)
    broker = image.brokers.get(node)
    # The broker has registered again since its session ended: the new life is not to blame for the old one's silence.
    if broker is None or broker.is_fenced or broker.epoch != command.broker_epoch:
        return Decision()
    return Decision((records.BrokerFenced(node, broker.epoch), *without(image, node, config)))


# -- leaving -------------------------------------------------------------------------------------------------------


def remove(image: ClusterImage, command: commands.RemoveBroker, config: BrokerConfig) -> Decision:
    """Removes a broker from the cluster. Raises `NotFound`, or `InvalidRequest` with what must be done first."""
    node = NodeId(command.node_id)
    broker = image.brokers.get(node)
    if broker is None and command.broker_epoch >= 0:
        return Decision()  # the asker saw it: a repetition, or somebody was faster
    if broker is None:
        raise NotFound(f"there is no broker {node}; the brokers are {', '.join(map(str, image.brokers))}")
    if command.broker_epoch >= 0 and broker.epoch != command.broker_epoch:
        raise InvalidRequest(f"broker {node} has registered again since; ask again if it is still to be removed")
    if len(image.brokers) == 1:
        raise InvalidRequest(f"broker {node} is the only one of its cluster; stop it and remove its data instead")
    _check_replicas(image, node, config)
    _check_votes(image, broker)
    return Decision((records.BrokerUnregistered(node, broker.epoch),))


def _check_replicas(image: ClusterImage, node: NodeId, config: BrokerConfig) -> None:
    held = {
        topic.name: max(len(info.target) for info in topic.partitions)
        for topic in image.topics.values()
        if any(node in info.replicas for info in topic.partitions)
    }
    if not held:
        return
    left = len(image.brokers) - 1
    too_wide = [name for name, replicas in held.items() if replicas > left]
    names = ", ".join([*held][:TOPICS_SHOWN]) + (f" and {len(held) - TOPICS_SHOWN} more" if len(held) > 5 else "")
    if too_wide:
        raise InvalidRequest(
            f"broker {node} holds replicas of {names}, and the {left} brokers left would be fewer than the replicas of "
            f"{too_wide[0]}; add a broker first"
        )
    way_out = ", or delete those topics" if config.delete_topic_enable else ""
    raise InvalidRequest(f"broker {node} holds replicas of {names}; move them to other brokers first{way_out}")


def _check_votes(image: ClusterImage, broker: BrokerInfo) -> None:
    """Raises `InvalidRequest` unless the other live voters are a majority of the present voters and of the remaining
    ones."""
    if broker.node_id not in [voter.node_id for voter in image.voters]:
        return
    # A majority of the present voters is one of the remaining ones as well; the change needs both.
    majority = len(image.voters) // 2 + 1
    live = [voter for voter in image.voters if voter.node_id != broker.node_id and is_voting(image, voter.voter_id)]
    if len(live) < majority:
        raise InvalidRequest(
            f"broker {broker.node_id} votes on the metadata log, and without it only {len(live)} live voters of "
            f"{len(image.voters)} would be left, no majority; start the others, or add a broker and wait until it votes"
        )


def is_voting(image: ClusterImage, voter_id: int) -> bool:
    """Returns True if the voter's broker is live and still has the disk that holds the vote."""
    return any(broker.voter_id == voter_id for broker in image.live_brokers)
