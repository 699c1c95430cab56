"""The admin client's calls about consumer groups: members, lag, and resets of offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from tidelog.admin.calls import Calls, Listed
from tidelog.admin.group_results import (
    ConsumerDescription,
    GroupDescription,
    GroupListing,
    LagDescription,
    OffsetReset,
)
from tidelog.transport.errors import decode_answer


class GroupCalls(Calls):
    """The admin client's calls about consumer groups."""

    async def list_groups(self) -> list[GroupListing]:
        """Returns all consumer groups, by name."""
        return (await self._read(Listed[GroupListing], "/consumer-groups")).data

    async def describe_group(self, name: str) -> GroupDescription:
        """Returns a group and its members. Raises `UnknownGroup`."""
        group = await self._read(GroupListing, _path(name))
        consumers = (await self._read(Listed[ConsumerDescription], _path(name) + "/consumers")).data
        return GroupDescription(**msgspec.structs.asdict(group), consumers=tuple(consumers))

    async def group_lags(self, name: str) -> list[LagDescription]:
        """Returns the lag of a group in each partition with a committed offset. Raises `UnknownGroup`."""
        return (await self._read(Listed[LagDescription], _path(name) + "/lags")).data

    async def reset_group(
        self,
        name: str,
        to: Literal["earliest", "latest", "offset", "timestamp", "duration", "shift"],
        *,
        offset: int | None = None,
        timestamp: int | None = None,
        duration_ms: int | None = None,
        shift_by: int | None = None,
        topics: Mapping[str, Sequence[int] | None] | None = None,
        validate_only: bool = False,
    ) -> list[OffsetReset]:
        """Changes a group's committed offsets, all or none: to the first record, the end, an `offset`, the first record
        not older than `timestamp` (ms) or than `duration_ms` ago, or by `shift_by` from the present ones. Results
        outside of a partition become its start or end. Returns the changes; with `validate_only`, only computes them.

        `topics` has the topics and their partitions (None: all); without it, all partitions with a committed offset.

        Raises `GroupNotEmpty` while the group has members, `UnknownTopic`, `UnknownPartition`, `InvalidRequest`.
        """
        chosen = [{"topic_name": topic, "partition_ids": numbers} for topic, numbers in (topics or {}).items()]
        document: dict[str, Any] = {
            "to": to,
            "offset": offset,
            "timestamp": timestamp,
            "duration_ms": duration_ms,
            "shift_by": shift_by,
            "topics": None if topics is None else chosen,
            "validate_only": validate_only,
        }
        is_safe = validate_only or to != "shift"
        body = await self._change("POST", _path(name) + "/offsets:reset", document, safe=is_safe)
        return decode_answer(Listed[OffsetReset], body).data

    async def delete_group(self, name: str) -> None:
        """Deletes a group and its committed offsets. Raises `UnknownGroup`, or `GroupNotEmpty` while it has members."""
        await self._change("DELETE", _path(name), safe=False)


def _path(name: str) -> str:
    return f"/consumer-groups/{quote(name, safe='')}"
