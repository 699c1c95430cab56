"""`Desk`: the context of one admin request. It checks ACLs, charges quotas and writes the audit log.

Each item of a request runs in a task of its own, up to `AT_ONCE` at a time, so that the controller can commit several
changes together. The tasks end with the request. An item that has not begun when the request's deadline passes is
answered with REQUEST_TIMED_OUT.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from tidelog.broker.face.admission import Admission
from tidelog.broker.face.audit import AuditEvent
from tidelog.broker.face.cluster import Cluster
from tidelog.broker.face.face import BrokerFace
from tidelog.broker.face.shares import DELAY_S_MAX, Client
from tidelog.broker.kafka.admin.codes import Outcome, Refused, outcome_of
from tidelog.broker.kafka.admin.configs import NAME_CHARS_SHOWN
from tidelog.broker.kafka.apis import Key
from tidelog.broker.kafka.call import Call
from tidelog.broker.kafka.codes import code_of
from tidelog.broker.kafka.listener_parts import Parts
from tidelog.model.access import Caller, Operation, Resource, refusal
from tidelog.model.cluster import KAFKA, ClusterImage
from tidelog.model.errors import InvalidRequest, NotAuthorized, QuotaExceeded, TidelogError
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.kafka_wire import Malformed
from tidelog.model.quotas import CONTROLLER_MUTATION_RATE

Item = TypeVar("Item")
T = TypeVar("T")
H = TypeVar("H", bound=Hashable)
Tree = dict[str, Any]

AT_ONCE: Final = 16
ITEMS_MAX: Final = 1_000
"""Maximum number of items in one request, unless the handler sets another limit."""
KNOW_THROTTLING: Final = {Key.CREATE_TOPICS: 6, Key.DELETE_TOPICS: 5, Key.CREATE_PARTITIONS: 3}
"""First version of each request type whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599). For older versions the
broker delays the request until the quota allows it."""
ENTRIES_MAX: Final = 5_000
"""Maximum number of entries of all kinds in one request. A request with more closes the connection, since an answer
with an error for each entry would take too long."""
DONE_STATUS: Final = 200


class Desk:
    """The context of one admin request: its client, the way to the controller, ACL checks, quotas and the audit log."""

    def __init__(self, parts: Parts, call: Call, caller: Caller) -> None:
        self.parts = parts
        self.call = call
        self.caller = caller
        self.face: BrokerFace = parts.face
        self.cluster: Cluster = parts.cluster
        self.administration = parts.face.administration.by(caller)
        """Commands to the controller in the name of this client."""
        self._admission: Admission = parts.admission
        self._client = Client(caller.principal, call.client_id)
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._deadline_s = self.deadline_s(0)

    @property
    def image(self) -> ClusterImage:
        """The newest cluster metadata that this broker has applied."""
        return self.cluster.image

    def deadline_s(self, timeout_ms: float) -> float:
        """Returns the deadline, in loop time, for a client's timeout. The broker's own limit caps it, and applies if
        the client gives no timeout."""
        most_ms = self.parts.limits.request_timeout_ms_max
        return asyncio.get_running_loop().time() + (min(timeout_ms, most_ms) if timeout_ms > 0 else most_ms) / 1000

    # -- rights --------------------------------------------------------------------------------------------------------

    def may(self, operation: Operation, resource: Resource) -> bool:
        """Returns True if the ACLs allow the client this operation on the resource."""
        return self._admission.may(self.caller, operation, resource)

    def require(self, operation: Operation, resource: Resource) -> None:
        """Raises `Refused`, with Kafka's authorization error for the resource's type, unless the ACLs allow the client
        this operation. A refusal is written to the audit log."""
        if not self.may(operation, resource):
            error = refusal(self.caller, operation, resource)
            self._denied(operation, resource, error)
            raise Refused(code_of(error, resource.type), error.message)

    # -- shares --------------------------------------------------------------------------------------------------------

    async def mutate(self, count: int) -> None:
        """Charges the client's controller mutation quota for topics or partitions to be created or deleted. Raises
        `QuotaExceeded`."""
        shares, since = self.face.shares, KNOW_THROTTLING[self.call.api.key]
        wait_s_max = DELAY_S_MAX if self.call.version >= since else self.parts.limits.throttle_s_max
        await shares.use(CONTROLLER_MUTATION_RATE, self._client, max(1, count), wait_s_max)

    @property
    def throttle_ms(self) -> int:
        """Returns the throttle time, in ms, that the answer asks of the client for the controller mutation quota."""
        shares = self.face.shares
        if self.call.api.key not in KNOW_THROTTLING or not shares.are_set:
            return 0
        owed_s = shares.owed_s(CONTROLLER_MUTATION_RATE, self._client)
        return int(1000 * min(owed_s, self.parts.limits.throttle_s_max))

    # -- items ---------------------------------------------------------------------------------------------------------

    async def each(
        self,
        items: Sequence[Item],
        work: Callable[[Item], Awaitable[T]],
        failed: Callable[[Item, Outcome], T],
        *,
        kind: str = "Topic",
        most: int = ITEMS_MAX,
    ) -> list[T]:
        """Runs `work` for each item and returns the results in order; for an item that fails, the result is what
        `failed` returns for its outcome. `kind` is the resource type of authorization errors. With more than `most`
        items all of them fail; with more than `ENTRIES_MAX` it raises `Malformed`."""
        bound(len(items))
        if len(items) > most:
            refused = Outcome(KafkaCode.INVALID_REQUEST, f"{len(items)} items: send {most} in one request at most")
            return [failed(item, refused) for item in items]

        async def attempt(item: Item) -> T:
            try:
                async with self._turns:
                    self._refuse_late()
                    return await work(item)
            except (TidelogError, Refused) as error:
                return failed(item, outcome_of(error, kind))

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(attempt(item)) for item in items]
        return [task.result() for task in tasks]

    def _refuse_late(self) -> None:
        if asyncio.get_running_loop().time() > self._deadline_s:
            raise Refused(KafkaCode.REQUEST_TIMED_OUT, "it was not begun: what stood before it took too long")

    # -- audit ---------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def changing(self, operation: Operation, resource: Resource, subject: str) -> AsyncIterator[None]:
        """Writes to the audit log how the change in the `with` block ended: done, failed or denied."""
        audit = self.face.audit
        try:
            yield
        except (NotAuthorized, QuotaExceeded) as error:
            self._denied(operation, resource, error)
            raise
        except (TidelogError, Refused) as error:
            if audit is not None:
                await audit.changed(self._event("changed", operation, resource, subject, error))
            raise
        except BaseException:  # the client is gone, or this broker has failed
            if audit is not None:
                audit.changed_unanswered(self._event("changed", operation, resource, subject, None, status=0))
            raise
        if audit is not None:
            await audit.changed(self._event("changed", operation, resource, subject, None))

    def _denied(self, operation: Operation, resource: Resource, error: TidelogError) -> None:
        if self.face.audit is not None:
            self.face.audit.denied(self._event("denied", operation, resource, "", error))

    def _event(
        self,
        event: str,
        operation: Operation,
        resource: Resource,
        subject: str,
        error: TidelogError | Refused | None,
        status: int = DONE_STATUS,
    ) -> AuditEvent:
        """Returns an audit log line. `status` is the status that HTTP would answer with."""
        shown = InvalidRequest(error.message) if isinstance(error, Refused) else error
        return AuditEvent(
            event=event,
            principal=str(self.caller.principal),
            client_id=self.call.client_id,
            address=self.caller.host,
            listener=KAFKA,
            route=self.call.api.key.label,
            operation=operation.value,
            resource_type=resource.type,
            resource_name=resource.name,
            subject=subject,
            allowed=event != "denied",
            status=status if shown is None else shown.status,
            error_code=0 if shown is None else shown.code,
            reason=_reason(shown, status),
        )


def _reason(error: TidelogError | None, status: int) -> str:
    if error is None:
        return "" if status else "the client was gone before the answer"
    match error:
        case NotAuthorized():
            return "no right"
        case QuotaExceeded():
            return "quota"
    return type(error).__name__


def bound(*counts: int, most: int = ENTRIES_MAX) -> None:
    """Raises `Malformed` if the counts of a request's entries add up to more than `most`."""
    if sum(counts) > most:
        raise Malformed(f"a request has {sum(counts)} entries; it may have {most}")


def require_own(desk: Desk, name: str) -> None:
    """Raises `Refused` unless this is the id of the broker that is asked: it knows no other's settings."""
    if name != str(desk.cluster.node_id):
        raise Refused(
            KafkaCode.INVALID_REQUEST,
            f"this is broker {desk.cluster.node_id}; ask broker {name[:NAME_CHARS_SHOWN]!r} itself for its settings",
        )


def topic_resource(name: str) -> Resource:
    """Returns the resource that ACLs have for a topic."""
    return Resource("Topic", name)


def repeated(names: Iterable[H]) -> Callable[[H], bool]:
    """Returns a function that tells whether a name occurs more than once among `names`."""
    counts = Counter(names)
    return lambda name: counts[name] > 1


def refuse_repeated(*, is_repeated: bool, what: str) -> None:
    """Raises `Refused` if the item occurs more than once in its request. No occurrence is carried out."""
    if is_repeated:
        raise Refused(KafkaCode.INVALID_REQUEST, f"{what} is in the request more than once")
