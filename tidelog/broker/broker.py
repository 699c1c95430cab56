"""A broker: its copy of the cluster's metadata, and a runtime for every partition that it leads. Independent of HTTP.

Listeners and the simulator call it alike. Changes of the cluster are decided by the active controller, which may be any
broker; a change is in force on this broker before the client that asked for it gets its answer.

Order at start: lock the directory, listen for peers, open the metadata, find or found the cluster, register, open the
logs that the metadata assign, and be counted as live. A log that cannot be opened makes its partition unavailable, not
the broker. Order at stop: hand over leaderships and the controller's role while still serving; then, when the listeners
have no requests in progress, leave the cluster, flush everything, and leave the clean mark.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import structlog

from tidelog.broker.controller.active import ActiveController
from tidelog.broker.face.access import authorizer_of
from tidelog.broker.face.face import BrokerFace
from tidelog.broker.face.groups import ConsumerGroups
from tidelog.broker.face.login import Login
from tidelog.broker.face.partitions import Partitions
from tidelog.broker.face.shares import Shares
from tidelog.broker.face.statistics import Statistics
from tidelog.broker.groups.facade import Groups
from tidelog.broker.groups.lags import GroupLags
from tidelog.broker.membership.administration import Administration
from tidelog.broker.membership.clean_mark import leave_clean_mark, take_clean_mark
from tidelog.broker.membership.controller_channel import ControllerChannel
from tidelog.broker.membership.introduction import Introduction
from tidelog.broker.membership.registration import Registration
from tidelog.broker.metadata.bootstrap import Contacts, no_contacts
from tidelog.broker.metadata.metadata import ClusterMetadata
from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.partitions.partition_handle import PartitionHandle
from tidelog.broker.peer_answers import AnswerChecks
from tidelog.broker.peer_claims import ClaimChecks
from tidelog.broker.peer_service import MESSAGE_ADDITIONS, PEER_MESSAGES, PeerService
from tidelog.broker.replicas.data_plane import DataPlane
from tidelog.broker.replicas.handing_over import HandingOver
from tidelog.broker.replicas.reports import Reports
from tidelog.broker.rest_consumers.service import RestConsumers
from tidelog.broker.routing.routing import Routing
from tidelog.broker.runtime.broker_tasks import BrokerTasks
from tidelog.broker.runtime.cluster_time import ClusterTime
from tidelog.broker.runtime.heavy_work import HeavyWork
from tidelog.broker.runtime.lease import Lease
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.broker.runtime.progress import Progress
from tidelog.broker.runtime.purgatory import Purgatory
from tidelog.broker.runtime.resources import Resources
from tidelog.broker.runtime.stats import Stats
from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.config.topics import topic_config
from tidelog.config.values import split_address
from tidelog.controller.commands import NewTopic, RegisterBroker
from tidelog.model.cluster import HTTP, BrokerInfo, ClusterImage, Endpoint, Topic
from tidelog.model.errors import UnknownTopic, WrongCluster
from tidelog.model.ids import NodeId, PartitionId, TopicId
from tidelog.model.levels import LevelRange, unfit_for_level
from tidelog.model.ports import BlockingRunner, Clock, Entropy, Files, Network
from tidelog.storage.log_manager import LogManager
from tidelog.transport.peer import ClusterSecret, Hello, PeerBounds, PeerNode
from tidelog.transport.peer.hello import are_apart, is_left_behind, recovered_apart

OPEN_FILES_MAX = 1_024
LOOK_AT_VOTERS_S = 2.0

__all__ = ["Broker", "NewTopic"]

logger = structlog.get_logger("tidelog.broker")


class Broker:
    """A broker of a cluster. `start` has to be called first; `stop` once at the end."""

    is_leaving = False
    """True from the beginning of a stop; the broker may still serve."""
    is_ready = False

    def __init__(
        self,
        config: BrokerConfig,
        files: Files,
        clock: Clock,
        entropy: Entropy,
        runner: BlockingRunner,
        network: Network,
        contacts: Contacts = no_contacts,
        open_files_max: int = OPEN_FILES_MAX,
        worker: BlockingRunner | None = None,
        *,
        hasher: BlockingRunner | None = None,
        secret: ClusterSecret | None = None,
        insecure_listeners: Sequence[str] = (),
    ) -> None:
        """`contacts` returns peer addresses of an existing cluster, for a broker that is to join one. At most
        `open_files_max` files of logs are kept open.

        `worker` runs codecs, `hasher` verifies passwords; without them both run on the event loop. With a `secret`,
        connections of brokers that do not know it are refused. `insecure_listeners` describes listeners that are open
        to strangers.
        """
        time = ClusterTime(clock, config.clock_skew_ms_max)
        self.config = config
        self.insecure_listeners = insecure_listeners
        self.node_id = NodeId(config.node_id)
        self.stats = Stats()
        self.purgatory = Purgatory()
        self.stage = "it is looking at its disk"
        """The activity of the broker until it is ready, and while it stops, as a sentence for operators."""
        self.work = HeavyWork(worker)
        self._files = files
        self._contacts = contacts
        self._tasks = BrokerTasks()
        self._manager = LogManager(files, open_max=open_files_max, new_incarnation=lambda: entropy.token_hex(16))
        self.log_writer = LogWriter(runner, clock, self.stats)
        lease = Lease(clock, config.lease_ms)
        self._introduction = Introduction(self.node_id, entropy.token_hex(16), config.levels, lambda: self.image)
        service = PeerService()
        self._peers = PeerNode(
            network,
            lambda: self._introduction.hello,
            PEER_MESSAGES,
            service,
            clock,
            entropy,
            additions=MESSAGE_ADDITIONS,
            bounds=PeerBounds(data_lanes=config.paxos_peer_lanes),
            secret=secret,
            check_answer=AnswerChecks(lambda: self.image).check,
        )
        self._introduction.peers = self._peers
        self._metadata = ClusterMetadata(config, self._manager, self.log_writer, self._peers, clock, entropy, self)
        self._controller = ActiveController(
            self.node_id, self._metadata, lambda: self.image, config, self._introduction.spoken_levels
        )
        self._channel = ControllerChannel(
            self.node_id,
            self._controller,
            self._peers.request,
            entropy,
            lambda: self._metadata.voter_nodes,
            self._peers.know,
        )
        self.admin = Administration(self._channel, entropy, runner, lambda: self.image, self.in_force, self.opened)
        resources = Resources(
            node_id=self.node_id,
            config=config,
            clock=time,
            entropy=entropy,
            stats=self.stats,
            purgatory=self.purgatory,
            manager=self._manager,
            log_writer=self.log_writer,
            lease=lease,
            peers=self._peers,
        )
        self.data = DataPlane(resources, self._channel, self)
        self._progress = Progress(lambda: self.position_in_force, self.is_opening)
        self._reports = Reports(
            self.node_id,
            self.data,
            self._metadata,
            self._manager.identity,
            self.log_writer,
            self._channel,
            self._controller,
            self._peers,
        )
        incarnation = self._introduction.hello.incarnation
        self._registration = Registration(config, self._channel, time, lease, incarnation, self._reports)
        self._routing = Routing(self, self._peers)
        self.groups = Groups(self, config, time, entropy, self.stats, self._routing, self.admin, failed=self.on_failed)
        """Consumer groups of the cluster: requests to their coordinators, on this broker or another."""
        self.group_lags = GroupLags(self)
        self.rest_consumers = RestConsumers(
            self.node_id,
            config,
            self.groups,
            self,
            self.purgatory,
            self.work,
            self._peers,
            entropy,
            self._readable_topics,
        )
        """REST consumer instances of the cluster: requests to them, on this broker or another."""
        self.face = self._make_face(time, Login(lambda: self.image.access, time, entropy, hasher))
        """The request handling of this broker that all listeners share (`BrokerFace`)."""
        self._open_to_peers(service)
        self._peers.on_peer_down.append(self._on_peer_down)
        self._peers.on_peer_silent.append(self._on_peer_silent)
        self._peers.on_refused.append(self._on_refused)

    def _make_face(self, time: ClusterTime, login: Login) -> BrokerFace:
        """Makes the request handling that all listeners share, from the parts of this broker."""
        return BrokerFace(
            cluster=self,
            partitions=Partitions(self._routing, self.purgatory, self.data),
            administration=self.admin,
            groups=ConsumerGroups(self),
            rest_consumers=self.rest_consumers,
            statistics=Statistics(
                self._controller,
                self._channel,
                self.stats,
                self.data,
                self._peers,
                self.groups,
                self.group_lags,
                time,
                self.log_writer.rounds,
            ),
            readiness=self,
            authorizer=authorizer_of(self.config, lambda: self.image.access),
            login=login,
            shares=Shares(time.monotonic_s, self.config.quota_buckets_max),
            work=self.work,
            clock=time,
        )

    def _open_to_peers(self, service: PeerService) -> None:
        """Connects the handler of other brokers' messages with the parts of this broker."""
        service.claims, service.statistics = ClaimChecks(lambda: self.image), self._peers.statistics
        service.groups, service.rest_consumers = self.groups, self.rest_consumers
        service.metadata, service.controller, service.routing = self._metadata, self._controller, self._routing
        service.copies, service.remains_finder = self.data.copies, self.data.remains_finder
        service.verifier, service.files_verifier = self.data.verifier, self.data.files_verifier
        service.loss_finder, service.channel = self.data.loss_finder, self._channel
        for protocol in self.data.protocols.values():
            service.add(protocol)

    # -- start and stop -------------------------------------------------------------------------------------------

    async def start(self, listeners: Mapping[str, Endpoint]) -> None:
        """Opens the metadata and the logs, joins the cluster under the advertised addresses of the named listeners, and
        returns when this broker is live and its logs are open. That may take until enough other brokers are started.

        Raises `MetadataDamaged`, `WrongDirectory`, `ConfigError`, `NodeIdInUse`, `WrongCluster`, `InvalidRequest` or
        `OSError`: this broker cannot run; `stop` has to be called all the same.
        """
        self._tasks.spawn("log-writer", self.log_writer.run())
        peer_address = await self._listen(listeners)
        if self.config.cluster_voters or self.config.cluster_join:
            self.stage = "it is looking for the brokers that cluster.voters or cluster.join name; its log says for whom"
        await self._metadata.open(peer_address, self._contacts)
        self._introduce(-1)
        for name, task in self.data.tasks().items():
            self._tasks.spawn(name, task)
        self._tasks.spawn("rest-consumers", self.rest_consumers.run())
        self._tasks.spawn("controller", self._controller.run())
        self._metadata.start()
        self.stage = "it waits for an active controller, which takes a majority of the voters, to be registered"
        self._tasks.spawn("voters", self._look_for_lost_voters())
        await self._metadata.may_register.wait()
        await self._register(listeners, peer_address)
        await self._tasks.cancel(["voters"])
        self.stage = "it is registered, and loading its logs"
        self._tasks.spawn("registration", self._registration.run())
        self._registration.on_metadata_applied()
        await self._registration.is_live.wait()
        await self.in_force(self.image.position)
        topics = list(self.image.topics.values())
        await self._progress.opened(
            PartitionId(topic.topic_id, info.partition) for topic in topics for info in topic.partitions
        )
        self._report_unknown_topics()
        for name, task in self.data.upkeep(self._metadata.mark, self._metadata.scrub_targets).items():
            self._tasks.spawn(name, task)
        self._tasks.spawn("group-lags", self.group_lags.run())
        self.is_ready = True

    async def _look_for_lost_voters(self) -> None:
        """Logs, and shows as the stage, that there can be no active controller any more, and what the operator
        can do."""
        while True:
            await asyncio.sleep(LOOK_AT_VOTERS_S)
            reason = await self._metadata.find_loss()
            if reason and reason != self.stage:
                logger.error("there can be no active controller", reason=reason)
                self.stage = reason

    async def _listen(self, listeners: Mapping[str, Endpoint]) -> tuple[str, int]:
        """Listens for other brokers; returns the address that is advertised to them. If the address is taken, a broker
        that is configured to be alone goes on without it."""
        host, port = split_address(self.config.peer_listener)
        try:
            bound = await self._peers.listen(host, port)
        except OSError as error:
            if self.config.cluster_voters or self.config.model_fields_set & {"cluster_join", "peer_listener"}:
                raise
            logger.warning("no other broker can join: the peer address is taken", address=host, error=str(error))
            return host, port
        return self.config.peer_address(bound, http_host=listeners[HTTP].host)

    def _introduce(self, epoch: int) -> None:
        metadata = self._metadata
        self._introduction.introduce(metadata.cluster_id, metadata.generation, metadata.recovery_id, epoch)

    async def _register(self, listeners: Mapping[str, Endpoint], peer_address: tuple[str, int]) -> None:
        clean_epoch = take_clean_mark(self._files)
        identity = self._manager.identity
        if identity.given.starts:  # else the counts were lost with an earlier identity: this broker is told them
            await self.log_writer.perform(identity.count_start)
        registered = self.image.brokers.get(self.node_id)
        command = RegisterBroker(
            self.node_id,
            self._introduction.hello.incarnation,
            self._metadata.incarnation,
            dict(listeners),
            *peer_address,
            self.config.broker_rack,
            self._metadata.cluster_id,
            clean_epoch,
            -1 if registered is None else registered.epoch,
            self._metadata.lost_storage,
            identity.given.starts,
            identity.given.stamp,
            self.levels,
        )
        admitted = await self._registration.register(command)
        self._introduce(admitted.broker_epoch)
        await self.in_force(admitted.position)
        if not identity.given.starts:
            registered = self.image.brokers[self.node_id]
            counts = {"starts": max(registered.starts, 1), "stamp": registered.stamp}
            await self.log_writer.perform(partial(identity.change, **counts))

    def _report_unknown_topics(self) -> None:
        topic_ids = [topic.topic_id for topic in self.image.topics.values()]
        for topic_id in self._manager.topic_ids():
            if topic_id not in topic_ids and topic_id not in self.image.deleted_topics:
                logger.warning("a directory belongs to no known topic; it is left alone", topic_id=topic_id)

    async def hand_over(self) -> None:
        """Hands over this broker's leaderships, and its role as controller, to other live brokers, while it keeps
        serving until `stop`. Returns within a time limit even if that fails."""
        if not self.is_ready or self.is_leaving or self.failed.is_set():
            return
        self.is_leaving = True
        if not self.others:
            return
        self.stage = "it is stopping: it hands over what it leads"
        handing_over = HandingOver(self, self._channel)
        await handing_over.run()
        await self.in_force(self.image.position)
        self.stage = "it is stopping: it lets another broker decide"
        await handing_over.step_aside(self._metadata, self._progress.changed)
        self.stage = "it is stopping: it ends the requests under way"

    @property
    def others(self) -> list[NodeId]:
        """Node ids of the other live brokers."""
        return [broker.node_id for broker in self.image.live_brokers if broker.node_id != self.node_id]

    async def stop(self) -> None:
        """Leaves the cluster, closes all partitions, flushes appended records, marks the logs as clean, and unlocks the
        directory."""
        is_clean = self.is_ready and not self.failed.is_set()
        self.is_ready, self.is_leaving = False, True
        self.stage = "it is stopping: it leaves the cluster"
        await self._tasks.cancel(["registration"])
        if is_clean:
            await self._registration.leave()
        self.stage = "it is stopping: it ends the work under way"
        self._channel.close()
        await self._tasks.cancel(
            ["replicas", "housekeeping", "ticks", "isr-requests", "paxos-members", "repairs", "scrubbing", "group-lags"]
        )
        await self._tasks.cancel(["rest-consumers"])
        await self.groups.close()
        self.stage = "it is stopping: it flushes its partitions"
        marks = await self.data.close()
        self.stage = "it is stopping: it ends its metadata log and the calls of other brokers"
        await self._metadata.close()
        await self._tasks.cancel(["controller"])
        await self._peers.close()
        self.stage = "it is stopping: it flushes what is left and closes its files"
        if not self.failed.is_set():
            await self.log_writer.drain()
        await self._tasks.cancel_all()
        findings = self._manager.close(marks)
        for finding in findings:
            logger.error("closing", finding=finding)
        if is_clean and not findings:
            try:
                leave_clean_mark(self._files, self._registration.epoch)
            except OSError as error:
                logger.warning("no clean mark is left; the next start reads more", error=str(error))

    @property
    def is_old(self) -> bool:
        """True if its data directory was found to be an old copy, on which it has to begin anew."""
        identity = self._manager.identity.current
        return identity is not None and identity.is_old

    @property
    def failed(self) -> asyncio.Event:
        """Set when this broker must not go on, so that the process stops."""
        return self._tasks.failed

    @property
    def is_removed(self) -> bool:
        """True if this broker has to stop because it was removed from its cluster, and not because of a fault."""
        return self._tasks.is_removed

    # -- what the metadata says -----------------------------------------------------------------------------------

    @property
    def image(self) -> ClusterImage:
        """The cluster as of the last applied metadata record."""
        return self._metadata.image

    @property
    def position_in_force(self) -> int:
        """The metadata position up to which this broker's partitions follow the metadata."""
        return self.data.replicas.position

    @property
    def cluster_id(self) -> str:
        """The id of the cluster; empty until it is known."""
        return self._metadata.cluster_id

    @property
    def is_controller(self) -> bool:
        """True if this broker is the active controller."""
        return self._controller.is_active

    def is_admitted(self, image: ClusterImage) -> bool:
        return self._introduction.is_admitted(image)

    def own_epoch(self) -> int:
        return self._registration.epoch

    @property
    def controller_node(self) -> int | None:
        """The node id of the broker that leads the metadata log, as far as this broker knows; None if it knows none."""
        return self._channel.leader

    @property
    def ended_brokers(self) -> Collection[int]:
        """The node ids of the brokers whose processes have surely ended, less than a session ago."""
        session_s = self.config.broker_session_timeout_ms / 1000
        return [node_id for node_id, down_s in self._peers.down.items() if down_s < session_s]

    @property
    def missed_brokers(self) -> Collection[int]:
        """The node ids of the brokers whose processes have ended, or may have a moment ago."""
        return [*self.ended_brokers, *self._peers.in_doubt]

    @property
    def levels(self) -> LevelRange:
        """Returns the feature levels that this broker speaks."""
        return self._introduction.levels

    def levels_of(self, broker: BrokerInfo) -> LevelRange | None:
        """Returns the feature levels that a registered broker speaks; None if they are not known here."""
        return self._introduction.levels_of(broker)

    def image_changed(self, image: ClusterImage) -> None:
        """Follows a changed metadata image: quotas are in force, partitions are opened, closed, or change their
        leader."""
        self.face.shares.follow(image.quotas)
        self._introduction.image_changed(image)
        self.data.follow(image)

    def waits(self, reason: str) -> None:
        """Sets the stage to the reason why this broker belongs to no cluster yet."""
        self.stage = reason

    def leading(self, number: int) -> None:
        """Begins the controller's work, as this broker was elected leader of the metadata log under ballot number
        `number`."""
        logger.info("elected", number=number)
        self._controller.on_elected(self.image.controller_epoch + 1, self.cluster_id)

    def deposed(self) -> None:
        """Ends the controller's work, as this broker no longer leads the metadata log."""
        self._controller.on_lost()

    def leader_changed(self, node_id: int | None) -> None:
        """Notes which node leads the metadata log, as far as this broker knows; None if no leader is known."""
        self._channel.on_leader_changed(node_id)
        self._progress.changed.wake_all()
        self._registration.hurry()

    def fail(self, reason: str) -> None:
        """Stops this broker for a fault, and logs the reason."""
        logger.critical("stopping", reason=reason)
        self.failed.set()

    def _on_peer_down(self, node_id: int) -> None:
        self._metadata.peer_down(node_id)
        self._controller.on_peer_down(node_id)

    def _on_peer_silent(self, node_id: int) -> None:
        self._reports.report_silence(self.own_epoch(), node_id)

    def on_peer_refused(self, hear: Callable[[str, str], None]) -> None:
        """Registers a function that is called with address and reason of each refused connection of another broker."""
        self._peers.on_complaint.append(hear)

    def _on_refused(self, theirs: Hello) -> None:
        """Handles that a connection with another broker was refused: sets the stage if this broker does not speak its
        cluster's feature level.

        Stops this broker if the other one's cluster comes from a separate recovery of the same metadata log, and this
        broker is starting or is not in a majority of all brokers: so at most one side serves.
        """
        ours = self._introduction.hello
        if not self.is_ready and is_left_behind(ours, theirs):
            self.stage = unfit_for_level(self.node_id, self.levels, theirs.cluster_level)
        is_majority = 2 * len(self.image.live_brokers) > len(self.image.brokers)
        if are_apart(ours, theirs) and not (self.is_ready and is_majority) and not self.failed.is_set():
            recovery_ids = {hello.node_id: hello.recovery_id for hello in (ours, theirs)}
            self.fail(f"{recovered_apart(ours.generation, recovery_ids)} ({WrongCluster.code})")

    def on_metadata_applied(self) -> None:
        """Wakes the parts that wait for metadata, as this broker's partitions follow more of it now."""
        self.groups.on_metadata_applied()
        self._routing.on_metadata_applied()
        self._progress.changed.wake_all()
        self._registration.on_metadata_applied()

    def _readable_topics(self) -> list[str]:
        return [topic.name for topic in self.image.topics.values() if not topic.is_internal]

    def on_topic_removed(self, topic_id: TopicId) -> None:
        """Reports to the controller that this broker holds nothing of a deleted topic any more."""
        self._registration.report_removed(topic_id)

    def on_failed(self) -> None:
        """Stops this broker for a fault that is logged already."""
        self.failed.set()

    async def in_force(self, position: int) -> bool:
        """Waits until this broker follows the metadata up to `position`; returns False if that takes too long."""
        return await self._progress.in_force(position)

    def is_opening(self, partition_id: PartitionId) -> bool:
        """Returns True if this broker holds a replica whose log is being opened; requests for it should wait."""
        return self.data.replicas.is_opening(partition_id)

    async def opened(self, topic: str) -> None:
        """Waits until no log of a topic is being opened on this broker, with a time limit."""
        described = self.image.topics.get(topic)
        if described is not None:
            await self._progress.opened(
                PartitionId(described.topic_id, info.partition) for info in described.partitions
            )

    # -- topics ---------------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> Mapping[PartitionId, LedPartition]:
        """The partitions that this broker leads and whose logs are open."""
        return self.data.replicas.partitions

    def topic(self, name: str) -> Topic:
        """Returns the metadata of a topic. Raises `UnknownTopic`."""
        topic = self.image.topics.get(name)
        if topic is None:
            raise UnknownTopic(f"there is no topic {name!r}; create it first")
        return topic

    def topic_config(self, name: str) -> TopicConfig:
        """Returns the settings in force for a topic. Raises `UnknownTopic`."""
        return topic_config(self.config, self.topic(name).configs)

    def partition(self, topic: str, partition: int) -> PartitionHandle:
        """Returns a partition, on this broker or on the one that leads it. Raises `UnknownTopic`, `UnknownPartition`,
        `LeaderNotAvailable`."""
        return self._routing.partition(topic, partition)
