"""Quotas, in Kafka's terms (KIP-13, KIP-257, KIP-546, KIP-599, KIP-612).

An *entity* is a user, a client id, both together, or a client's address. `DEFAULT` in the place of a name stands for
all that have no quota of their own. An entity has rates per second, each under its *key*, and a user may also have a
maximum of open connections. For a request only the most specific entity that has the key counts:

    user and client id > user and default client > user
    > default user and client id > default user and default client > default user
    > client id > default client

Use is counted in *buckets*. Kafka gives every client id under a default quota a bucket of its own; here the client ids
of one user share one, since clients choose their id: with a new one for each request they would never reach a rate.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.model.errors import InvalidRequest

DEFAULT: Final = "<default>"
PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_RATE: Final = "request_rate"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
CLIENT_KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_RATE, CONTROLLER_MUTATION_RATE)
"""Quota keys of users and client ids."""
ADDRESS_KEYS: Final = (CONNECTION_CREATION_RATE,)
CONNECTIONS: Final = "connections"
"""Quota key for the number of open connections. All other keys are rates per second."""
USER_KEYS: Final = (*CLIENT_KEYS, CONNECTIONS)
"""Quota keys of users. `connections` is no key of client ids, since clients choose their id."""
NAME_CHARS_MAX: Final = 256
RATE_MAX: Final = 2.0**53
RATE_MIN: Final = 0.001


class Entity(NamedTuple):
    """The subject of a quota: a user, a client id, both, or an address. The other fields are None."""

    user: str | None = None
    client_id: str | None = None
    address: str | None = None

    def __str__(self) -> str:
        """Returns the entity in words, such as `user alice and client id etl`."""
        parts = zip(("user", "client id", "address"), self, strict=True)
        return " and ".join(f"{kind} {name}" for kind, name in parts if name is not None)


@dataclass(frozen=True, slots=True)
class Quota:
    """The quotas of one entity, in order of keys."""

    entity: Entity
    rates: tuple[tuple[str, float], ...]


class BucketName(NamedTuple):
    """The identity of a bucket, which counts the use of one key by a user, a client id, both, or an address."""

    key: str
    user: str | None
    client_id: str | None
    address: str | None = None


def altered(quotas: Sequence[Quota], entity: Entity, changes: Mapping[str, float | None]) -> tuple[Quota, ...]:
    """Returns the quotas after changes to one entity, where None removes a key. The result is in order of entities."""
    by_entity = {quota.entity: dict(quota.rates) for quota in quotas}
    rates = {**by_entity.pop(entity, {}), **changes}
    kept = {key: rate for key, rate in rates.items() if rate is not None}
    if kept:
        by_entity[entity] = kept
    ordered = sorted(by_entity, key=lambda each: tuple(name or "" for name in each))
    return tuple(Quota(each, tuple(sorted(by_entity[each].items()))) for each in ordered)


def checked_entity(entity: Entity) -> Entity:
    """Returns the entity, its address in canonical form. Raises `InvalidRequest` if the entity is invalid."""
    if entity.address is not None:
        if entity.user is not None or entity.client_id is not None:
            raise InvalidRequest("a quota is for an address, or for a user and a client id, not for both")
        return Entity(address=_checked_address(entity.address))
    if entity.user is None and entity.client_id is None:
        raise InvalidRequest("say for whom the quota is: a user, a client id, both, or an address")
    for name in (entity.user, entity.client_id):
        if name is not None and not (0 < len(name) <= NAME_CHARS_MAX and name.isprintable()):
            raise InvalidRequest(f"the name of a user or client id has 1 to {NAME_CHARS_MAX} printable characters")
    return entity


def check_rates(entity: Entity, changes: Mapping[str, float | None]) -> None:
    """Raises `InvalidRequest` if a key or a value is not valid for the entity."""
    keys = _keys_of(entity)
    if not changes:
        raise InvalidRequest(f"say what is to change of the quota for {entity}: {', '.join(keys)}")
    for key, rate in changes.items():
        if key not in keys:
            raise InvalidRequest(f"a quota for {entity} can have {', '.join(keys)}, and not {key[:NAME_CHARS_MAX]!r}")
        if key == CONNECTIONS and rate is not None and not (1 <= rate <= RATE_MAX and rate == int(rate)):
            raise InvalidRequest(f"{key} is a whole number from 1 on; to take it back, remove it")
        if rate is not None and not (math.isfinite(rate) and RATE_MIN <= rate <= RATE_MAX):
            raise InvalidRequest(f"{key} is a number per second from {RATE_MIN:g} to 2^53; to take it back, remove it")


def _keys_of(entity: Entity) -> tuple[str, ...]:
    if entity.address is not None:
        return ADDRESS_KEYS
    return USER_KEYS if entity.client_id is None else CLIENT_KEYS


def canonical_address(text: str) -> str:
    """Returns an IP address in canonical form, IPv4-mapped IPv6 as IPv4. Other text is returned as it is."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _checked_address(text: str) -> str:
    if text == DEFAULT:
        return text
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise InvalidRequest(f"an address is an IPv4 or IPv6 address or {DEFAULT}, no host name") from None
    return canonical_address(text)


class QuotaTable:
    """A table to look up the quota of a request; built anew when quotas change."""

    def __init__(self, quotas: Iterable[Quota]) -> None:
        self._rates = {(key, *quota.entity): rate for quota in quotas for key, rate in quota.rates}
        self._keys = frozenset(key for key, *_ in self._rates)

    def of_client(self, key: str, user: str, client_id: str) -> tuple[BucketName, float] | None:
        """Returns the bucket that counts a client's use of a key, and its rate; None if there is no quota. `client_id`
        is empty if the client sends none."""
        if key not in self._keys:
            return None
        own, shared, whole = (BucketName(key, user, name) for name in (client_id, DEFAULT, None))
        for entity_user, entity_client, bucket in (
            (user, client_id, own),
            (user, DEFAULT, shared),
            (user, None, whole),
            (DEFAULT, client_id, own),
            (DEFAULT, DEFAULT, shared),
            (DEFAULT, None, whole),
            (None, client_id, BucketName(key, None, client_id)),
            (None, DEFAULT, shared),
        ):
            rate = self._rates.get((key, entity_user, entity_client, None))
            if rate is not None:
                return bucket, rate
        return None

    def of_address(self, key: str, address: str) -> tuple[BucketName, float] | None:
        """Returns the bucket that counts the connections from an address, and its rate; None if there is no quota."""
        if key not in self._keys:
            return None
        for entity in (address, DEFAULT):
            rate = self._rates.get((key, None, None, entity))
            if rate is not None:
                return BucketName(key, None, None, address), rate
        return None
