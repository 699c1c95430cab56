"""Messages between brokers that forward clients' group requests to the group's coordinator."""

from __future__ import annotations

from typing import Final

import msgspec

from tidelog.broker.routing.forwarding_messages import Addressed
from tidelog.groups.decision import GroupAnswer
from tidelog.model.groups import AnyGroupRequest
from tidelog.model.wire_numbers import Int64


class ForwardGroup(msgspec.Struct, frozen=True, tag=True):
    """A group request forwarded to the leader of the group's partition. It is answered by `GroupAnswered`, and never
    forwarded again."""

    partition: Addressed
    request: AnyGroupRequest
    timeout_ms: Int64


class GroupAnswered(msgspec.Struct, frozen=True, tag=True):
    """The coordinator's answer to a forwarded request."""

    answer: GroupAnswer


GROUP_MESSAGES: Final = (ForwardGroup, GroupAnswered)
"""All message types of this module, for the registry of the peer protocol."""
