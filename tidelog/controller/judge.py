"""The controller judges what brokers ask for their clients once more, by the metadata that it decides on.

The broker that a client speaks to has judged the request when it came, by the metadata that it had applied. It may be
behind: a right that was taken away is gone where the command is decided, whatever way the command has come. Each
command is judged on the image that those before it leave, just before it is decided.

Who the client is, its broker says, and is believed as far as a registered broker is (`broker/peer_claims.py`): it has
seen the token or the certificate, and nobody else has. So a broker in an attacker's hands can name any principal, as
in Kafka, where forwarded requests say in an envelope for whom they are. What it cannot do is to leave the name out: a
client's command without a caller is refused, as soon as all brokers of the cluster are of a version that says it.
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
    """The judge of one controller. It keeps the ACLs that it saw last in order, and nothing else."""

    def __init__(self, super_users: Iterable[Principal], *, without_acl: bool) -> None:
        """`without_acl` is the answer for resources that no ACL names."""
        self._acls: tuple[Acl, ...] = ()
        self._index = AclIndex((), tuple(super_users), without_acl=without_acl)

    def check(self, image: ClusterImage, command: Command) -> None:
        """Raises `NotAuthorized`, or `ForeignSender` if nobody says for whom the command is. Nothing was done."""
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
    """Returns the judge that the settings of a broker ask for; None if it lets everybody do everything."""
    if not config.authorizer_enabled:
        return None
    super_users = map(check_principal, config.super_users)
    return Judge(super_users, without_acl=config.allow_everyone_if_no_acl_found)
