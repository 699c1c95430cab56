"""Quotas: whose share of the brokers is how large, in Kafka's words (KIP-13, KIP-257, KIP-546, KIP-599, KIP-612).

An *entity* is a user, a client id, both together, or a client's address. `DEFAULT` in the place of a name stands for
all that have no quota of their own. An entity has rates per second, each under its *key*, and a user may have a number
of open connections beside. For a request the most exact entity that has the key counts, and no other:

    user and client id > user and default client > user
    > default user and client id > default user and default client > default user
    > client id > default client

Each quota is kept by a *bucket* for whom it was meant for. Kafka gives every client id that falls under a default
client a bucket of its own; here those of one user share one, since a client id is whatever a client says: with another
one for each request nobody would ever reach a rate.
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
"""The keys of users and client ids."""
ADDRESS_KEYS: Final = (CONNECTION_CREATION_RATE,)
CONNECTIONS: Final = "connections"
"""Counts the connections that are open, where the others count what is used in a second."""
USER_KEYS: Final = (*CLIENT_KEYS, CONNECTIONS)
"""The keys of users without a client id, which is whatever a client says."""
NAME_CHARS_MAX: Final = 256
RATE_MAX: Final = 2.0**53
RATE_MIN: Final = 0.001


class Entity(NamedTuple):
    """For whom a quota is; None: the entity does not say."""

    user: str | None = None
    client_id: str | None = None
    address: str | None = None

    def __str__(self) -> str:
        """Names it for people."""
        parts = zip(("user", "client id", "address"), self, strict=True)
        return " and ".join(f"{kind} {name}" for kind, name in parts if name is not None)


@dataclass(frozen=True, slots=True)
class Quota:
    """The rates of one entity, sorted by their keys."""

    entity: Entity
    rates: tuple[tuple[str, float], ...]


class BucketName(NamedTuple):
    """Names a bucket: the use of all that it stands for is counted together, under a key."""

    key: str
    user: str | None
    client_id: str | None
    address: str | None = None


def altered(quotas: Sequence[Quota], entity: Entity, changes: Mapping[str, float | None]) -> tuple[Quota, ...]:
    """Returns the quotas after an entity was given rates, or lost them (None); they stay in the order of entities."""
    known = {quota.entity: dict(quota.rates) for quota in quotas}
    rates = {**known.pop(entity, {}), **changes}
    kept = {key: rate for key, rate in rates.items() if rate is not None}
    if kept:
        known[entity] = kept
    ordered = sorted(known, key=lambda each: tuple(name or "" for name in each))
    return tuple(Quota(each, tuple(sorted(known[each].items()))) for each in ordered)


def checked_entity(entity: Entity) -> Entity:
    """Returns the entity, its address in its one spelling. Raises `InvalidRequest` if it is none."""
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
    """Raises `InvalidRequest` if an entity cannot have such rates."""
    known = _keys_of(entity)
    if not changes:
        raise InvalidRequest(f"say what is to change of the quota for {entity}: {', '.join(known)}")
    for key, rate in changes.items():
        if key not in known:
            raise InvalidRequest(f"a quota for {entity} can have {', '.join(known)}, and not {key[:NAME_CHARS_MAX]!r}")
        if key == CONNECTIONS and rate is not None and not (1 <= rate <= RATE_MAX and rate == int(rate)):
            raise InvalidRequest(f"{key} is a whole number from 1 on; to take it back, remove it")
        if rate is not None and not (math.isfinite(rate) and RATE_MIN <= rate <= RATE_MAX):
            raise InvalidRequest(f"{key} is a number per second from {RATE_MIN:g} to 2^53; to take it back, remove it")


def _keys_of(entity: Entity) -> tuple[str, ...]:
    if entity.address is not None:
        return ADDRESS_KEYS
    return USER_KEYS if entity.client_id is None else CLIENT_KEYS


def canonical_address(text: str) -> str:
    """Returns the one spelling of an address; text that is none, as it is. IPv4 within IPv6 is IPv4."""
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
    """Finds the quota that counts; made anew when quotas change."""

    def __init__(self, quotas: Iterable[Quota]) -> None:
        self._rates = {(key, *quota.entity): rate for quota in quotas for key, rate in quota.rates}
        self._keys = frozenset(key for key, *_ in self._rates)

    def of_client(self, key: str, user: str, client_id: str) -> tuple[BucketName, float] | None:
        """Returns which bucket counts a client's use, and its rate; None if there is no quota. `client_id` is empty if
        the client does not say one."""
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
        """Returns which bucket counts what comes from an address, and its rate; None if there is no quota."""
        if key not in self._keys:
            return None
        for entity in (address, DEFAULT):
            rate = self._rates.get((key, None, None, entity))
            if rate is not None:
                return BucketName(key, None, None, address), rate
        return None
