"""The admin client's calls about quotas."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidelog.admin.calls import Calls, Listed
from tidelog.model.quotas import Entity


class QuotaDescription(msgspec.Struct, frozen=True):
    """The quotas, as rates per second, of one entity: a user, a client id, both, or an address; `<default>` stands for
    all others."""

    user: str | None
    client_id: str | None
    address: str | None
    rates: dict[str, float]

    @property
    def entity(self) -> Entity:
        """Returns the entity (user, client id, address) of the quota."""
        return Entity(self.user, self.client_id, self.address)


class QuotaCalls(Calls):
    """The admin client's calls about quotas."""

    async def list_quotas(self) -> list[QuotaDescription]:
        """Returns all quotas, in the order of entities."""
        return (await self._read(Listed[QuotaDescription], "/quotas")).data

    async def alter_quotas(
        self, changes: Mapping[Entity, Mapping[str, float | None]], *, validate_only: bool = False
    ) -> None:
        """Changes the rates of entities, all or none; None removes a rate. Idempotent. Raises `InvalidRequest`,
        `UnsupportedLevel`."""
        data = [{**entity._asdict(), "rates": dict(rates)} for entity, rates in changes.items()]
        await self._change("POST", "/quotas:alter", {"data": data, "validate_only": validate_only}, safe=True)
