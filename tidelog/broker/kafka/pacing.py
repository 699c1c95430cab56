"""Quotas of Kafka clients: a client over its quota is throttled.

As in Kafka, a request is served, then charged, and its answer says how long the client should pause
(`throttle_time_ms`). For that long its connection is not read. Every request is charged to the request quota, except
logins and the group requests without which a member would lose its partitions.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from tidelog.broker.face.shares import Client, Shares
from tidelog.broker.kafka.apis import BEFORE_LOGIN, Key
from tidelog.broker.kafka.call import Call
from tidelog.broker.kafka.limits import KafkaLimits
from tidelog.model.access import Caller
from tidelog.model.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_RATE

_CHARGED: Final = MappingProxyType({Key.PRODUCE: PRODUCER_BYTE_RATE, Key.FETCH: CONSUMER_BYTE_RATE})
"""Requests that carry records, each with the byte quota that it is charged to."""
_FREE: Final = BEFORE_LOGIN | {
    Key.OFFSET_COMMIT,
    Key.JOIN_GROUP,
    Key.SYNC_GROUP,
    Key.HEARTBEAT,
    Key.LEAVE_GROUP,
    Key.CONSUMER_GROUP_HEARTBEAT,
}
"""Requests that are not charged to the request quota; HTTP exempts the same ones."""


class Pacing:
    """Quota accounting for the clients of one listener."""

    def __init__(self, shares: Shares, limits: KafkaLimits) -> None:
        self._shares = shares
        self._s_max = limits.throttle_s_max

    def pause_s(self, call: Call, caller: Caller) -> float:
        """Returns the seconds that a request has to wait, if there is any quota. If they are 0 the request is charged
        and may begin."""
        if call.api.key in _FREE:
            return 0.0
        client = Client(caller.principal, call.client_id)
        owed_s = self._owed_s(_CHARGED.get(call.api.key), client)
        if owed_s <= 0:
            self._shares.charge(REQUEST_RATE, client, 1)
        return owed_s

    def charge(self, call: Call, caller: Caller, size: int) -> int:
        """Charges the bytes of records to the client's quota. Returns the throttle time in ms."""
        key = _CHARGED.get(call.api.key)
        if key is None or not self._shares.are_set:
            return 0
        client = Client(caller.principal, call.client_id)
        self._shares.charge(key, client, size)
        return int(1000 * self._owed_s(key, client))

    def _owed_s(self, key: str | None, client: Client) -> float:
        keys = (REQUEST_RATE,) if key is None else (REQUEST_RATE, key)
        return min(max(self._shares.owed_s(quota, client) for quota in keys), self._s_max)
