"""Every request of every listener is judged by one `Authorizer`, in the words of `model/access.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from tidelog.model.access import Acl, AclIndex, Caller, Operation, Principal, Resource
from tidelog.model.credentials import Access


class Authorizer(Protocol):
    """Decides what callers may do."""

    def may(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        """Returns True if this caller may do this to the resource."""
        ...


class ByAcls:
    """The authorizer of a cluster that goes by its ACLs."""

    def __init__(self, access: Callable[[], Access], super_users: Iterable[Principal], *, without_acl: bool) -> None:
        """`without_acl` is the answer for resources that no ACL names."""
        self._access = access
        self._acls: tuple[Acl, ...] = ()
        self._index = AclIndex((), tuple(super_users), without_acl=without_acl)

    def may(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        """Answers by the ACLs of the image as it is now. Whoever may write to some topic may number its batches."""
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
