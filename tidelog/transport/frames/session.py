"""A client's view of its cluster, which also knows where brokers take records in frames.

Only Produce and Fetch go that way; all else is HTTP's (`session.py`). The addresses stand in the metadata that the
client asks for anyway. How long a silent broker is waited for, whom to avoid, and how often may be tried again are the
same for both ways.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tidelog.model.errors import InvalidRequest
from tidelog.model.ports import Buffer
from tidelog.transport.addresses import HTTPS
from tidelog.transport.credentials import Credentials
from tidelog.transport.errors import ConnectFailed, NoAnswer, decode_answer
from tidelog.transport.frames.doors import Dial, Doors
from tidelog.transport.metadata import BrokerMetadata, ClusterMetadata, with_scheme
from tidelog.transport.security import PLAIN, Security
from tidelog.transport.session import ClusterSession

AUTO: Final = "auto"
WAYS: Final = (AUTO, "http", "kafka")


class _Broker(BrokerMetadata, frozen=True):
    kafka: str | None = None
    """The address at which it takes records in frames; a broker of an older version does not tell."""


class _Metadata(ClusterMetadata, frozen=True):
    brokers: tuple[_Broker, ...]


_METADATA: Final = msgspec.json.Decoder(_Metadata)


def parse_transport(text: str) -> str:
    """Returns the way that records go. Raises `InvalidRequest`."""
    if text not in WAYS:
        raise InvalidRequest(f"transport is {text!r}; it can be {', '.join(WAYS)}")
    return text


class RecordSession(ClusterSession):
    """Requests to the brokers of one cluster; those that carry records in frames, too."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        transport: str = AUTO,
        dial: Dial,
        client_id: str = "",
        credentials: Credentials | None = None,
        security: Security = PLAIN,
        **terms: Any,
    ) -> None:
        """`transport`: `auto` for frames where a broker takes them, `http` for none, `kafka` for nothing else.

        `dial` opens a connection. The others are `ClusterSession`'s.
        """
        super().__init__(bootstrap, client_id=client_id, credentials=credentials, security=security, **terms)
        self.transport = parse_transport(transport)
        context = security.context() if self.scheme == HTTPS and transport != "http" else None
        self._doors = Doors(dial, client_id=client_id, context=context, credentials=credentials)

    async def close(self) -> None:
        """Cuts all connections; requests under way end with an error. Idempotent."""
        self._doors.close()
        await super().close()

    async def _ask_metadata(self, target: str, timeout_s: float | None) -> ClusterMetadata:
        answer = decode_answer(_METADATA, await self.call("GET", target, timeout_s=timeout_s))
        brokers = with_scheme(answer, self.scheme).brokers
        listening = {broker.address: broker.kafka for broker in brokers if isinstance(broker, _Broker) and broker.kafka}
        if self.transport == "kafka" and not listening:
            raise InvalidRequest("no broker listens for Kafka's protocol (kafka.listener), and transport is kafka")
        self._doors.learn(listening)
        return answer

    def has_frames(self, address: str) -> bool:
        """Returns True if a broker can be sent frames, as far as is known."""
        return self.transport == "kafka" or (self.transport == AUTO and self._doors.is_open(address))

    @property
    def client_id(self) -> str:
        """The name that this client gives itself; its quota counts, beside the user's."""
        return self._doors.client_id

    def no_frames(self, address: str) -> None:
        """Notes that a broker takes no frames. Raises `ConnectFailed` if records may go in no other way."""
        if self.transport == "kafka":
            raise ConnectFailed(f"{address} takes no records by Kafka's protocol, and transport is kafka")

    def succeeded(self) -> None:
        """Notes that a request in frames was answered with a success: more may be tried again."""
        self._retries.succeeded()

    async def attempt_in_frames(
        self, address: str, request: Sequence[Buffer], *, timeout_s: float, expects_s: float | None
    ) -> memoryview | None:
        """Asks one broker once, as `attempt`. Returns None, and has sent nothing, if it takes no frames now. Raises
        `NoAnswer`."""
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
