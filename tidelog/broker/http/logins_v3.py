"""Users and tokens, in the shapes of REST v3. A secret is sent once, when it is set or created, and never shown again.

A principal with `Alter` on the cluster manages all of them; one with `Alter` on the resource `User` of a name manages
the tokens of that user.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from tidelog.broker.http.answers import json_answer, no_content
from tidelog.broker.http.body import read_json
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.envelope import Links, Resource
from tidelog.broker.http.json_body import Body, Duration
from tidelog.controller.access_commands import RemoveTokens, RemoveUser, StoreToken, StoreUser
from tidelog.model.access import CLUSTER, Operation, Principal, check_principal
from tidelog.model.credentials import NEVER, Token, User
from tidelog.model.errors import InvalidRequest, NotFound
from tidelog.model.passwords import check_library, check_password

DESCRIPTION_CHARS_MAX: Final = 250


class UserV3(Resource, frozen=True):
    """A user with a password, and the SCRAM mechanisms that it can use."""

    user_name: str
    scram_mechanisms: list[str]


class TokenV3(Resource, frozen=True):
    """A token. `expires_at_ms` is null if it does not expire. `token` is the secret that clients send; only the answer
    that creates the token has it.
    """

    token_id: str
    principal: str
    created_at_ms: int
    expires_at_ms: int | None
    description: str
    token: str | None = None


class UserAsked(Body):
    """A user to be created."""

    user_name: str
    password: str


class PasswordAsked(Body):
    """The new password of a user."""

    password: str


class TokenAsked(Body):
    """A token to be created; without `lifetime_ms` it does not expire."""

    principal: str
    lifetime_ms: Duration | None = None
    description: str = ""


# -- users -----------------------------------------------------------------------------------------------------------


async def list_users(context: Context, call: Call) -> web.StreamResponse:
    """Lists the users that have a password."""
    links = Links(context, call)
    users = context.face.cluster.image.access.users
    return json_answer(links.list_of("KafkaUser", [_user(links, user) for user in users.values()], "users"))


async def create_user(context: Context, call: Call) -> web.StreamResponse:
    """Creates a user with a password."""
    links = Links(context, call)
    body = await read_json(context, call, UserAsked)
    call.subject = f"user {body.user_name}"
    check_principal(f"User:{body.user_name}")
    if body.user_name in context.face.cluster.image.access.users:
        raise InvalidRequest(f"there is a user {body.user_name!r} already")
    user = await _store(context, call, body.user_name, body.password, is_new=True)
    return json_answer(_user(links, user), status=201)


async def set_password(context: Context, call: Call) -> web.StreamResponse:
    """Sets a new password of a user, and ends all logins with the old one."""
    body = await read_json(context, call, PasswordAsked)
    _require_user(context, call)
    await _store(context, call, call.path["user"], body.password, is_new=False)
    return no_content()


async def delete_user(context: Context, call: Call) -> web.StreamResponse:
    """Deletes a user and its tokens; ACLs that name it stay."""
    _require_user(context, call)
    await context.face.administration.by(call.caller).change_access(RemoveUser(call.path["user"]))
    return no_content()


def _require_user(context: Context, call: Call) -> None:
    if call.path["user"] not in context.face.cluster.image.access.users:
        raise NotFound(f"there is no user {call.path['user'][:100]!r}")


async def _store(context: Context, call: Call, name: str, password: str, *, is_new: bool) -> User:
    problem = check_library()
    if problem:
        raise InvalidRequest(f"this broker cannot keep passwords: {problem}")
    check_password(password)
    user = await context.face.login.made_user(name, password)
    await context.face.administration.by(call.caller).change_access(StoreUser(user, is_new))
    return user


def _user(links: Links, user: User) -> UserV3:
    return UserV3(*links.resource("KafkaUser", "users", user.name), user.name, [keys.mechanism for keys in user.scram])


# -- tokens ----------------------------------------------------------------------------------------------------------


async def list_tokens(context: Context, call: Call) -> web.StreamResponse:
    """Lists the tokens that the caller may manage."""
    links = Links(context, call)
    tokens = context.face.cluster.image.access.tokens.values()
    data = [_token(links, token) for token in tokens if _may_manage(context, call, token.caller)]
    return json_answer(links.list_of("KafkaToken", data, "tokens"))


async def create_token(context: Context, call: Call) -> web.StreamResponse:
    """Creates a token, and returns its secret, which is never shown again."""
    links = Links(context, call)
    body = await read_json(context, call, TokenAsked)
    principal = check_principal(body.principal)
    call.subject = f"a token of {principal}"
    _require_management(context, call, principal)
    if len(body.description) > DESCRIPTION_CHARS_MAX or not body.description.isprintable():
        raise InvalidRequest(f"a description has up to {DESCRIPTION_CHARS_MAX} printable characters")
    expires_ms = NEVER if body.lifetime_ms is None else context.face.clock.wall_ms() + body.lifetime_ms
    token, secret = context.face.login.made_token(principal, expires_ms, body.description)
    call.subject = f"token {token.token_id} of {principal}"
    await context.face.administration.by(call.caller).change_access(StoreToken(token))
    return json_answer(_token(links, token, f"{token.token_id}.{secret}"), status=201)


async def delete_token(context: Context, call: Call) -> web.StreamResponse:
    """Revokes a token."""
    token = context.face.cluster.image.access.tokens.get(call.path["token_id"])
    if token is None:
        context.require(call, Operation.ALTER, *_cluster())
        raise NotFound("there is no such token")
    _require_management(context, call, token.caller)
    await context.face.administration.by(call.caller).change_access(RemoveTokens([token.token_id]))
    return no_content()


def _cluster() -> tuple[str, list[str]]:
    return CLUSTER.type, [CLUSTER.name]


def _may_manage(context: Context, call: Call, principal: Principal) -> bool:
    return context.may(call, Operation.ALTER, *CLUSTER) or context.may(call, Operation.ALTER, "User", principal.name)


def _require_management(context: Context, call: Call, principal: Principal) -> None:
    if not _may_manage(context, call, principal):
        context.require(call, Operation.ALTER, *_cluster())


def _token(links: Links, token: Token, shown: str | None = None) -> TokenV3:
    return TokenV3(
        *links.resource("KafkaToken", "tokens", token.token_id),
        token.token_id,
        token.principal,
        token.created_ms,
        None if token.expires_ms == NEVER else token.expires_ms,
        token.description,
        shown,
    )
