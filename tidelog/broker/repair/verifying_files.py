"""Verifying everything that a broker stores besides partition logs, while it serves: journals, the metadata log,
snapshots, facts in two copies.

Each is read completely as a target of the scrubber, which repairs what it can. One request verifies targets in the
order of their names until `ANSWERED_S` have passed, but at least one; the next request continues behind the last name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from tidelog.broker.repair.copies import Peers
from tidelog.broker.repair.repair_messages import CheckedFiles, VerifyFilesQuery, VerifyFilesReply
from tidelog.broker.repair.scrub_targets import LogTarget, Target
from tidelog.model.errors import Overloaded, TidelogError
from tidelog.transport.peer import Lane

ANSWERED_S = 2.0
READ_S_MAX = 40.0
"""Seconds that one target may be read, waiting for repairs included."""
ANSWER_S_MAX = READ_S_MAX + 2 * ANSWERED_S


class FilesVerifier:
    """Verifies the files of one broker. `targets` returns what its scrubber reads."""

    def __init__(self, node_id: int, targets: Callable[[], Mapping[str, Target]], peers: Peers) -> None:
        self._node_id = node_id
        self._targets = targets
        self._peers = peers
        self._is_reading = False

    async def verify(self, node_id: int, query: VerifyFilesQuery) -> VerifyFilesReply:
        """Verifies files of any broker, from the first name after `asked.after` on. Raises `Overloaded` or
        `PeerUnreachable` if nothing was verified, `PeerLost` or `TimeoutError` if the broker has not answered."""
        if node_id == self._node_id:
            return await self.answer(query)
        answer = await self._peers.request(node_id, query, deadline_s=ANSWER_S_MAX, lane=Lane.DATA)
        assert isinstance(answer.message, VerifyFilesReply)
        return answer.message

    async def answer(self, query: VerifyFilesQuery) -> VerifyFilesReply:
        """Verifies files of this broker, from the first name after `query.after` on. Raises `Overloaded` while another
        such request is being answered."""
        if self._is_reading:
            raise Overloaded(f"broker {self._node_id} is being verified for somebody else; try again")
        self._is_reading = True
        try:
            return await self._read(query.after)
        finally:
            self._is_reading = False

    async def _read(self, after: str) -> VerifyFilesReply:
        targets = {name: target for name, target in self._targets().items() if not isinstance(target, LogTarget)}
        names = sorted(name for name in targets if name > after)
        loop = asyncio.get_running_loop()
        stop_s = loop.time() + ANSWERED_S
        checked: list[CheckedFiles] = []
        for name in names:
            checked.append(await _checked(name, targets[name]))
            if loop.time() >= stop_s:
                break
        return VerifyFilesReply(tuple(checked), len(checked) == len(names))


async def _checked(name: str, target: Target) -> CheckedFiles:
    size = damaged = left = 0
    has_finished = False
    try:
        async with asyncio.timeout(READ_S_MAX):
            while not has_finished and target.is_here:
                step = await target.step()
                size, damaged, left = size + step.bytes_read, damaged + step.damaged, left + step.left
                has_finished = step.has_finished
    except TimeoutError:
        return CheckedFiles(name, size, damaged, left, "it could not be read in time")
    except (OSError, TidelogError) as error:
        return CheckedFiles(name, size, damaged, left, str(error))
    return CheckedFiles(name, size, damaged, left)
