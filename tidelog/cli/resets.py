"""The options of `tidelog group reset`, parsed into arguments of the admin client."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple, TypeAlias

from tidelog.cli.terminal import UsageError

To: TypeAlias = Literal["earliest", "latest", "offset", "timestamp", "duration", "shift"]

_DURATION: Final = re.compile(
    r"P(?:(\d{1,6})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,6})(?:\.(\d{1,3}))?S)?)?", re.ASCII | re.IGNORECASE
)
_MILLISECONDS: Final = re.compile(r"\d{1,19}", re.ASCII)


class ResetTarget(NamedTuple):
    """The kind of reset, and its argument for the admin client by name."""

    to: To
    values: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ResetOptions:
    """The options as typed, of which exactly one must be given."""

    to_earliest: bool
    to_latest: bool
    to_offset: int | None
    to_timestamp: str | None
    by_duration: str | None
    shift_by: int | None

    def parsed(self) -> ResetTarget:
        """Returns the parsed option. Raises `UsageError` unless exactly one is given and valid."""
        targets = list[ResetTarget]()
        if self.to_earliest:
            targets.append(ResetTarget("earliest", {}))
        if self.to_latest:
            targets.append(ResetTarget("latest", {}))
        if self.to_offset is not None:
            targets.append(ResetTarget("offset", {"offset": self.to_offset}))
        if self.to_timestamp is not None:
            targets.append(ResetTarget("timestamp", {"timestamp": parse_timestamp(self.to_timestamp)}))
        if self.by_duration is not None:
            targets.append(ResetTarget("duration", {"duration_ms": parse_duration(self.by_duration)}))
        if self.shift_by is not None:
            targets.append(ResetTarget("shift", {"shift_by": self.shift_by}))
        if len(targets) != 1:
            raise UsageError(
                "say where to, once: --to-earliest, --to-latest, --to-offset N, --to-timestamp T, --by-duration D or "
                "--shift-by N"
            )
        return targets[0]


def parse_timestamp(text: str) -> int:
    """Returns milliseconds since 1970, from a date and time or the number itself. Without a time zone it is UTC."""
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"--to-timestamp {text!r} is no time; write 2026-05-01T12:00:00Z, or milliseconds since 1970"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, round(moment.timestamp() * 1000))


def parse_duration(text: str) -> int:
    """Returns milliseconds, from an ISO 8601 duration of days, hours, minutes and seconds."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise UsageError(f"--by-duration {text!r} is no duration; write PT30M, PT1H30M or P7D")
    days, hours, minutes, seconds = (int(number or 0) for number in match.groups()[:4])
    milliseconds = int((match[5] or "0").ljust(3, "0"))
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + milliseconds


def parse_chosen(topics: Sequence[str] | None, *, all_topics: bool) -> dict[str, list[int] | None] | None:
    """Returns the chosen topics and partitions (None: all partitions); None for everything with a committed offset."""
    if bool(topics) == all_topics:
        raise UsageError("say of which topics: --topic T, --topic T:0,2, or --all-topics")
    if all_topics:
        return None
    chosen = dict[str, list[int] | None]()
    for given in topics or ():
        topic, colon, numbers = given.partition(":")
        if colon and not re.fullmatch(r"\d{1,9}(,\d{1,9})*", numbers, re.ASCII):
            raise UsageError(f"--topic {given}: write partitions as in --topic {topic or 'orders'}:0,2")
        partitions = [int(number) for number in numbers.split(",")] if colon else None
        before = chosen.get(topic, [])
        chosen[topic] = None if partitions is None or before is None else [*before, *partitions]
    return chosen
