"""Decisions about users, tokens and ACLs: their numbers are bounded, and they need a feature level that all brokers
support."""

from __future__ import annotations

from tidelog.config.schema import BrokerConfig
from tidelog.controller.access_commands import (
    AccessCommand,
    AddAcls,
    RemoveAcls,
    RemoveTokens,
    RemoveUser,
    StoreToken,
    StoreUser,
)
from tidelog.controller.decision import Decision
from tidelog.controller.records import (
    ACCESS_LEVEL,
    AclsAdded,
    AclsRemoved,
    MetadataRecord,
    TokensRemoved,
    TokenStored,
    UserRemoved,
    UserStored,
)
from tidelog.model.access import check_acl, check_principal
from tidelog.model.cluster import ClusterImage
from tidelog.model.credentials import Access, Token
from tidelog.model.errors import InvalidRequest, NotFound, UnsupportedLevel


def decide_access(image: ClusterImage, command: AccessCommand, config: BrokerConfig) -> Decision:
    """Decides a command about users, tokens or ACLs. Raises `UnsupportedLevel`, `InvalidRequest`, or `NotFound` for a
    new password of a user that does not exist."""
    if image.level < ACCESS_LEVEL:
        raise UnsupportedLevel(
            f"users, tokens and ACLs need feature level {ACCESS_LEVEL}, and the cluster is at level {image.level}: "
            "brokers of an older version do not know them. Upgrade all, then run `tidelog cluster upgrade --finalize`"
        )
    return Decision(_records(image.access, command, config))


def _records(access: Access, command: AccessCommand, config: BrokerConfig) -> tuple[MetadataRecord, ...]:
    match command:
        case StoreUser():
            return _store_user(access, command, config)
        case RemoveUser(name):
            return _remove_user(access, name)
        case StoreToken(token):
            return _store_token(access, token, config)
        case RemoveTokens(token_ids):
            # What is gone already needs no record: a repetition finds nothing to do, and the log does not grow by it.
            present_ids = tuple(token_id for token_id in token_ids if token_id in access.tokens)
            return (TokensRemoved(present_ids),) if present_ids else ()
        case AddAcls():
            return _add_acls(access, command, config)
        case RemoveAcls(acls):
            present = dict.fromkeys(access.acls)
            gone = tuple(acl for acl in acls if acl in present)
            return (AclsRemoved(gone),) if gone else ()


def _store_user(access: Access, command: StoreUser, config: BrokerConfig) -> tuple[MetadataRecord, ...]:
    user = command.user
    stored_user = access.users.get(user.name)
    # The command carries salt and hash, so only a repetition is equal to what is there.
    if stored_user == user:
        return ()
    if command.is_new:
        if stored_user is not None:
            raise InvalidRequest(f"there is a user {user.name!r} already; `tidelog user passwd` changes its password")
        check_principal(f"User:{user.name}")
        _refuse_more("users", len(access.users) + 1, config.users_max, "users.max")
    elif stored_user is None:
        raise NotFound(f"there is no user {user.name!r}; `tidelog user add` makes one")
    return (UserStored(user),)


def _remove_user(access: Access, name: str) -> tuple[MetadataRecord, ...]:
    if name not in access.users:
        return ()
    # A token outlives its user otherwise, and would log in a user of the same name that is made later.
    tokens = tuple(token.token_id for token in access.tokens.values() if token.principal == f"User:{name}")
    return (UserRemoved(name), *((TokensRemoved(tokens),) if tokens else ()))


def _store_token(access: Access, token: Token, config: BrokerConfig) -> tuple[MetadataRecord, ...]:
    """Returns the records that store a token; if the limit is reached, expired tokens are removed to make room."""
    if token.token_id in access.tokens:
        return ()
    check_principal(token.principal)
    over: tuple[str, ...] = ()
    if len(access.tokens) >= config.tokens_max:
        # Deciding has no clock: the new token's own time of creation tells which old ones are over.
        over = tuple(stored.token_id for stored in access.tokens.values() if stored.is_over(token.created_ms))
        _refuse_more("tokens", len(access.tokens) - len(over) + 1, config.tokens_max, "tokens.max")
    return (*((TokensRemoved(over),) if over else ()), TokenStored(token))


def _add_acls(access: Access, command: AddAcls, config: BrokerConfig) -> tuple[MetadataRecord, ...]:
    present = dict.fromkeys(access.acls)
    new = tuple(acl for acl in dict.fromkeys(map(check_acl, command.acls)) if acl not in present)
    if not new:
        return ()
    _refuse_more("ACLs", len(present) + len(new), config.acls_max, "acls.max")
    return (AclsAdded(new),)


def _refuse_more(what: str, count: int, most: int, setting: str) -> None:
    if count > most:
        raise InvalidRequest(
            f"that would make {count} {what}, and the cluster may have {most} ({setting}); remove some first"
        )
