"""Writers that contend for a log, what they were told, and whether what is in the log fits.

The rule: the log is one term after the other. A term begins with its writer's claim and holds what that writer appended
after it, in order, nothing twice; all that was acknowledged is there, at the position that was told; nothing that was
definitely refused is there.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from tests.integration.clients.conftest import read_all
from tidelog.log import Entry, Reader, Writer
from tidelog.log.entries import CLAIM
from tidelog.model.errors import TidelogError
from tidelog.model.ids import TopicPartition


@dataclass
class Story:
    """Data is `writer/term/number`: who appended it, in which of its terms, as the how-manieth."""

    acknowledged: dict[bytes, int] = field(default_factory=dict)
    refused: list[bytes] = field(default_factory=list)
    endings: dict[bytes, int] = field(default_factory=dict)
    """Of each term, `writer/term`, what `start` returned."""
    unknown: int = 0

    async def check(self, bootstrap: str, topic: str) -> None:
        async with Reader(bootstrap, topic) as reader:
            entries = [entry async for entry in reader.read(await reader.beginning(), await reader.catchup())]
        found = {entry.data: entry.position for entry in entries}
        assert len(found) == len(entries), "an entry is there twice"
        lost = {data: position for data, position in self.acknowledged.items() if found.get(data) != position}
        assert not lost, f"acknowledged, and not there: {lost}"
        assert not [data for data in self.refused if data in found], "refused, and there"
        claims = await _claims(bootstrap, topic)
        for term, of_term in _by_term(entries).items():
            numbers = [int(entry.data.rpartition(b"/")[2]) for entry in of_term]
            missing = [number for number in range(numbers[-1]) if number not in numbers]
            assert numbers == sorted(numbers), f"{term!r} is out of order: {numbers}"
            assert {b"%s/%d" % (term, number) for number in missing} <= set(self.refused), f"{term!r} lacks {missing}"
            claim = self.endings[term] - 1
            between = [one for one in claims if claim < one < of_term[-1].position]
            assert claim in claims and claim < of_term[0].position and not between, f"{term!r} reaches beyond its end"


def _by_term(entries: list[Entry]) -> dict[bytes, list[Entry]]:
    terms: dict[bytes, list[Entry]] = {}
    for entry in entries:
        terms.setdefault(entry.data.rpartition(b"/")[0], []).append(entry)
    return terms


async def _claims(bootstrap: str, topic: str) -> list[int]:
    records = await read_all(bootstrap, TopicPartition(topic, 0))
    return [record.offset for record in records if record.headers and record.headers[0][0] == CLAIM]


async def contend(
    bootstrap: str, topic: str, name: bytes, terms: int, story: Story, *, timeout_ms: float = 10_000
) -> None:
    """One writer: claims, appends several at a time until it is refused, and claims again."""
    async with Writer(bootstrap, topic, name=name.decode(), timeout_ms=timeout_ms) as writer:
        for term in range(terms):
            if term and not await _has_started(writer):
                continue
            prefix = b"%s/%d" % (name, term)
            story.endings[prefix] = writer.ending
            number, goes_on = 0, True
            while goes_on and number < 30:
                data = [b"%s/%d" % (prefix, n) for n in range(number, number + 3)]
                number += len(data)
                goes_on = all(await asyncio.gather(*(_append(writer, one, story) for one in data)))


async def _has_started(writer: Writer) -> bool:
    try:
        await writer.start()
    except TidelogError:
        return False
    return True


async def _append(writer: Writer, data: bytes, story: Story) -> bool:
    try:
        story.acknowledged[data] = await writer.append(data)
    except TidelogError as error:
        if error.definite:
            story.refused.append(data)
        else:
            story.unknown += 1
        return False
    return True
