"""The commands to the active controller about users, tokens and ACLs. All are answered by `Done`.

The sender has hashed the secrets, with a salt of its own: no secret travels between brokers, and a command that arrives
twice has the same effect twice. To add an entry that exists, or to remove one that does not, is no error and answered
`Done`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from tidelog.controller.commands import ClientCommand
from tidelog.model.access import Acl
from tidelog.model.credentials import Token, User


class StoreUser(ClientCommand, frozen=True, tag=True):
    """Command: create a user (`is_new`), or change a user's password."""

    user: User
    is_new: bool


class RemoveUser(ClientCommand, frozen=True, tag=True):
    """Command: remove a user, with all its tokens."""

    name: str


class StoreToken(ClientCommand, frozen=True, tag=True):
    """Command: create a token."""

    token: Token


class RemoveTokens(ClientCommand, frozen=True, tag=True):
    """Command: remove tokens."""

    token_ids: Sequence[str]


class AddAcls(ClientCommand, frozen=True, tag=True):
    """Command: add ACLs, all or none."""

    acls: Sequence[Acl]


class RemoveAcls(ClientCommand, frozen=True, tag=True):
    """Command: remove ACLs."""

    acls: Sequence[Acl]


AccessCommand = StoreUser | RemoveUser | StoreToken | RemoveTokens | AddAcls | RemoveAcls
ACCESS_COMMANDS: tuple[type[ClientCommand], ...] = get_args(AccessCommand)
