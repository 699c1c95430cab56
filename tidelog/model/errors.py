"""Everything that can go wrong, and what a caller may conclude from it.

Two kinds of error never mix. A broken invariant is an `assert` and stops the process. A fault of the world, or of a
caller, is a `TidelogError`: it carries the five-digit code of the HTTP surface (first three digits: the status), the
code that Kafka's clients are told, and says whether it is *definite*.

- Definite: surely nothing was appended. Every 4xx, 503 and 507.
- Indefinite: the outcome is unknown. 500, 502, 504 and a cut connection. Only an idempotent retry is safe.

`retriable` says that the same request may succeed later without a change; it is about hope, not about safety.

The Kafka code follows from these, because Kafka's clients act on it by themselves:

- An indefinite error is REQUEST_TIMED_OUT, the one code after which they take a record for possibly appended.
- A definite error that passes by itself (503, 507, a used up share) is a code after which they try again without doubt.
- A definite error that stays (4xx) is a code after which they give up. Exceptions: metadata that lags behind (a topic,
  a partition or a replica that is unknown yet), and a wrong checksum.

A five-digit code belongs to one class. A class without a code of its own is a finer kind of its base, which only
Kafka's clients are told apart. `docs/errors.md`, generated from these classes, is the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from tidelog.model.kafka_codes import KafkaCode


class TidelogError(Exception):
    """Base of everything that a caller may be told; `code` and `message` are what goes over the wire."""

    code: ClassVar[int]
    kafka: ClassVar[KafkaCode | None] = None
    """None: no broker ever says it."""
    retriable: ClassVar[bool] = False

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
        """Drops the traceback and what the error was raised from, and returns it. A frame of them that has led to this
        error, by way of a request, say, would keep all that is at hand there until the next collection of garbage."""
        self.__traceback__ = self.__cause__ = self.__context__ = None
        return self


class InternalError(TidelogError):
    """A fault of the broker itself; the outcome is unknown."""

    code = 50001
    kafka = KafkaCode.REQUEST_TIMED_OUT


# -- 400: the request is wrong, and will be wrong again ------------------------------------------------------------


class InvalidRequest(TidelogError):
    """A name, number, parameter or body is wrong, or parameters contradict each other."""

    code = 40002
    kafka = KafkaCode.INVALID_REQUEST


class NotAsked(InvalidRequest):
    """A broker sent another one a message as a request, or as a notification, that is none; nothing was done. Look
    for a process that is none of the cluster's."""

    kafka = KafkaCode.INVALID_REQUEST


class ImplausibleNumber(InvalidRequest):
    """A broker named a ballot, position or offset that no broker could have come to; nothing was done, and nothing is
    remembered of it. Look for a broker with damaged memory, or for a process that is none of the cluster's."""

    kafka = KafkaCode.INVALID_REQUEST


class InvalidGroupName(InvalidRequest):
    """No group can have this name: it is empty, too long, or no text."""

    kafka = KafkaCode.INVALID_GROUP_ID


class InvalidSessionTimeout(InvalidRequest):
    """The session that a member asks for is shorter than `group.min.session.timeout.ms`, or longer than
    `group.max.session.timeout.ms`."""

    kafka = KafkaCode.INVALID_SESSION_TIMEOUT


class TopicExists(InvalidRequest):
    """A topic cannot be created because there is one of this name.

    As with Confluent's REST proxy it has its parent's code. The admin client looks at the metadata to tell them apart.
    """

    kafka = KafkaCode.TOPIC_ALREADY_EXISTS


class InvalidBatch(TidelogError):
    """A record batch is not a sound RecordBatch v2: magic, lengths, codec, counts."""

    code = 40003
    kafka = KafkaCode.INVALID_RECORD


class CorruptBatch(InvalidBatch):
    """The checksum of a record batch is wrong: it was damaged on its way, so that sending it again may help."""

    kafka = KafkaCode.CORRUPT_MESSAGE


class InvalidTimestamp(TidelogError):
    """A timestamp is further from the broker's clock than the topic allows."""

    code = 40004
    kafka = KafkaCode.INVALID_TIMESTAMP


class NotAuthenticated(TidelogError):
    """It is not known who is calling: nothing was shown that proves it, or what was shown is not valid (any more)."""

    code = 40101
    kafka = KafkaCode.SASL_AUTHENTICATION_FAILED

    def __init__(self, message: str, *, cause: str = "") -> None:
        """The `cause` is for the audit log and for nobody else: a few words, of which there are not many."""
        super().__init__(message)
        self.cause = cause


class TooManyAttempts(TidelogError):
    """Too many attempts of this user to log in from this address have failed; wait as long as `Retry-After` says."""

    code = 42901
    kafka = KafkaCode.SASL_AUTHENTICATION_FAILED

    def __init__(self, message: str, retry_after_s: int = 60) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotAuthorized(TidelogError):
    """The caller has no right to do this to the resource (Kafka has a code for each kind of resource)."""

    code = 40301
    kafka = KafkaCode.TOPIC_AUTHORIZATION_FAILED


class ForeignSender(NotAuthorized):
    """A broker spoke to another one for a third, named an epoch that the metadata does not give it, or did not say for
    which client it asks; nothing was done. Look for two brokers with one `node.id`, or for a process on the peer
    network that is none of the cluster's.
    """

    kafka = KafkaCode.CLUSTER_AUTHORIZATION_FAILED


class ForeignOrigin(TidelogError):
    """A browser says that a web page of another origin sends a request that may change something."""

    code = 40302
    kafka = KafkaCode.INVALID_REQUEST


class UnknownHost(TidelogError):
    """The `Host` header is a name that this broker is not known by (`http.hosts`)."""

    code = 42101
    kafka = KafkaCode.INVALID_REQUEST


class UnknownTopic(TidelogError):
    """There is no such topic."""

    code = 40401
    kafka = KafkaCode.UNKNOWN_TOPIC_OR_PARTITION


class UnknownPartition(TidelogError):
    """The topic has no such partition."""

    code = 40402
    kafka = KafkaCode.UNKNOWN_TOPIC_OR_PARTITION


class NotAReplica(TidelogError):
    """The addressed broker holds no copy of the partition."""

    code = 40404
    kafka = KafkaCode.REPLICA_NOT_AVAILABLE


class UnknownInstance(TidelogError):
    """There is no such REST consumer instance: it was deleted, has expired, never was, or is another principal's."""

    code = 40403
    kafka = KafkaCode.RESOURCE_NOT_FOUND


class UnknownGroup(TidelogError):
    """There is no such consumer group."""

    code = 40405
    kafka = KafkaCode.GROUP_ID_NOT_FOUND


class UnknownMember(TidelogError):
    """The coordinator knows no such member: it has left, or was expelled, and joins anew if it wants."""

    code = 40406
    kafka = KafkaCode.UNKNOWN_MEMBER_ID


class NotFound(TidelogError):
    """There is no such route, cluster, broker, config or task."""

    code = 40400
    kafka = KafkaCode.RESOURCE_NOT_FOUND


class MethodNotAllowed(TidelogError):
    """The route knows other methods, which `Allow` names."""

    code = 40501
    kafka = KafkaCode.INVALID_REQUEST


class NotAcceptable(TidelogError):
    """The `Accept` header asks for a form that this resource does not have."""

    code = 40602
    kafka = KafkaCode.INVALID_REQUEST


class FormatMismatch(TidelogError):
    """A stored record cannot be shown in the form asked for; the message names its offset."""

    code = 40601
    kafka = KafkaCode.INVALID_REQUEST


class RequestTimeout(TidelogError):
    """The body did not arrive in time; nothing was done."""

    code = 40801
    kafka = KafkaCode.INVALID_REQUEST
    retriable = True


class InstanceExists(TidelogError):
    """A REST consumer instance of this name is there already."""

    code = 40902
    kafka = KafkaCode.DUPLICATE_RESOURCE


class IllegalState(TidelogError):
    """A REST consumer that has subscribed cannot be assigned partitions, and the other way round; or it reads nothing
    yet, or does not have that partition now."""

    code = 40903
    kafka = KafkaCode.INVALID_REQUEST


class OutOfOrderSequence(TidelogError):
    """An idempotent producer left a gap."""

    code = 40904
    kafka = KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class ProducerFenced(TidelogError):
    """A newer producer epoch exists."""

    code = 40905
    kafka = KafkaCode.INVALID_PRODUCER_EPOCH


class StaleBrokerEpoch(TidelogError):
    """A broker's registration is not the current one: another process has registered since. It must register again
    before anybody listens to it, and stop if that is refused."""

    code = 40907
    kafka = KafkaCode.STALE_BROKER_EPOCH


class NodeIdInUse(TidelogError):
    """Another live broker has this node id. It may be one whose end nobody has noticed yet, so that the same request
    succeeds once its session is over."""

    code = 40908
    kafka = KafkaCode.DUPLICATE_BROKER_REGISTRATION
    retriable = True


class WrongCluster(TidelogError):
    """This broker's data belongs to another cluster."""

    code = 40909
    kafka = KafkaCode.INCONSISTENT_CLUSTER_ID


class OldDirectory(TidelogError):
    """A broker's data directory is an old copy: its cluster knows that this broker was further. The broker takes part
    again as with a new disk."""

    code = 40918
    kafka = KafkaCode.INCONSISTENT_CLUSTER_ID


class WrongDirectory(TidelogError):
    """A data directory is another broker's, or holds parts of another one; nothing in it was changed."""

    code = 40917
    kafka = KafkaCode.INCONSISTENT_CLUSTER_ID


class BrokerRemoved(TidelogError):
    """The broker was removed from its cluster; it should stop, and comes back only if it is started again."""

    code = 40910
    kafka = KafkaCode.BROKER_ID_NOT_REGISTERED


class FencedMember(TidelogError):
    """The member's epoch is not the one in force: it was expelled, or is a process of the past; it owns nothing."""

    code = 40911
    kafka = KafkaCode.FENCED_MEMBER_EPOCH


class InstanceIdInUse(TidelogError):
    """Another live member has this `group.instance.id`."""

    code = 40912
    kafka = KafkaCode.UNRELEASED_INSTANCE_ID


class GroupNotEmpty(TidelogError):
    """The group has members."""

    code = 40913
    kafka = KafkaCode.NON_EMPTY_GROUP


class NotOwned(TidelogError):
    """The member does not own the partition of its offset commit, or not since that epoch; nothing was kept."""

    code = 40915
    kafka = KafkaCode.STALE_MEMBER_EPOCH


class StaleCommit(TidelogError):
    """A later offset commit of the same member is kept already; this one came late."""

    code = 40916
    kafka = KafkaCode.INVALID_UPDATE_VERSION


class MemberIdRequired(TidelogError):
    """A member of a classic group joins again, under the id that comes with this error: so that a join whose answer is
    lost leaves no member behind that nobody speaks for (KIP-394)."""

    code = 40921
    kafka = KafkaCode.MEMBER_ID_REQUIRED

    def __init__(self, message: str, member_id: str = "") -> None:
        super().__init__(message)
        self.member_id = member_id


class IllegalGeneration(TidelogError):
    """A member of a classic group speaks with a generation that is not the one in force; it joins again."""

    code = 40922
    kafka = KafkaCode.ILLEGAL_GENERATION


class RebalanceInProgress(TidelogError):
    """A classic group is between two generations: the member joins again, and nothing was kept of what it asked."""

    code = 40923
    kafka = KafkaCode.REBALANCE_IN_PROGRESS


class FencedInstance(TidelogError):
    """Another process has joined a classic group with the same `group.instance.id`, later; this one stops."""

    code = 40924
    kafka = KafkaCode.FENCED_INSTANCE_ID


class InconsistentProtocol(TidelogError):
    """A group's members follow another protocol: of the other kind of group, of another type, or with no assignor that
    all have in common."""

    code = 40925
    kafka = KafkaCode.INCONSISTENT_GROUP_PROTOCOL


class UnsupportedLevel(TidelogError):
    """A broker does not speak the feature level that this takes; nothing was done."""

    code = 40920
    kafka = KafkaCode.UNSUPPORTED_VERSION


class LossRefused(TidelogError):
    """These offsets cannot be given up: nothing is damaged there, a good copy is left, or a broker that may have one
    cannot be asked."""

    code = 40919
    kafka = KafkaCode.INVALID_REQUEST


class RecordsLost(TidelogError):
    """The records at these offsets are lost, and an operator has accepted that (`tidelog log losses`). Whoever reads
    says whether to go on behind them (`on_loss`), or seeks."""

    code = 41001
    kafka = KafkaCode.INVALID_RECORD

    def __init__(
        self, message: str, topic: str = "", partition: int = -1, ranges: Sequence[tuple[int, int]] = ()
    ) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.ranges = tuple(ranges)
        """Each begins with its first offset and ends before its second one; none if the error came over the wire."""


class LengthRequired(TidelogError):
    """The request needs a body, with its length or in chunks."""

    code = 41101
    kafka = KafkaCode.INVALID_REQUEST


class EndOffsetMoved(TidelogError):
    """The partition does not end where the request expects it to: somebody has appended."""

    code = 41201
    kafka = KafkaCode.INVALID_UPDATE_VERSION


class TooLarge(TidelogError):
    """A body, batch or record is over its bound."""

    code = 41301
    kafka = KafkaCode.MESSAGE_TOO_LARGE


class UnsupportedMediaType(TidelogError):
    """The route takes another `Content-Type`."""

    code = 41501
    kafka = KafkaCode.INVALID_REQUEST


class OffsetOutOfRange(TidelogError):
    """The offset lies outside [log start, log end]; the message names the range.

    Its leader also says how far the partition is committed, and in which epoch it speaks.
    """

    code = 41601
    kafka = KafkaCode.OFFSET_OUT_OF_RANGE

    def __init__(self, message: str, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(message)
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark: int | None = None
        self.leader_epoch: int | None = None


class UnprocessableBody(TidelogError):
    """A well-formed body breaks a rule: no records, duplicate ids, a key that is too long."""

    code = 42206
    kafka = KafkaCode.INVALID_REQUEST


class ConsumerConfigRefused(TidelogError):
    """A REST consumer cannot have this setting, or not this value of it."""

    code = 42204
    kafka = KafkaCode.INVALID_CONFIG


class UnsupportedAssignor(TidelogError):
    """The coordinator has no such assignor."""

    code = 42211
    kafka = KafkaCode.UNSUPPORTED_ASSIGNOR


class MetadataTooLong(TidelogError):
    """The metadata of an offset commit exceeds `offset.metadata.max.bytes`."""

    code = 42212
    kafka = KafkaCode.OFFSET_METADATA_TOO_LARGE


class GroupFull(TidelogError):
    """The group has as many members as it may have; or it would be new, and there are as many as there may be."""

    code = 42213
    kafka = KafkaCode.GROUP_MAX_SIZE_REACHED


class IdempotencyKeyReused(TidelogError):
    """The same `Idempotency-Key` came with other content."""

    code = 42209
    kafka = KafkaCode.INVALID_REQUEST


# -- 429, 503, 507: not now, and nothing was appended --------------------------------------------------------------


class QuotaExceeded(TidelogError):
    """The caller has used more than its share; nothing was done, and `Retry-After` says when there is room again."""

    code = 42902
    kafka = KafkaCode.THROTTLING_QUOTA_EXCEEDED
    retriable = True

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TooManyConnections(QuotaExceeded):
    """The caller has as many connections open as its quota allows; this one is closed, and nothing was done."""

    kafka = KafkaCode.THROTTLING_QUOTA_EXCEEDED


class LeaderNotAvailable(TidelogError):
    """The partition has no leader now, or the broker is starting or still opening its log; nothing was appended."""

    code = 50302
    kafka = KafkaCode.LEADER_NOT_AVAILABLE
    retriable = True


class NotEnoughReplicas(LeaderNotAvailable):
    """The partition has a leader, and too few replicas in sync, or in too few racks (`min.insync.replicas`,
    `min.insync.racks`); nothing was appended."""

    kafka = KafkaCode.NOT_ENOUGH_REPLICAS


class DamagedBatch(TidelogError):
    """The batch at this offset is damaged on this broker's disk; nothing else is. It is repaired as soon as another
    replica shows a good copy; `log verify --cluster` tells whether there is one, and docs/repair.md what to do if not.
    """

    code = 50303
    kafka = KafkaCode.KAFKA_STORAGE_ERROR
    retriable = True


class LogOffline(TidelogError):
    """The partition's log took a storage error and accepts no more writes until the broker is restarted. Where there is
    another replica it takes over. A read of this broker's own copy (`replica=local`) is told so at its end."""

    code = 50304
    kafka = KafkaCode.KAFKA_STORAGE_ERROR
    retriable = True


class Overloaded(TidelogError):
    """A bound was hit: queue, memory budget, connections. Try again after the `Retry-After` time."""

    code = 50305
    kafka = KafkaCode.LEADER_NOT_AVAILABLE
    retriable = True


class ShuttingDown(TidelogError):
    """The broker is stopping; another one may answer."""

    code = 50306
    kafka = KafkaCode.LEADER_NOT_AVAILABLE
    retriable = True


class NotLeader(LeaderNotAvailable):
    """The broker that was asked by another one does not lead this partition.

    Clients never see it: their broker asks whoever does lead.
    """

    code = 50307
    kafka = KafkaCode.NOT_LEADER_OR_FOLLOWER

    def __init__(self, message: str, leader_epoch: int = -1) -> None:
        super().__init__(message)
        self.leader_epoch = leader_epoch
        """The newest leader epoch that the answering broker knows of; -1 if it knows none."""


class NotController(TidelogError):
    """The broker that was asked is not the active controller, or is so no more; it has done nothing."""

    code = 50308
    kafka = KafkaCode.NOT_CONTROLLER
    retriable = True


class CoordinatorNotAvailable(TidelogError):
    """The group has no coordinator now, or it is still reading its state; nothing was done."""

    code = 50309
    kafka = KafkaCode.COORDINATOR_NOT_AVAILABLE
    retriable = True


class NotCoordinator(CoordinatorNotAvailable):
    """The broker that was asked does not coordinate the group, or ceased to while the request waited: the caller looks
    for the coordinator, and asks that one. Whatever was asked may be asked again."""

    kafka = KafkaCode.NOT_COORDINATOR


class BrokerNotRegistered(TidelogError):
    """A broker asked another one for what only brokers that are registered are given, and the metadata there do not
    name its process, or not yet; nothing was done.

    Clients never see it: their broker asks again.
    """

    code = 50310
    kafka = KafkaCode.LEADER_NOT_AVAILABLE
    retriable = True


class DiskFull(TidelogError):
    """There is no space; nothing was appended, and writes resume by themselves when there is space."""

    code = 50701
    kafka = KafkaCode.KAFKA_STORAGE_ERROR
    retriable = True


# -- 504: unknown --------------------------------------------------------------------------------------------------


class TimedOutAfterAppend(TidelogError):
    """The leader has appended, and does not know in time that it is committed; or the request was forwarded, and the
    answer was lost."""

    code = 50401
    kafka = KafkaCode.REQUEST_TIMED_OUT
    retriable = True


class CoordinatorLost(TidelogError):
    """The coordinator was replaced, or cut off, while it was writing; whether it is in force is unknown. Requests about
    groups may be repeated."""

    code = 50403
    kafka = KafkaCode.REQUEST_TIMED_OUT
    retriable = True


class ControllerLost(TidelogError):
    """The active controller was replaced, or cut off, while it was deciding; ask again, and be told what became of it.
    Commands to the controller may be repeated."""

    code = 50402
    kafka = KafkaCode.REQUEST_TIMED_OUT
    retriable = True
