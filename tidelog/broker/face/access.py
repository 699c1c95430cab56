"""Authorization: every request at every listener is checked by one `Authorizer`, with the operations and resources of
`model/access.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from tidelog.config.schema import BrokerConfig
from tidelog.model.access import Acl, AclIndex, Caller, Operation, Principal, Resource, check_principal
from tidelog.model.credentials import Access


class Authorizer(Protocol):
    """Decides which operations callers may perform on which resources."""

    def may(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        """Returns True if the caller may perform the operation on the resource."""


class ByAcls:
    """The authorizer of a cluster with ACLs."""

    def __init__(self, access: Callable[[], Access], super_users: Iterable[Principal], *, without_acl: bool) -> None:
        """`without_acl` is True if everybody may use resources that no ACL names. `super_users` may do everything."""
        self._access = access
        self._acls: tuple[Acl, ...] = ()
        self._index = AclIndex((), tuple(super_users), without_acl=without_acl)

    def may(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        """Returns True if the current ACLs allow it. `IdempotentWrite` is also allowed to whoever may write to any
        topic.
        """
        acls = self._access().acls
        if acls is not self._acls:
            self._acls = acls
            self._index.set(acls)
        if operation is Operation.IDEMPOTENT_WRITE and self._index.may_any(caller, Operation.WRITE, "Topic"):
            return True
        return self._index.may(caller, operation, resource)


class EverybodyMay:
    """The authorizer of a cluster without access control."""

    def may(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        """Returns True."""
        return True


def authorizer_of(config: BrokerConfig, access: Callable[[], Access]) -> Authorizer:
    """Returns the authorizer that a broker's settings ask for; `access` returns the cluster's ACLs."""
    if not config.authorizer_enabled:
        return EverybodyMay()
    super_users = map(check_principal, config.super_users)
    return ByAcls(access, super_users, without_acl=config.allow_everyone_if_no_acl_found)
