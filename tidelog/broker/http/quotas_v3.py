"""REST v3: quotas of users, client ids and addresses. Not in Confluent's REST Proxy.

`<default>` in place of a name stands for all users, client ids or addresses without a quota of their own; a null rate
removes one.
"""

from __future__ import annotations

from aiohttp import web

from tidelog.broker.http.answers import json_answer, no_content
from tidelog.broker.http.body import read_json
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.envelope import Links, Metadata, Resource
from tidelog.broker.http.json_body import Body
from tidelog.controller.commands import QuotaChange
from tidelog.model.quotas import Entity, Quota


class QuotaV3(Resource, frozen=True):
    """The rates per second of one entity, which is named by `user`, `client_id` and `address`; those that do not apply
    are null.
    """

    user: str | None
    client_id: str | None
    address: str | None
    rates: dict[str, float]


class QuotaAsked(Body):
    """New rates of one entity; a null rate removes it."""

    rates: dict[str, float | None]
    user: str | None = None
    client_id: str | None = None
    address: str | None = None


class QuotasAsked(Body):
    """The body that alters quotas, all or none."""

    data: list[QuotaAsked]
    validate_only: bool = False


async def list_quotas(context: Context, call: Call) -> web.StreamResponse:
    """Lists the quotas."""
    links = Links(context, call)
    shown = [_shown(links, quota) for quota in context.face.cluster.image.quotas]
    return json_answer(links.list_of("TidelogQuota", shown, "quotas"))


async def alter_quotas(context: Context, call: Call) -> web.StreamResponse:
    """Sets or removes rates of entities, all or none. May be repeated."""
    body = await read_json(context, call, QuotasAsked)
    changes = [QuotaChange(change.rates, change.user, change.client_id, change.address) for change in body.data]
    call.subject = "; ".join(
        f"{Entity(change.user, change.client_id, change.address)}: {change.rates}" for change in body.data[:10]
    )
    await context.face.administration.by(call.caller).alter_quotas(changes, validate_only=body.validate_only)
    return no_content()


def _shown(links: Links, quota: Quota) -> QuotaV3:
    metadata = Metadata(links.url("quotas"))
    return QuotaV3("TidelogQuota", metadata, links.cluster_id, *quota.entity, dict(quota.rates))
