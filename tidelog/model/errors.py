"""What can go wrong, and what a caller may conclude from it.

Two kinds of error never mix. A broken invariant is an `assert` and stops the process. A fault of the world, or of a
caller, is a `TidelogError`: it carries the five-digit code of the HTTP surface (first three digits: the status), and
says whether it is *definite*.

- Definite: surely nothing was appended. Every 4xx, 503 and 507.
- Indefinite: the outcome is unknown. 500, 502, 504 and a cut connection. Only an idempotent retry is safe.

`retriable` says that the same request may succeed later without a change; it is about hope, not about safety.
"""

from __future__ import annotations

from typing import ClassVar


class TidelogError(Exception):
    """Base of everything that a caller may be told; `code` and `message` are what goes over the wire."""

    code: ClassVar[int] = 50001
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


class InternalError(TidelogError):
    """A fault of the broker itself; the outcome is unknown."""

    code = 50001


# -- 400: the request is wrong, and will be wrong again ------------------------------------------------------------


class ConsumerConfigOutOfRange(TidelogError):
    """A REST consumer's setting that is a number is too small, or too large."""

    code = 40001


class InvalidRequest(TidelogError):
    """Syntax, type, integer range, name, or an option that contradicts another."""

    code = 40002


class TopicExists(InvalidRequest):
    """A topic cannot be created because there is one of this name (Kafka: TOPIC_ALREADY_EXISTS).

    It has its parent's code, as with Confluent's REST proxy, so a code alone never becomes this class: the admin client
    looks at the metadata to tell the two apart.
    """


class InvalidBatch(TidelogError):
    """A record batch that is not a sound RecordBatch v2: CRC, magic, lengths, counts (Kafka: CORRUPT_MESSAGE)."""

    code = 40003


class InvalidTimestamp(TidelogError):
    """A timestamp further from the broker's clock than the topic allows (Kafka: INVALID_TIMESTAMP)."""

    code = 40004


class NotAuthorized(TidelogError):
    """The caller has no right to do this to the resource (Kafka: TOPIC_AUTHORIZATION_FAILED and its like)."""

    code = 40301


class ForeignOrigin(TidelogError):
    """A browser says that a web page of another origin sends a request that may change something."""

    code = 40302


class UnknownHost(TidelogError):
    """The `Host` header is a name that this broker is not known by (HTTP: Misdirected Request)."""

    code = 42101


class UnknownTopic(TidelogError):
    code = 40401


class UnknownPartition(TidelogError):
    code = 40402


class NotAReplica(TidelogError):
    """The addressed broker holds no copy of the partition."""

    code = 40404


class UnknownInstance(TidelogError):
    """No such REST consumer instance; it was deleted, has expired, or never was."""

    code = 40403


class UnknownGroup(TidelogError):
    """No such consumer group (Kafka: GROUP_ID_NOT_FOUND)."""

    code = 40405


class UnknownMember(TidelogError):
    """The coordinator knows no such member: it has left, or was expelled, and joins anew if it wants (Kafka:
    UNKNOWN_MEMBER_ID)."""

    code = 40406


class NotFound(TidelogError):
    """No such route, cluster, broker, config or task."""

    code = 40400


class MethodNotAllowed(TidelogError):
    code = 40501


class NotAcceptable(TidelogError):
    """The `Accept` header asks for a form that this resource does not have."""

    code = 40602


class FormatMismatch(TidelogError):
    """A stored record cannot be shown in the form asked for; names its offset."""

    code = 40601


class RequestTimeout(TidelogError):
    """The body did not arrive in time; nothing was done."""

    code = 40801
    retriable = True


class InstanceExists(TidelogError):
    """A REST consumer instance of this name is there already."""

    code = 40902


class IllegalState(TidelogError):
    """A REST consumer that has subscribed cannot be assigned partitions, and the other way round; or has neither."""

    code = 40903


class OutOfOrderSequence(TidelogError):
    """An idempotent producer left a gap (Kafka: OUT_OF_ORDER_SEQUENCE_NUMBER)."""

    code = 40904


class ProducerFenced(TidelogError):
    """A newer producer epoch exists (Kafka: INVALID_PRODUCER_EPOCH)."""

    code = 40905


class StaleBrokerEpoch(TidelogError):
    """A broker's registration is not the current one: another process has registered since (Kafka:
    STALE_BROKER_EPOCH). It must register again before anybody listens to it, and stop if that is refused."""

    code = 40907


class NodeIdInUse(TidelogError):
    """Another live broker has this node id (Kafka: DUPLICATE_BROKER_REGISTRATION). It may be one whose end nobody has
    noticed yet, so that the same request succeeds once its session is over."""

    code = 40908
    retriable = True


class WrongCluster(TidelogError):
    """This broker's data belongs to another cluster (Kafka: INCONSISTENT_CLUSTER_ID)."""

    code = 40909


class BrokerRemoved(TidelogError):
    """The broker was removed from its cluster; it should stop, and comes back only if it is started again."""

    code = 40910


class FencedMember(TidelogError):
    """The member's epoch is not the one in force: it was expelled, or is a process of the past (Kafka:
    FENCED_MEMBER_EPOCH, STALE_MEMBER_EPOCH)."""

    code = 40911


class InstanceIdInUse(TidelogError):
    """Another live member has this `group.instance.id` (Kafka: UNRELEASED_INSTANCE_ID)."""

    code = 40912


class GroupNotEmpty(TidelogError):
    """Not possible while the group has members (Kafka: NON_EMPTY_GROUP)."""

    code = 40913


class NotOwned(TidelogError):
    """A commit for a partition that its member does not own, or not since that epoch; nothing was kept."""

    code = 40915


class StaleCommit(TidelogError):
    """A later commit of the same member is kept already; this one came late."""

    code = 40916


class LengthRequired(TidelogError):
    code = 41101


class EndOffsetMoved(TidelogError):
    """The partition does not end where the request expects it to: somebody has appended (HTTP: Precondition Failed)."""

    code = 41201


class TooLarge(TidelogError):
    """A body, batch or record over its bound."""

    code = 41301


class UnsupportedMediaType(TidelogError):
    code = 41501


class OffsetOutOfRange(TidelogError):
    """The offset lies outside [log start, log end]; the message names the range.

    Its leader also says how far the partition is committed, and in which epoch it speaks.
    """

    code = 41601

    def __init__(self, message: str, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(message)
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark: int | None = None
        self.leader_epoch: int | None = None


class UnprocessableBody(TidelogError):
    """A well-formed body that breaks a rule: no records, duplicate ids, a key that is too long."""

    code = 42206


class ConsumerConfigRefused(TidelogError):
    """A REST consumer cannot have this setting."""

    code = 42204


class UnsupportedAssignor(TidelogError):
    """The coordinator has no such assignor (Kafka: UNSUPPORTED_ASSIGNOR)."""

    code = 42211


class MetadataTooLong(TidelogError):
    """A commit's metadata exceeds `offset.metadata.max.bytes` (Kafka: OFFSET_METADATA_TOO_LARGE)."""

    code = 42212


class GroupFull(TidelogError):
    """The group has as many members as it may have (Kafka: GROUP_MAX_SIZE_REACHED)."""

    code = 42213


class IdempotencyKeyReused(TidelogError):
    """The same `Idempotency-Key` came with other content."""

    code = 42209


# -- 503, 507: not now, and nothing was appended -------------------------------------------------------------------


class LeaderNotAvailable(TidelogError):
    """No leader, or fewer in-sync replicas than `min.insync.replicas`, before the append."""

    code = 50302
    retriable = True


class DamagedBatch(TidelogError):
    """The batch at this offset is damaged on this broker's disk; nothing else is (`log verify` tells more)."""

    code = 50303
    retriable = True


class LogOffline(TidelogError):
    """The partition's log took a storage error and accepts no more writes until the broker is restarted. Where there is
    another replica it takes over (Kafka: KAFKA_STORAGE_ERROR, which is retriable, too).
    """

    code = 50304
    retriable = True


class Overloaded(TidelogError):
    """A bound was hit: queue, memory budget, connections. Try again after the `Retry-After` time."""

    code = 50305
    retriable = True


class ShuttingDown(TidelogError):
    code = 50306
    retriable = True


class NotLeader(LeaderNotAvailable):
    """Said by one broker to another: whom you ask does not lead this partition (Kafka: NOT_LEADER_OR_FOLLOWER).

    Clients never see it: their broker asks whoever does lead.
    """

    code = 50307

    def __init__(self, message: str, leader_epoch: int = -1) -> None:
        super().__init__(message)
        self.leader_epoch = leader_epoch
        """The newest leader epoch that the answering broker knows of; -1 if it knows none."""


class NotController(TidelogError):
    """Whom you ask is not the active controller, or is so no more; it has done nothing (Kafka: NOT_CONTROLLER)."""

    code = 50308
    retriable = True


class CoordinatorNotAvailable(TidelogError):
    """The group has no coordinator now, or it is still reading its state; nothing was done (Kafka:
    COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR)."""

    code = 50309
    retriable = True


class DiskFull(TidelogError):
    """No space; nothing was appended, and writes resume by themselves when there is space."""

    code = 50701
    retriable = True


# -- 504: unknown --------------------------------------------------------------------------------------------------


class TimedOutAfterAppend(TidelogError):
    """Appended by the leader, not known to be committed in time (also NOT_ENOUGH_REPLICAS_AFTER_APPEND)."""

    code = 50401
    retriable = True


class CoordinatorLost(TidelogError):
    """The coordinator was replaced, or cut off, while it was writing; whether it is in force is unknown. Requests about
    groups may be repeated."""

    code = 50403
    retriable = True


class ControllerLost(TidelogError):
    """The active controller was replaced, or cut off, while it was deciding; ask again, and be told what became of it.
    Commands to the controller may be repeated."""

    code = 50402
    retriable = True
