"""The memory that one connection has taken from the listener's budgets: for the frame being received or waiting, for
requests in progress, and for records sent but not yet taken by the client.

A small frame is already in memory when it is admitted, so each connection may have `OWN_BYTES` of small frames in
progress regardless of the budget. So a few clients that announce large frames, and send nothing, cannot lock out the
others.
"""

from __future__ import annotations

import asyncio
import math
from typing import Final

from tidelog.broker.face.admission import Admission
from tidelog.model.errors import Overloaded
from tidelog.model.ports import ClientConnection

FULL: Final = 4
"""Multiple of the listener's answer budget at which no more records are read for clients. Answers may exceed the
budget so far, since a Fetch of each connection may read a little even if the budget is used up."""
OWN_BYTES: Final = 256 << 10
"""Bytes of small frames that a connection may have in progress even if the listener's budget is used up."""


def has_no_room(admission: Admission) -> bool:
    """Returns True while answers that clients have not received take `FULL` times the answer budget, so that no records
    may be read for clients."""
    return admission.answers.used >= FULL * admission.answers.bytes_max


class ConnectionMemory:
    """The memory accounting of one connection."""

    def __init__(self, admission: Admission, stream: ClientConnection, wait_s_max: float) -> None:
        self._wait_s_max = wait_s_max
        self._waits_until_s = math.inf
        """Loop time until which the frame that lacks memory may wait for it."""
        self._bodies = admission.bodies
        self._answers = admission.answers
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._frame_bytes = 0
        self._under_way_bytes = 0
        self._record_bytes = 0
        self._is_over = False

    def take_frame(self, size: int, *, is_announced: bool = False) -> bool:
        """Takes the memory of a frame, unless it is already taken. `is_announced` means that only its length has been
        received. Returns False if there is not enough memory now. Raises `Overloaded` when there has not been enough
        for `wait_s_max` seconds."""
        if not self._frame_bytes:
            is_own = not is_announced and self._under_way_bytes + size <= OWN_BYTES
            try:
                self._bodies.take(size, held=self._bodies.used if is_own else 0)
            except Overloaded:
                now_s = self._loop.time()
                self._waits_until_s = min(self._waits_until_s, now_s + self._wait_s_max)
                if now_s < self._waits_until_s:
                    return False
                raise
            self._frame_bytes, self._waits_until_s = size, math.inf
        return True

    def hand_on(self) -> None:
        """Transfers the frame's memory to its request, which releases it with `give_back`."""
        self._under_way_bytes += self._frame_bytes
        self._frame_bytes = 0

    def drop_frame(self) -> None:
        """Releases the memory of a frame that became no request, or was answered at once."""
        self._bodies.give_back(self._frame_bytes)
        self._frame_bytes = 0

    def give_back(self, size: int) -> None:
        """Releases the memory of a request that is answered or abandoned."""
        self._under_way_bytes -= size
        self._bodies.give_back(size)

    def hold_records(self, size: int) -> None:
        """Takes memory for records passed to the transport, until the kernel has taken them."""
        self._answers.take(size, held=self._answers.used)
        self._record_bytes += size
        self._loop.call_soon(self.release_records)

    def release_records(self) -> None:
        """Releases the memory of sent records, if the transport's buffer has drained."""
        if not self._stream.is_clogged or self._is_over:
            self._answers.give_back(self._record_bytes)
            self._record_bytes = 0

    def close(self) -> None:
        """Releases all memory of the frame and of records, since the connection is closed."""
        self._is_over = True
        self.drop_frame()
        self.release_records()
