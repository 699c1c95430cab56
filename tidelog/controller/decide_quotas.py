"""Decisions about quotas: an entity's rates are set or removed. A repeated command changes nothing."""

from __future__ import annotations

from typing import Final

from tidelog.controller.commands import AlterQuotas, QuotaChange
from tidelog.controller.decision import Decision
from tidelog.controller.records import QUOTAS_LEVEL, QuotasAltered
from tidelog.model.cluster import ClusterImage
from tidelog.model.errors import InvalidRequest, UnsupportedLevel
from tidelog.model.quotas import Entity, altered, check_rates, checked_entity

ENTITIES_MAX: Final = 1000
"""The most entities that may have quotas."""
CHANGES_MAX: Final = 100
"""The most entities whose quotas one command may change."""


def alter_quotas(image: ClusterImage, command: AlterQuotas) -> Decision:
    """Sets or removes the rates of entities. Raises `UnsupportedLevel`, or `InvalidRequest` for an invalid entity or
    rate, or too many entities."""
    if image.level < QUOTAS_LEVEL:
        raise UnsupportedLevel(
            f"quotas need feature level {QUOTAS_LEVEL}, and the cluster is at level {image.level}: brokers of an older "
            "version would not keep them. Upgrade all, then run `tidelog cluster upgrade --finalize`"
        )
    if not 1 <= len(command.changes) <= CHANGES_MAX:
        raise InvalidRequest(f"{len(command.changes)} entities are to change; one request takes 1 to {CHANGES_MAX}")
    quotas, changes = image.quotas, []
    for change in command.changes:
        entity = checked_entity(Entity(change.user, change.client_id, change.address))
        check_rates(entity, change.rates)
        after = altered(quotas, entity, change.rates)
        # Only what changes something is recorded, so that a repetition writes nothing.
        if after != quotas:
            changes.append(QuotaChange(dict(change.rates), *entity))
        quotas = after
    # Where there are more than the limit already, quotas can still be changed and taken back.
    if len(quotas) > max(ENTITIES_MAX, len(image.quotas)):
        raise InvalidRequest(f"{len(quotas)} entities would have quotas, and at most {ENTITIES_MAX} may; remove some")
    if not changes or command.validate_only:
        return Decision()
    return Decision((QuotasAltered(tuple(changes)),))
