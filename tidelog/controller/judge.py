"""The controller checks the rights of clients on whose behalf brokers send commands, against the metadata that it
decides on.

The broker to which a client is connected has checked the request already, against the metadata that it had applied.
These may be behind: a revoked right has to be refused where the command is decided, whatever way the command has come.
Each command is checked against the image that the commands before it leave, just before it is decided.

The identity of the client is what its broker states, and is believed as far as a registered broker is
(`broker/peer_claims.py`): that broker has seen the token or the certificate, and no other has. So a broker in an
attacker's hands can name any principal, as in Kafka, where forwarded requests name it in an envelope. But it cannot
omit the name: a client's command without a caller is refused, as soon as all brokers of the cluster have a version that
names it.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.config.schema import BrokerConfig
from tidelog.controller.command_table import COMMANDS
from tidelog.controller.commands import CALLER_LEVEL, ClientCommand, Command
from tidelog.model.access import Acl, AclIndex, Caller, Principal, check_principal, refusal
from tidelog.model.cluster import ClusterImage
from tidelog.model.errors import ForeignSender


class Judge:
    """The authorizer of one controller. It caches the sorted ACLs of the last image, and nothing else."""

    def __init__(self, super_users: Iterable[Principal], *, without_acl: bool) -> None:
        """`without_acl` is the answer for resources that no ACL names: True to allow."""
        self._acls: tuple[Acl, ...] = ()
        self._index = AclIndex((), tuple(super_users), without_acl=without_acl)

    def check(self, image: ClusterImage, command: Command) -> None:
        """Checks the caller's rights for a command. Raises `NotAuthorized`, or `ForeignSender` if a client's command
        names no caller."""
        if not isinstance(command, ClientCommand):
            return
        if command.caller is not None:
            self._check(image, command, command.caller)
        # An older broker cannot name the caller. Below the level that broker may be a sound one; above it, only one
        # that hides for whom it asks.
        elif image.level >= CALLER_LEVEL:
            raise ForeignSender(
                f"{type(command).__name__} came without the caller that it is done for; nothing was done"
            )

    def _check(self, image: ClusterImage, command: ClientCommand, caller: Caller) -> None:
        acls = image.access.acls
        # Images are replaced whole, so the same tuple is the same ACLs: the index is built again only after a change.
        if acls is not self._acls:
            self._acls = acls
            self._index.set(acls)
        needs = COMMANDS[type(command)].needs
        assert needs is not None
        for need in needs(image, command):
            # All needs have to be met, each by any one of its rights.
            if not any(self._index.may(caller, *right) for right in need):
                raise refusal(caller, *need[0])


def judge_of(config: BrokerConfig) -> Judge | None:
    """Returns the authorizer for a broker's settings; None if authorization is off."""
    if not config.authorizer_enabled:
        return None
    super_users = map(check_principal, config.super_users)
    return Judge(super_users, without_acl=config.allow_everyone_if_no_acl_found)
