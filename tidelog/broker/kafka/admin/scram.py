"""DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554).

The client sends a salted and hashed password, never the password. A user created this way can log in by SCRAM only:
password logins over HTTP or by SASL/PLAIN need an argon2id hash, which `tidelog user` makes. Altering the SCRAM
credentials of a user removes that hash, since it belongs to the old password. Deleting the last credential removes the
user.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import new
from types import MappingProxyType
from typing import Any, Final

from tidelog.broker.kafka.admin.codes import DONE, AdminCode, Outcome, Refused, outcome_of
from tidelog.broker.kafka.admin.desk import Desk, Tree, bound
from tidelog.controller.access_commands import RemoveUser, StoreUser
from tidelog.model.access import CLUSTER, Operation, check_principal
from tidelog.model.credentials import ScramKeys, User
from tidelog.model.errors import InvalidRequest
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.passwords import HASH_BYTES, SALT_BYTES, SCRAM_HASHES, SCRAM_ITERATIONS, nobodys_hash

MECHANISMS: Final[Mapping[int, str]] = MappingProxyType({1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"})
ITERATIONS_MIN: Final = 4_096
SALT_BYTES_MAX: Final = 1_024
NO_PASSWORD: Final = nobodys_hash(bytes(SALT_BYTES), bytes(HASH_BYTES))
"""A password hash that no password matches, for users that have only SCRAM credentials."""

# -- showing ---------------------------------------------------------------------------------------------------------


async def describe_user_scram_credentials(desk: Desk, request: Any) -> Tree:
    """Describes the SCRAM mechanisms and iterations of the named users, or of all; keys are never shown."""
    try:
        desk.require(Operation.DESCRIBE, CLUSTER)
    except Refused as error:
        return {**outcome_of(error).fields, "results": []}
    bound(len(request.users or ()))
    users = desk.image.access.users
    names = [user.name for user in request.users] if request.users else [*users]
    counts = Counter(names)
    return {**DONE.fields, "results": [_shown(users, name, counts[name]) for name in counts]}


def _shown(users: Mapping[str, User], name: str, count: int) -> Tree:
    user, outcome = users.get(name), DONE
    if count > 1:
        outcome = Outcome(KafkaCode.DUPLICATE_RESOURCE, "this user is asked for more than once")
    elif user is None or not user.scram:
        outcome = Outcome(KafkaCode.RESOURCE_NOT_FOUND, "there is no user of this name who has SCRAM credentials")
    infos = [] if outcome.code or user is None else user.scram
    return {
        "user": name,
        **outcome.fields,
        "credential_infos": [
            {"mechanism": number, "iterations": keys.iterations}
            for keys in infos
            for number, mechanism in MECHANISMS.items()
            if mechanism == keys.mechanism
        ],
    }


# -- altering --------------------------------------------------------------------------------------------------------


async def alter_user_scram_credentials(desk: Desk, request: Any) -> Tree:
    """Adds, replaces or deletes SCRAM credentials; all changes to one user take effect together or not at all."""
    changes: dict[str, list[Any]] = {}
    for change in (*request.deletions, *request.upsertions):
        changes.setdefault(change.name, []).append(change)

    async def alter(name: str) -> Tree:
        desk.require(Operation.ALTER, CLUSTER)
        async with desk.changing(Operation.ALTER, CLUSTER, f"SCRAM credentials of user {name}"):
            user = desk.image.access.users.get(name)
            altered = _altered(name, user, changes[name])
            command = StoreUser(altered, user is None) if altered.scram else RemoveUser(name)
            await desk.administration.change_access(command)
        return _answer(name, DONE)

    return {"results": await desk.each([*changes], alter, _answer, kind=CLUSTER.type)}


def _answer(name: str, outcome: Outcome) -> Tree:
    return {"user": name, **outcome.fields}


def _altered(name: str, user: User | None, changes: Sequence[Any]) -> User:
    """Returns the user with the changes of one request applied. Raises `Refused` for an invalid name or change."""
    try:
        check_principal(f"User:{name}")
    except InvalidRequest as error:
        raise Refused(AdminCode.UNACCEPTABLE_CREDENTIAL, error.message) from None
    scram = {} if user is None else {keys.mechanism: keys for keys in user.scram}
    if len({change.mechanism for change in changes}) != len(changes):
        raise Refused(KafkaCode.DUPLICATE_RESOURCE, "one mechanism of this user is changed more than once")
    for change in changes:
        mechanism = MECHANISMS.get(change.mechanism)
        if mechanism is None:
            raise Refused(KafkaCode.UNSUPPORTED_SASL_MECHANISM, f"the mechanisms are {', '.join(MECHANISMS.values())}")
        if hasattr(change, "salted_password"):
            scram[mechanism] = _keys(mechanism, change)
        elif scram.pop(mechanism, None) is None:
            raise Refused(KafkaCode.RESOURCE_NOT_FOUND, f"this user has no credential for {mechanism}")
    return User(name, NO_PASSWORD, tuple(scram[mechanism] for mechanism in MECHANISMS.values() if mechanism in scram))


def _keys(mechanism: str, change: Any) -> ScramKeys:
    """Returns the SCRAM keys of a salted password (RFC 5802). Raises `Refused` for a bad password, salt or iteration
    count."""
    kind = SCRAM_HASHES[mechanism]
    salted, salt = bytes(change.salted_password), bytes(change.salt)
    if len(salted) != new(kind).digest_size or not 0 < len(salt) <= SALT_BYTES_MAX:
        raise Refused(AdminCode.UNACCEPTABLE_CREDENTIAL, f"this is no salted password of {mechanism}, or no salt")
    if not ITERATIONS_MIN <= change.iterations <= SCRAM_ITERATIONS:
        raise Refused(AdminCode.UNACCEPTABLE_CREDENTIAL, f"iterations are {ITERATIONS_MIN} to {SCRAM_ITERATIONS}")
    stored = new(kind, hmac.digest(salted, b"Client Key", kind)).hexdigest()
    server = hmac.digest(salted, b"Server Key", kind).hex()
    return ScramKeys(mechanism, salt.hex(), stored, server, change.iterations)
