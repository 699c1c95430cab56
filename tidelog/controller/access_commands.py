"""The commands to the active controller about users, tokens and ACLs. All are answered by `Done`.

Whoever asks has hashed what is secret, with a salt of its own: no secret travels between brokers, and a command that
comes twice does the same twice. What is there already, or gone, is no error, so both are known as done.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.controller.commands import ClientCommand
from tidelog.model.access import Acl
from tidelog.model.credentials import Token, User


class StoreUser(ClientCommand, frozen=True, tag=True):
    """Makes a user (`is_new`), or gives one another password."""

    user: User
    is_new: bool


class RemoveUser(ClientCommand, frozen=True, tag=True):
    """Removes a user, with all tokens that stand for it."""

    name: str


class StoreToken(ClientCommand, frozen=True, tag=True):
    """Makes a token."""

    token: Token


class RemoveTokens(ClientCommand, frozen=True, tag=True):
    """Removes tokens."""

    token_ids: Sequence[str]


class AddAcls(ClientCommand, frozen=True, tag=True):
    """Adds ACLs, all or none."""

    acls: Sequence[Acl]


class RemoveAcls(ClientCommand, frozen=True, tag=True):
    """Removes ACLs."""

    acls: Sequence[Acl]


AccessCommand = StoreUser | RemoveUser | StoreToken | RemoveTokens | AddAcls | RemoveAcls
ACCESS_COMMANDS: tuple[type[ClientCommand], ...] = (
    StoreUser,
    RemoveUser,
    StoreToken,
    RemoveTokens,
    AddAcls,
    RemoveAcls,
)
