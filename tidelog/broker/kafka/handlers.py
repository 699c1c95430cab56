"""Dispatch of the requests that are not performance-critical to their handlers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeVar

from tidelog.broker.kafka import cold
from tidelog.broker.kafka.admin.long_answers import written
from tidelog.broker.kafka.admin.table import CALLS, administer
from tidelog.broker.kafka.apis import Key
from tidelog.broker.kafka.call import Answer, Call
from tidelog.broker.kafka.describe_cluster import describe_cluster
from tidelog.broker.kafka.groups.table import GROUP_CALLS
from tidelog.broker.kafka.groups.trees import GroupCall
from tidelog.broker.kafka.listener_parts import Parts
from tidelog.broker.kafka.offsets import epochs, list_offsets
from tidelog.broker.kafka.producer_ids import init_producer_id
from tidelog.broker.kafka.sasl import SaslLogin
from tidelog.model.access import Caller
from tidelog.model.certificate_names import parse_rules
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.steps import Steps

Tree = dict[str, Any]
T = TypeVar("T")
LARGE_BYTES: Final = 16 << 10
"""Size in bytes from which a request is decoded, and its answer encoded, outside the event loop."""
_NO_LOGIN: Final[Mapping[Key, Tree]] = MappingProxyType(
    {
        Key.SASL_HANDSHAKE: {"error_code": KafkaCode.UNSUPPORTED_SASL_MECHANISM, "mechanisms": []},
        Key.SASL_AUTHENTICATE: {
            "error_code": KafkaCode.ILLEGAL_SASL_STATE,
            "error_message": "nobody logs in here (kafka.security.protocol)",
            "auth_bytes": b"",
        },
    }
)
OTHER_CALLS: Final[Mapping[Key, GroupCall]] = MappingProxyType(
    {
        **GROUP_CALLS,
        Key.LIST_OFFSETS: list_offsets,
        Key.OFFSET_FOR_LEADER_EPOCH: epochs,
        Key.INIT_PRODUCER_ID: init_producer_id,
        Key.DESCRIBE_CLUSTER: describe_cluster,
    }
)


def _away(call: Callable[[], T]) -> Steps[T]:
    """Returns a generator for `HeavyWork`, which runs `call` outside the event loop and returns its result."""
    result: T = yield call
    return result


class Handlers:
    """Handlers of the requests of one listener."""

    def __init__(self, parts: Parts, refused: Callable[[str, str, str], None], lost: Callable[[Any], None]) -> None:
        """`refused` counts a connection that was refused or closed, with reason, address and text; `lost` removes a
        closed connection."""
        self._parts = parts
        self.rules = parse_rules(parts.cluster.config.ssl_principal_mapping_rules)
        self.refused = refused
        self.lost = lost

    async def answer(self, call: Call, caller: Caller, login: SaslLogin | None) -> tuple[Answer, bool]:
        """Returns the answer to a request, and whether it is an error. Raises `Malformed`; `Overloaded` if too many
        large requests are in progress."""
        if len(call.frame) < LARGE_BYTES:
            tree = await self._tree(call, cold.read(call), caller, login)
            return await written(call, tree), bool(tree.get("error_code"))
        work = self._parts.face.work
        tree = await self._tree(call, await work.do(_away(partial(cold.read, call))), caller, login)
        return await work.finish(_away(partial(cold.write, call, tree))), bool(tree.get("error_code"))

    async def _tree(self, call: Call, request: Any, caller: Caller, login: SaslLogin | None) -> Tree:
        key = call.api.key
        if key in _NO_LOGIN and login is None:
            return dict(_NO_LOGIN[key])
        if key is Key.SASL_HANDSHAKE and login is not None:
            return login.handshake(request)
        if key is Key.SASL_AUTHENTICATE and login is not None:
            return await login.authenticate(request)
        if key in CALLS:
            return await administer(self._parts, call, request, caller)
        return {"throttle_time": 0, **await OTHER_CALLS[key](self._parts, call, request, caller)}
