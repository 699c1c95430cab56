"""A `ClusterSession` that also sends Produce and Fetch requests by Kafka's protocol.

All other requests go over HTTP (`transport/session.py`). The addresses of the Kafka listeners come with the cluster's
metadata. Retry budget, avoidance of failed brokers and detection of silent brokers are common to both protocols.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from tidelog.model.errors import InvalidRequest
from tidelog.model.ports import Buffer, Entropy
from tidelog.transport.addresses import HTTPS
from tidelog.transport.credentials import Credentials
from tidelog.transport.errors import ConnectFailed, NoAnswer, decode_answer
from tidelog.transport.frames.doors import Dial, Doors
from tidelog.transport.frames.introduction import InThread, Introduction
from tidelog.transport.metadata import BrokerMetadata, ClusterMetadata, with_scheme
from tidelog.transport.security import PLAIN, Security
from tidelog.transport.session import ClusterSession

AUTO: Final = "auto"
WAYS: Final = (AUTO, "http", "kafka")


class _Broker(BrokerMetadata, frozen=True):
    kafka: str | None = None
    """The address of the broker's Kafka listener; None if it has none or is of an older version."""


class _Metadata(ClusterMetadata, frozen=True):
    brokers: tuple[_Broker, ...]


def parse_transport(text: str) -> str:
    """Returns the validated setting `transport`. Raises `InvalidRequest`."""
    if text not in WAYS:
        raise InvalidRequest(f"transport is {text!r}; it can be {', '.join(WAYS)}")
    return text


class RecordSession(ClusterSession):
    """Requests to the brokers of one cluster; Produce and Fetch may also use Kafka's protocol."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        transport: str = AUTO,
        dial: Dial,
        in_thread: InThread,
        entropy: Entropy,
        client_id: str = "",
        credentials: Credentials | None = None,
        security: Security = PLAIN,
        **terms: Any,
    ) -> None:
        """`transport` is `auto` (Kafka's protocol where a broker has a listener for it, else HTTP), `http`, or `kafka`
        (no HTTP for records).

        `dial` opens a connection, `in_thread` runs a call that would block the event loop. The other parameters are
        those of `ClusterSession`.
        """
        super().__init__(
            bootstrap, client_id=client_id, credentials=credentials, security=security, entropy=entropy, **terms
        )
        self.transport = parse_transport(transport)
        context = security.context() if self.scheme == HTTPS and transport != "http" else None
        self.client_id = client_id
        """The client id (`client.id`) for quotas and logs."""
        introduction = Introduction(
            client_id, credentials, is_encrypted=context is not None, entropy=entropy, in_thread=in_thread
        )
        self._doors = Doors(dial, context=context, introduction=introduction, is_only_way=transport == "kafka")

    async def close(self) -> None:
        """Closes all connections; requests in flight fail. Idempotent."""
        self._doors.close()
        await super().close()

    async def _ask_metadata(self, target: str, timeout_s: float | None) -> ClusterMetadata:
        answer = decode_answer(_Metadata, await self.call("GET", target, timeout_s=timeout_s))
        brokers = with_scheme(answer, self.scheme).brokers
        listening = {broker.address: broker.kafka for broker in brokers if isinstance(broker, _Broker) and broker.kafka}
        if self.transport == "kafka" and not listening:
            raise InvalidRequest("no broker listens for Kafka's protocol (kafka.listener), and transport is kafka")
        self._doors.learn(listening)
        return answer

    def has_frames(self, address: str) -> bool:
        """Returns True if the broker may be sent Produce and Fetch by Kafka's protocol, as far as is known."""
        return self.transport == "kafka" or (self.transport == AUTO and self._doors.is_open(address))

    def no_frames(self, address: str) -> None:
        """Called when a broker's Kafka listener cannot be used. Raises `ConnectFailed` if `transport` is `kafka`, which
        excludes HTTP; otherwise does nothing, and the caller uses HTTP."""
        if self.transport == "kafka":
            why = self._doors.why_shut(address)
            raise ConnectFailed(f"{address} takes no records by Kafka's protocol, and transport is kafka: {why}")

    def succeeded(self) -> None:
        """Adds a success to the retry budget, after a successful response by Kafka's protocol."""
        self._retries.succeeded()

    async def attempt_in_frames(
        self, address: str, request: Sequence[Buffer], *, timeout_s: float, expects_s: float | None
    ) -> memoryview | None:
        """Sends one request by Kafka's protocol to one broker, without retries. Returns None, with nothing sent, if its
        Kafka listener cannot be used now. Raises `NoAnswer`; `ConnectFailed`, with nothing sent, if no connection opens
        within `timeout_s`; and `NotAuthenticated` if a login by SCRAM fails.

        After `expects_s` a broker that is found silent is given up, since another one can be asked; None waits for all
        of `timeout_s`.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        line = await self._doors.take(address, timeout_s)
        if line is None:
            return None
        timed_out = NoAnswer(f"no answer from {address} within {timeout_s:.3g} s")
        timer = loop.call_at(deadline_s, line.break_off, timed_out)
        presence = self._presence(address)

        def give_up(silent: TimeoutError) -> None:
            line.break_off(NoAnswer(f"{silent}; another broker is asked"))

        if expects_s is not None:
            presence.expect(give_up, expects_s)
        try:
            answer = await line.ask(request)
        except NoAnswer:
            self.avoid(address)
            raise
        else:
            if expects_s is not None:
                presence.answered(give_up)
            self._failed_s.pop(address, None)
            return answer
        finally:
            timer.cancel()
            presence.forget(give_up)
            self._doors.give_back(address, line)
