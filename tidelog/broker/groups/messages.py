"""Messages between brokers about consumer groups: a client's request, on its way to the group's coordinator."""

from __future__ import annotations

from typing import Final

import msgspec

from tidelog.broker.routing.forwarding_messages import Addressed
from tidelog.groups.decision import GroupAnswer
from tidelog.model.groups import AnyGroupRequest
from tidelog.model.wire_numbers import Int64


class ForwardGroup(msgspec.Struct, frozen=True, tag=True):
    """Asks the coordinator, which leads the partition. Answered by `GroupAnswered`. Never forwarded again."""

    partition: Addressed
    request: AnyGroupRequest
    timeout_ms: Int64


class GroupAnswered(msgspec.Struct, frozen=True, tag=True):
    """The coordinator's answer to a forwarded request."""

    answer: GroupAnswer


GROUP_MESSAGES: Final = (ForwardGroup, GroupAnswered)
"""All messages of this page: a peer node has to know them."""
