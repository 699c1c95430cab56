"""Users, tokens and ACLs, as the admin client manages them."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote, urlencode

import msgspec

from tidelog.admin.calls import Calls, Listed, decoded


class AclDescription(msgspec.Struct, frozen=True, kw_only=True):
    """An ACL, in the words of REST v3: `TOPIC`, `PREFIXED`, `DESCRIBE_CONFIGS`, `ALLOW`."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str = "*"
    operation: str
    permission: str


class UserDescription(msgspec.Struct, frozen=True):
    """A user with a password."""

    user_name: str
    scram_mechanisms: list[str]


class TokenDescription(msgspec.Struct, frozen=True):
    """A token, without its secret."""

    token_id: str
    principal: str
    created_at_ms: int
    expires_at_ms: int | None
    description: str


class NewToken(msgspec.Struct, frozen=True):
    """A token that was made. `token` is shown this once; no `repr` has it."""

    token_id: str
    principal: str
    expires_at_ms: int | None
    token: str

    def __repr__(self) -> str:
        """Returns nothing of the secret."""
        return f"NewToken({self.token_id}, {self.principal})"


class _Checked(msgspec.Struct):
    is_allowed: bool


class AccessCalls(Calls):
    """Calls about who logs in, and what they may do."""

    # -- ACLs ----------------------------------------------------------------------------------------------------

    async def list_acls(self, **words: str) -> list[AclDescription]:
        """The ACLs that have these words, by the names of their fields."""
        return (await self._read(Listed[AclDescription], f"/acls?{urlencode(words)}")).data

    async def create_acls(self, acls: Sequence[AclDescription]) -> None:
        """Makes ACLs, all or none. Those that are there already stay."""
        await self._change("POST", "/acls:batch", {"data": list(acls)}, safe=True)

    async def delete_acls(self, **words: str) -> list[AclDescription]:
        """Deletes the ACLs that have these words, of which resource type, pattern type, operation and permission have
        to be there; `ANY` stands for all. Returns those that are gone."""
        body = await self._change("DELETE", f"/acls?{urlencode(words)}", safe=False)
        return decoded(Listed[AclDescription], body).data

    async def check_access(
        self, principal: str, operation: str, resource_type: str, resource_name: str, host: str = ""
    ) -> bool:
        """Returns True if a principal may do this, from an address."""
        words = {
            "principal": principal,
            "operation": operation,
            "resource_type": resource_type,
            "resource_name": resource_name,
            "host": host,
        }
        return (await self._read(_Checked, f"/acls:check?{urlencode(words)}")).is_allowed

    # -- users ---------------------------------------------------------------------------------------------------

    async def list_users(self) -> list[UserDescription]:
        """All users that have a password."""
        return (await self._read(Listed[UserDescription], "/users")).data

    async def create_user(self, name: str, password: str) -> None:
        """Makes a user."""
        await self._change("POST", "/users", {"user_name": name, "password": password}, safe=False)

    async def set_password(self, name: str, password: str) -> None:
        """Gives a user another password."""
        await self._change("PUT", f"/users/{quote(name, safe='')}/password", {"password": password}, safe=True)

    async def delete_user(self, name: str) -> None:
        """Removes a user, with its tokens."""
        await self._change("DELETE", f"/users/{quote(name, safe='')}", safe=False)

    # -- tokens --------------------------------------------------------------------------------------------------

    async def list_tokens(self) -> list[TokenDescription]:
        """The tokens that the caller may manage."""
        return (await self._read(Listed[TokenDescription], "/tokens")).data

    async def create_token(self, principal: str, *, lifetime_ms: int | None = None, description: str = "") -> NewToken:
        """Makes a token; without a lifetime it does not end."""
        asked = {"principal": principal, "lifetime_ms": lifetime_ms, "description": description}
        return decoded(NewToken, await self._change("POST", "/tokens", asked, safe=False))

    async def revoke_token(self, token_id: str) -> None:
        """Removes a token; whoever uses it is refused from then on."""
        await self._change("DELETE", f"/tokens/{quote(token_id, safe='')}", safe=False)
