"""The admin client's calls about users, tokens and ACLs."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote, urlencode

import msgspec

from tidelog.admin.calls import Calls, Listed
from tidelog.transport.errors import decode_answer


class AclDescription(msgspec.Struct, frozen=True, kw_only=True):
    """An ACL with the values of REST v3: `TOPIC`, `PREFIXED`, `DESCRIBE_CONFIGS`, `ALLOW`."""

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
    """A token's id, principal and lifetime, without its secret."""

    token_id: str
    principal: str
    created_at_ms: int
    expires_at_ms: int | None
    description: str


class NewToken(msgspec.Struct, frozen=True):
    """A newly created token. `token` contains the secret, which cannot be retrieved again; `repr` omits it."""

    token_id: str
    principal: str
    expires_at_ms: int | None
    token: str

    def __repr__(self) -> str:
        """Returns a text without the secret."""
        return f"NewToken({self.token_id}, {self.principal})"


class _Checked(msgspec.Struct):
    is_allowed: bool


class AccessCalls(Calls):
    """The admin client's calls about users, tokens and ACLs."""

    # -- ACLs ----------------------------------------------------------------------------------------------------

    async def list_acls(self, **words: str) -> list[AclDescription]:
        """Returns the ACLs that match all given fields, by the names of REST v3 (`resource_type="TOPIC"`)."""
        return (await self._read(Listed[AclDescription], f"/acls?{urlencode(words)}")).data

    async def create_acls(self, acls: Sequence[AclDescription]) -> None:
        """Creates ACLs, all or none. Existing ones are kept."""
        await self._change("POST", "/acls:batch", {"data": list(acls)}, safe=True)

    async def delete_acls(self, **words: str) -> list[AclDescription]:
        """Deletes the ACLs that match all given fields, and returns them. Resource type, pattern type, operation and
        permission are required; `ANY` matches all values."""
        body = await self._change("DELETE", f"/acls?{urlencode(words)}", safe=False)
        return decode_answer(Listed[AclDescription], body).data

    async def check_access(
        self, principal: str, operation: str, resource_type: str, resource_name: str, host: str = ""
    ) -> bool:
        """Returns True if the principal may perform the operation on the resource, from the address `host`."""
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
        """Returns all users with a password."""
        return (await self._read(Listed[UserDescription], "/users")).data

    async def create_user(self, name: str, password: str) -> None:
        """Creates a user with a password."""
        await self._change("POST", "/users", {"user_name": name, "password": password}, safe=False)

    async def set_password(self, name: str, password: str) -> None:
        """Changes a user's password."""
        await self._change("PUT", f"/users/{quote(name, safe='')}/password", {"password": password}, safe=True)

    async def delete_user(self, name: str) -> None:
        """Deletes a user and the user's tokens."""
        await self._change("DELETE", f"/users/{quote(name, safe='')}", safe=False)

    # -- tokens --------------------------------------------------------------------------------------------------

    async def list_tokens(self) -> list[TokenDescription]:
        """Returns the tokens that the caller may manage."""
        return (await self._read(Listed[TokenDescription], "/tokens")).data

    async def create_token(self, principal: str, *, lifetime_ms: int | None = None, description: str = "") -> NewToken:
        """Creates a token for a principal; without a lifetime it does not expire."""
        document = {"principal": principal, "lifetime_ms": lifetime_ms, "description": description}
        return decode_answer(NewToken, await self._change("POST", "/tokens", document, safe=False))

    async def revoke_token(self, token_id: str) -> None:
        """Revokes a token; requests with it are rejected afterwards."""
        await self._change("DELETE", f"/tokens/{quote(token_id, safe='')}", safe=False)
