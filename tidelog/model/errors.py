"""The errors that callers can get, and what each lets them conclude.

Two kinds of error never mix. A broken invariant is an `assert` and stops the process. A fault of the environment, or of
a caller, is a `TidelogError`: it carries the five-digit code of the HTTP surface (first three digits: the status), the
code for Kafka's clients, and says whether it is *definite*.

- Definite: surely nothing was appended. Every 4xx, 503 and 507.
- Indefinite: the outcome is unknown. 500, 502, 504 and a cut connection. Only an idempotent retry is safe.

`retriable` says that the same request may succeed later without a change; it is about hope, not about safety.

The Kafka code follows from these, because Kafka's clients act on it by themselves:

- An indefinite error is REQUEST_TIMED_OUT, the one code after which they take a record for possibly appended.
- A definite error that passes by itself (503, 507, a used up share) is a code after which they try again without doubt.
- A definite error that stays (4xx) is a code after which they give up. Exceptions: metadata that lags behind (a topic,
  a partition or a replica that is unknown yet), and a wrong checksum.

A five-digit code belongs to one class. A class without a code of its own shares the code of its base; only its Kafka
code differs. `docs/errors.md`, generated from these classes, is the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from tidelog.model.kafka_codes import KafkaCode


class TidelogError(Exception):
    """Base of the errors that callers can get; `code` and `message` are sent over the wire.

    A subclass gives its `code`, `kafka` and `retriable` as arguments of the class, so that its first line says it all.
    """

    code: ClassVar[int]
    kafka: ClassVar[KafkaCode | None] = None
    """Error code for Kafka's clients; None if no broker ever sends this error."""
    retriable: ClassVar[bool] = False

    def __init_subclass__(
        cls, *, code: int | None = None, kafka: KafkaCode | None = None, retriable: bool | None = None
    ) -> None:
        """Sets the class attributes that a class gives as arguments; it inherits the others."""
        super().__init_subclass__()
        for name, value in (("code", code), ("kafka", kafka), ("retriable", retriable)):
            if value is not None:
                setattr(cls, name, value)

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status: the code's first three digits."""
        return self.code // 100

    @property
    def definite(self) -> bool:
        """True if surely nothing was appended."""
        return self.status < 500 or self.status in (503, 507)

    def forget_origin(self) -> Self:
        """Drops the traceback, cause and context of the error, and returns the error. Their frames would keep alive all
        objects in their local variables, such as a request, until the next garbage collection."""
        self.__traceback__ = self.__cause__ = self.__context__ = None
        return self


class InternalError(TidelogError, code=50001, kafka=KafkaCode.REQUEST_TIMED_OUT):
    """A fault of the broker itself; the outcome is unknown."""


# -- 400: the request is wrong, and will be wrong again ------------------------------------------------------------


class InvalidRequest(TidelogError, code=40002, kafka=KafkaCode.INVALID_REQUEST):
    """A name, number, parameter or body is wrong, or parameters contradict each other."""


class NotAsked(InvalidRequest, kafka=KafkaCode.INVALID_REQUEST):
    """A broker received from another one, as a request or a notification, a message that is neither; nothing was done.
    Look for a process that does not belong to the cluster."""


class ImplausibleNumber(InvalidRequest, kafka=KafkaCode.INVALID_REQUEST):
    """A broker sent a ballot, position or offset that no broker can have reached; nothing was done or stored. Look for
    a broker with damaged memory, or for a process that does not belong to the cluster."""


class InvalidGroupName(InvalidRequest, kafka=KafkaCode.INVALID_GROUP_ID):
    """The name is not valid for a group: it is empty, too long, or no text."""


class InvalidSessionTimeout(InvalidRequest, kafka=KafkaCode.INVALID_SESSION_TIMEOUT):
    """The session timeout that a member requests is shorter than `group.min.session.timeout.ms`, or longer than
    `group.max.session.timeout.ms`."""


class TopicExists(InvalidRequest, kafka=KafkaCode.TOPIC_ALREADY_EXISTS):
    """A topic cannot be created because there is one of this name.

    Its code is that of `InvalidRequest`, as in Confluent's REST proxy; the admin client recognises it by the metadata.
    """


class InvalidBatch(TidelogError, code=40003, kafka=KafkaCode.INVALID_RECORD):
    """A record batch is not a sound RecordBatch v2: magic, lengths, codec, counts."""


class CorruptBatch(InvalidBatch, kafka=KafkaCode.CORRUPT_MESSAGE):
    """The checksum of a record batch is wrong: it was damaged on its way, so sending it again may help."""


class InvalidTimestamp(TidelogError, code=40004, kafka=KafkaCode.INVALID_TIMESTAMP):
    """A timestamp is further from the broker's clock than the topic allows."""


class NotAuthenticated(TidelogError, code=40101, kafka=KafkaCode.SASL_AUTHENTICATION_FAILED):
    """The caller is not authenticated: it showed no credentials, or they are not valid (any more)."""

    def __init__(self, message: str, *, cause: str = "") -> None:
        """The `cause` is for the audit log only: a few words, out of a small set."""
        super().__init__(message)
        self.cause = cause


class TooManyAttempts(TidelogError, code=42901, kafka=KafkaCode.SASL_AUTHENTICATION_FAILED):
    """Too many login attempts of this user from this address have failed; wait as long as `Retry-After` says."""

    def __init__(self, message: str, retry_after_s: int = 60) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotAuthorized(TidelogError, code=40301, kafka=KafkaCode.TOPIC_AUTHORIZATION_FAILED):
    """The caller has no permission for this operation on the resource (Kafka has a code for each type of resource)."""


class ForeignSender(NotAuthorized, kafka=KafkaCode.CLUSTER_AUTHORIZATION_FAILED):
    """A broker's request named another broker as its sender, or an epoch that the metadata does not give it, or no
    client for which it was sent; nothing was done. Look for two brokers with one `node.id`, or for a process on the
    peer network that does not belong to the cluster."""


class ForeignOrigin(TidelogError, code=40302, kafka=KafkaCode.INVALID_REQUEST):
    """A browser reports that a request that may change something was sent by a web page of another origin."""


class UnknownHost(TidelogError, code=42101, kafka=KafkaCode.INVALID_REQUEST):
    """The `Host` header is a name that is not configured for this broker (`http.hosts`)."""


class UnknownTopic(TidelogError, code=40401, kafka=KafkaCode.UNKNOWN_TOPIC_OR_PARTITION):
    """There is no such topic."""


class UnknownPartition(TidelogError, code=40402, kafka=KafkaCode.UNKNOWN_TOPIC_OR_PARTITION):
    """The topic has no such partition."""


class NotAReplica(TidelogError, code=40404, kafka=KafkaCode.REPLICA_NOT_AVAILABLE):
    """The addressed broker holds no copy of the partition."""


class UnknownInstance(TidelogError, code=40403, kafka=KafkaCode.RESOURCE_NOT_FOUND):
    """There is no such REST consumer instance: it was deleted, has expired, never was, or is another principal's."""


class UnknownGroup(TidelogError, code=40405, kafka=KafkaCode.GROUP_ID_NOT_FOUND):
    """There is no such consumer group."""


class UnknownMember(TidelogError, code=40406, kafka=KafkaCode.UNKNOWN_MEMBER_ID):
    """The coordinator knows no such member: it has left or was expelled, and may join again."""


class NotFound(TidelogError, code=40400, kafka=KafkaCode.RESOURCE_NOT_FOUND):
    """There is no such route, cluster, broker, config or task."""


class MethodNotAllowed(TidelogError, code=40501, kafka=KafkaCode.INVALID_REQUEST):
    """The route supports other methods, which the `Allow` header names."""


class NotAcceptable(TidelogError, code=40602, kafka=KafkaCode.INVALID_REQUEST):
    """The `Accept` header asks for a form that this resource does not have."""


class FormatMismatch(TidelogError, code=40601, kafka=KafkaCode.INVALID_REQUEST):
    """A stored record cannot be converted to the requested form; the message names its offset."""


class RequestTimeout(TidelogError, code=40801, kafka=KafkaCode.INVALID_REQUEST, retriable=True):
    """The body did not arrive in time; nothing was done."""


class InstanceExists(TidelogError, code=40902, kafka=KafkaCode.DUPLICATE_RESOURCE):
    """A REST consumer instance of this name is there already."""


class IllegalState(TidelogError, code=40903, kafka=KafkaCode.INVALID_REQUEST):
    """A REST consumer that has subscribed cannot be assigned partitions, nor the other way round; or it reads nothing
    yet, or does not own that partition now."""


class OutOfOrderSequence(TidelogError, code=40904, kafka=KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
    """An idempotent producer skipped sequence numbers."""


class ProducerFenced(TidelogError, code=40905, kafka=KafkaCode.INVALID_PRODUCER_EPOCH):
    """A newer producer epoch exists."""


class StaleBrokerEpoch(TidelogError, code=40907, kafka=KafkaCode.STALE_BROKER_EPOCH):
    """A broker's registration is not the current one: another process has registered since. The broker must register
    again before its requests are accepted, and stop if that is refused."""


class NodeIdInUse(TidelogError, code=40908, kafka=KafkaCode.DUPLICATE_BROKER_REGISTRATION, retriable=True):
    """Another live broker has this node id. It may be a dead process whose session has not expired yet; the same
    request succeeds once it has."""


class WrongCluster(TidelogError, code=40909, kafka=KafkaCode.INCONSISTENT_CLUSTER_ID):
    """This broker's data belongs to another cluster."""


class OldDirectory(TidelogError, code=40918, kafka=KafkaCode.INCONSISTENT_CLUSTER_ID):
    """A broker's data directory is an old copy: its cluster has seen a later state of it. The broker takes part again
    as with a new disk."""


class WrongDirectory(TidelogError, code=40917, kafka=KafkaCode.INCONSISTENT_CLUSTER_ID):
    """A data directory is another broker's, or holds parts of another one; nothing in it was changed."""


class BrokerRemoved(TidelogError, code=40910, kafka=KafkaCode.BROKER_ID_NOT_REGISTERED):
    """The broker was removed from its cluster; it should stop, and comes back only if it is started again."""


class FencedMember(TidelogError, code=40911, kafka=KafkaCode.FENCED_MEMBER_EPOCH):
    """The member's epoch is not the current one: it was expelled, or another process has taken its place. It owns
    nothing."""


class InstanceIdInUse(TidelogError, code=40912, kafka=KafkaCode.UNRELEASED_INSTANCE_ID):
    """Another live member has this `group.instance.id`."""


class GroupNotEmpty(TidelogError, code=40913, kafka=KafkaCode.NON_EMPTY_GROUP):
    """The group has members."""


class NotOwned(TidelogError, code=40915, kafka=KafkaCode.STALE_MEMBER_EPOCH):
    """The member does not own the partition whose offset it commits, or owns it only since a later epoch; nothing was
    stored."""


class StaleCommit(TidelogError, code=40916, kafka=KafkaCode.INVALID_UPDATE_VERSION):
    """A later offset commit of the same member is already stored; this one arrived late."""


class MemberIdRequired(TidelogError, code=40921, kafka=KafkaCode.MEMBER_ID_REQUIRED):
    """A member of a classic group has to join again, with the member id in this error. So a join whose answer is lost
    leaves no orphaned member behind (KIP-394)."""

    def __init__(self, message: str, member_id: str = "") -> None:
        super().__init__(message)
        self.member_id = member_id


class IllegalGeneration(TidelogError, code=40922, kafka=KafkaCode.ILLEGAL_GENERATION):
    """A member of a classic group sent a generation that is not the current one; it has to join again."""


class RebalanceInProgress(TidelogError, code=40923, kafka=KafkaCode.REBALANCE_IN_PROGRESS):
    """A classic group is rebalancing: the member has to join again, and nothing of its request was stored."""


class FencedInstance(TidelogError, code=40924, kafka=KafkaCode.FENCED_INSTANCE_ID):
    """Another process has joined a classic group later with the same `group.instance.id`; this one has to stop."""


class InconsistentProtocol(TidelogError, code=40925, kafka=KafkaCode.INCONSISTENT_GROUP_PROTOCOL):
    """A group's members use another protocol: the group is of the other kind (classic or not), has another protocol
    type, or has no assignor that all members support."""


class UnsupportedLevel(TidelogError, code=40920, kafka=KafkaCode.UNSUPPORTED_VERSION):
    """A broker does not support the feature level that the request needs; nothing was done."""


class TotalOrderRequired(TidelogError, code=40926, kafka=KafkaCode.INVALID_REQUEST):
    """The request needs a topic with `commit.order=total`, and this one was created with another order; nothing was
    appended."""


class LossRefused(TidelogError, code=40919, kafka=KafkaCode.INVALID_REQUEST):
    """These offsets cannot be accepted as lost: they are not damaged, a good copy is left, or a broker that may have
    one cannot be asked."""


class RecordsLost(TidelogError, code=41001, kafka=KafkaCode.INVALID_RECORD):
    """The records at these offsets are lost for good, and an operator has accepted that (`tidelog log losses`). A
    reader has to choose to skip them (`on_loss`), or to seek."""

    def __init__(
        self, message: str, topic: str = "", partition: int = -1, ranges: Sequence[tuple[int, int]] = ()
    ) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.ranges = tuple(ranges)
        """Lost ranges as (first offset, exclusive end offset); empty if the error came over the wire."""


class LengthRequired(TidelogError, code=41101, kafka=KafkaCode.INVALID_REQUEST):
    """The request needs a body, with its length or in chunks."""


class EndOffsetMoved(TidelogError, code=41201, kafka=KafkaCode.INVALID_UPDATE_VERSION):
    """The partition does not end at the offset that the request expects: records have been appended since."""


class TooLarge(TidelogError, code=41301, kafka=KafkaCode.MESSAGE_TOO_LARGE):
    """A body, batch or record is larger than the limit for it."""


class UnsupportedMediaType(TidelogError, code=41501, kafka=KafkaCode.INVALID_REQUEST):
    """The route expects another `Content-Type`."""


class OffsetOutOfRange(TidelogError, code=41601, kafka=KafkaCode.OFFSET_OUT_OF_RANGE):
    """The offset lies outside [log start, log end]; the message names the range.

    If the partition's leader answers, the error also has the high watermark and the leader epoch.
    """

    def __init__(self, message: str, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(message)
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark: int | None = None
        self.leader_epoch: int | None = None


class UnprocessableBody(TidelogError, code=42206, kafka=KafkaCode.INVALID_REQUEST):
    """A well-formed body breaks a rule: no records, duplicate ids, a key that is too long."""


class ConsumerConfigRefused(TidelogError, code=42204, kafka=KafkaCode.INVALID_CONFIG):
    """A REST consumer does not support this setting, or this value of it."""


class UnsupportedAssignor(TidelogError, code=42211, kafka=KafkaCode.UNSUPPORTED_ASSIGNOR):
    """The coordinator has no such assignor."""


class MetadataTooLong(TidelogError, code=42212, kafka=KafkaCode.OFFSET_METADATA_TOO_LARGE):
    """The metadata of an offset commit exceeds `offset.metadata.max.bytes`."""


class GroupFull(TidelogError, code=42213, kafka=KafkaCode.GROUP_MAX_SIZE_REACHED):
    """The group has its maximum number of members; or it would be a new group, and there is the maximum number of
    groups."""


class IdempotencyKeyReused(TidelogError, code=42209, kafka=KafkaCode.INVALID_REQUEST):
    """The same `Idempotency-Key` was used before with other content."""


# -- 429, 503, 507: not now, and nothing was appended --------------------------------------------------------------


class QuotaExceeded(TidelogError, code=42902, kafka=KafkaCode.THROTTLING_QUOTA_EXCEEDED, retriable=True):
    """The caller has used up its quota; nothing was done, and `Retry-After` says when to try again."""

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TooManyConnections(QuotaExceeded, kafka=KafkaCode.THROTTLING_QUOTA_EXCEEDED):
    """The caller has as many connections open as its quota allows; this one is closed, and nothing was done."""


class LeaderNotAvailable(TidelogError, code=50302, kafka=KafkaCode.LEADER_NOT_AVAILABLE, retriable=True):
    """The partition has no leader now, or the broker is starting or still opening its log, or too few brokers are live
    to lead a new partition; nothing was appended or created."""


class NotEnoughReplicas(LeaderNotAvailable, kafka=KafkaCode.NOT_ENOUGH_REPLICAS):
    """The partition has a leader, and too few replicas in sync, or in too few racks (`min.insync.replicas`,
    `min.insync.racks`); nothing was appended."""


class DamagedBatch(TidelogError, code=50303, kafka=KafkaCode.KAFKA_STORAGE_ERROR, retriable=True):
    """The batch at this offset is damaged on this broker's disk; nothing else is. It is repaired as soon as another
    replica shows a good copy; `log verify --cluster` tells whether there is one, and docs/repair.md what to do if not.
    """


class LogOffline(TidelogError, code=50304, kafka=KafkaCode.KAFKA_STORAGE_ERROR, retriable=True):
    """The partition's log had a storage error and accepts no more writes until the broker is restarted. Another replica
    takes over, if there is one. A read of this broker's own copy (`replica=local`) gets this error at the end of the
    copy."""


class Overloaded(TidelogError, code=50305, kafka=KafkaCode.LEADER_NOT_AVAILABLE, retriable=True):
    """A bound was reached: queue, memory budget, connections. Try again after the `Retry-After` time."""


class ShuttingDown(TidelogError, code=50306, kafka=KafkaCode.LEADER_NOT_AVAILABLE, retriable=True):
    """The broker is stopping; another one may answer."""


class NotLeader(LeaderNotAvailable, code=50307, kafka=KafkaCode.NOT_LEADER_OR_FOLLOWER):
    """A broker was asked by another broker for a partition that it does not lead.

    Clients never see it: the broker that they asked finds the leader.
    """

    def __init__(self, message: str, leader_epoch: int = -1) -> None:
        super().__init__(message)
        self.leader_epoch = leader_epoch
        """The newest leader epoch that the answering broker knows of; -1 if it knows none."""


class NotController(TidelogError, code=50308, kafka=KafkaCode.NOT_CONTROLLER, retriable=True):
    """The broker that was asked is not the active controller (any more); it has done nothing."""


class CoordinatorNotAvailable(TidelogError, code=50309, kafka=KafkaCode.COORDINATOR_NOT_AVAILABLE, retriable=True):
    """The group has no coordinator now, or the coordinator is still loading the group; nothing was done."""


class NotCoordinator(CoordinatorNotAvailable, kafka=KafkaCode.NOT_COORDINATOR):
    """The broker that was asked is not the group's coordinator, or stopped being it while the request waited. The
    caller has to find the coordinator and ask again, which is always safe."""


class BrokerNotRegistered(TidelogError, code=50310, kafka=KafkaCode.LEADER_NOT_AVAILABLE, retriable=True):
    """A broker sent a request that only registered brokers may send, and the metadata of the receiving broker do not
    name the sending process (yet); nothing was done.

    Clients never see it: their broker asks again.
    """


class DiskFull(TidelogError, code=50701, kafka=KafkaCode.KAFKA_STORAGE_ERROR, retriable=True):
    """There is no space; nothing was appended, and writes resume by themselves when there is space."""


# -- 504: unknown --------------------------------------------------------------------------------------------------


class TimedOutAfterAppend(TidelogError, code=50401, kafka=KafkaCode.REQUEST_TIMED_OUT, retriable=True):
    """The leader has appended the records, but their commit was not confirmed in time; or the request was forwarded,
    and the answer was lost."""


class CoordinatorLost(TidelogError, code=50403, kafka=KafkaCode.REQUEST_TIMED_OUT, retriable=True):
    """The coordinator was replaced, or cut off, while it was writing; whether the change took effect is unknown.
    Requests about groups may be repeated."""


class ControllerLost(TidelogError, code=50402, kafka=KafkaCode.REQUEST_TIMED_OUT, retriable=True):
    """The active controller was replaced, or cut off, while it was deciding; whether the command took effect is
    unknown. Commands to the controller may be repeated, and the answer then says."""
