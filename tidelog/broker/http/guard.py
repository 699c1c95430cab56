"""Authenticates and authorizes requests before they are served, and again while they wait or stream.

A listener without access control has no guard. With one, each request is authorized at its head for the resource of its
route, and by its handler for resources that only its body names (`Guard.require`). Requests under way are checked again
when users, tokens, ACLs or token keys change, and when their token expires: a waiting read is then answered with the
error that a new one would get; a stream, or a request that may have changed something, is cut off. Requests that are
done quickly are not interrupted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

from tidelog.broker.face.admission import Admission
from tidelog.broker.face.login import NO_PROOF, Proof
from tidelog.broker.http.authentication import Authentication
from tidelog.model.access import Caller, Operation, Resource, refusal
from tidelog.model.credentials import NEVER, Access
from tidelog.model.errors import NotAuthenticated, TidelogError
from tidelog.model.ports import Clock

ENDED: Final = 0.0
"""A time in the past, to which the timeout of a request is set to end it."""
MAPPED: Final = "::ffff:"
"""The prefix of an IPv6 address that maps an IPv4 address."""


@dataclass(slots=True, eq=False)
class Pass:
    """The authenticated caller of a request, the proof of who it is, and the rights that the request uses."""

    caller: Caller
    proof: Proof = NO_PROOF
    needs: dict[tuple[Operation, Resource], None] = field(default_factory=dict)
    """The rights that the request uses, each an operation on a resource."""


class Guard:
    """Authentication and authorization of the requests of one HTTP listener."""

    def __init__(
        self, authentication: Authentication, admission: Admission, access: Callable[[], Access], clock: Clock
    ) -> None:
        self.authentication = authentication
        self._admission = admission
        self._access = access
        self._clock = clock
        self._seen = (access(), authentication.keys)
        self._under_way: dict[asyncio.Timeout, Pass] = {}

    async def admit(
        self,
        header: str | None,
        address: str,
        certificate: Mapping[str, Any] | None,
        operation: Operation,
        resource: Resource,
        *,
        is_judged_by_handler: bool,
    ) -> Pass:
        """Authenticates the caller of a request, and checks its right to the operation on the resource unless the
        handler checks that (`is_judged_by_handler`). Raises `NotAuthenticated`, `NotAuthorized`, `TooManyAttempts` or
        `Overloaded`.
        """
        host = address.removeprefix(MAPPED) if "." in address else address
        proof = await self.authentication.prove(header, host, certificate)
        admitted = Pass(Caller(proof.principal, host), proof)
        if not is_judged_by_handler:
            self.require(admitted, operation, [resource])
        return admitted

    def require(self, entry: Pass, operation: Operation, resources: Iterable[Resource]) -> None:
        """Raises `NotAuthorized` unless the caller may perform the operation on all resources. The rights are checked
        again while the request lasts.
        """
        for resource in dict.fromkeys(resources):
            self._admission.refuse_unauthorized(entry.caller, operation, resource)
            entry.needs[operation, resource] = None

    def may(self, entry: Pass, operation: Operation, resource: Resource) -> bool:
        """Returns True if the caller may perform the operation on the resource."""
        return self._admission.may(entry.caller, operation, resource)

    async def while_it_may(
        self, entry: Pass, served: Awaitable[web.StreamResponse], *, is_read: bool
    ) -> web.StreamResponse:
        """Awaits the handler of a request, and cancels it as soon as its caller would not be admitted any more. Then
        raises `NotAuthenticated` or `NotAuthorized`; or `ConnectionAbortedError` if the request is no read and may have
        changed something.
        """
        patience = asyncio.timeout_at(self._end_s(entry))
        self._under_way[patience] = entry
        try:
            async with patience:
                return await served
        except TimeoutError:
            if not patience.expired():
                raise
            if not is_read:
                raise ConnectionAbortedError("the caller has lost its right") from None
            raise self._refusal(entry) from None
        finally:
            del self._under_way[patience]

    def _end_s(self, entry: Pass) -> float | None:
        """Returns the loop time at which the caller's token or certificate expires; None if it does not."""
        expires_ms = getattr(entry.proof.rests_on, "expires_ms", NEVER)
        if expires_ms == NEVER:
            return None
        return asyncio.get_running_loop().time() + max(0, expires_ms - self._clock.wall_ms()) / 1000

    def look_again(self) -> None:
        """Ends the requests under way whose callers have lost their rights, if users, tokens, ACLs or keys have changed
        since the last call.
        """
        access, keys = self._access(), self.authentication.keys
        if access is self._seen[0] and keys is self._seen[1]:
            return
        self._seen = (access, keys)
        for patience, entry in list(self._under_way.items()):
            if self._refusal_now(entry) is not None and patience.when() != ENDED and not patience.expired():
                patience.reschedule(ENDED)

    def _refusal_now(self, entry: Pass) -> TidelogError | None:
        if not self.authentication.still_holds(entry.proof):
            return NotAuthenticated("the token, the password or the certificate of this request holds no more")
        for operation, resource in entry.needs:
            if not self._admission.may(entry.caller, operation, resource):
                return refusal(entry.caller, operation, resource)
        return None

    def _refusal(self, entry: Pass) -> TidelogError:
        return self._refusal_now(entry) or NotAuthenticated("the token or the certificate of this request has ended")
