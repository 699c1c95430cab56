"""Finding the cluster to join: asks the HTTP address of any of its brokers for the peer addresses of all brokers."""

from __future__ import annotations

import asyncio

import msgspec
import structlog

from tidelog.config.errors import ConfigError
from tidelog.model.errors import TidelogError
from tidelog.model.ports import Entropy
from tidelog.transport.credentials import Credentials
from tidelog.transport.errors import decode_answer
from tidelog.transport.security import PLAIN, Security
from tidelog.transport.session import ClusterSession

TRIES = 20
PAUSE_S = 0.5

logger = structlog.get_logger("tidelog.broker")


class _Peer(msgspec.Struct):
    peer_host: str
    peer_port: int


class _Peers(msgspec.Struct):
    data: list[_Peer]


async def peer_contacts(
    url: str, entropy: Entropy, credentials: Credentials | None = None, security: Security = PLAIN
) -> list[tuple[str, int]]:
    """Returns the peer addresses of the brokers of the cluster at this URL. The `credentials` authenticate this broker
    there. Repeats the request `TRIES` times.

    Raises `ConfigError` if no broker answers.
    """
    for tries in range(TRIES):
        session = ClusterSession(
            url, request_timeout_s=5.0, credentials=credentials, entropy=entropy, security=security
        )
        try:
            await session.open()
            answer = await session.call("GET", f"/v3/clusters/{session.cluster_id}/brokers")
            return [(peer.peer_host, peer.peer_port) for peer in decode_answer(_Peers, answer).data]
        except TidelogError as error:
            failure = error
            if tries == 0:
                logger.warning("no broker of the cluster to join answers yet; trying again", url=url, reason=str(error))
        finally:
            await session.close()
        await asyncio.sleep(PAUSE_S)
    raise ConfigError(f"cluster.join: no broker of a cluster answers at {url} ({failure}); is the address right?")
