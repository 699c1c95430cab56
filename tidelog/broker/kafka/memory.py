"""The memory that one connection has taken from its listener's budgets: of the frame that is on its way, or waits, of
requests under way, and of records that its client has not taken yet.

A small frame is there already when it is judged, so each connection may have some of these under way whatever the
budget says: a few clients that announce large frames, and send nothing of them, keep nobody else out.
"""

from __future__ import annotations

import asyncio
from typing import Final

from tidelog.broker.face.admission import Admission
from tidelog.model.errors import Overloaded
from tidelog.model.ports import ClientConnection

FULL: Final = 4
"""How many times their budget answers may take, since each connection gets a little beyond it."""
OWN_BYTES: Final = 256 << 10
"""A connection may have so much under way, in frames that are no larger each, beside all others."""


def has_no_room(admission: Admission) -> bool:
    """Returns True while not even a little more is to be read for clients."""
    return admission.answers.used >= FULL * admission.answers.bytes_max


class ConnectionMemory:
    """Takes and gives back for one connection."""

    def __init__(self, admission: Admission, stream: ClientConnection) -> None:
        self._bodies = admission.bodies
        self._answers = admission.answers
        self._stream = stream
        self._frame_bytes = 0
        self._under_way_bytes = 0
        self._record_bytes = 0
        self._is_over = False

    def take_frame(self, size: int, *, is_announced: bool = False) -> bool:
        """Takes the memory of a frame, unless it has been taken; of one that `is_announced` before it comes. Returns
        False if there is none now."""
        if not self._frame_bytes:
            is_own = not is_announced and self._under_way_bytes + size <= OWN_BYTES
            try:
                self._bodies.take(size, held=self._bodies.used if is_own else 0)
            except Overloaded:
                return False
            self._frame_bytes = size
        return True

    def hand_on(self) -> None:
        """Hands the frame's memory on to its request, which gives it back."""
        self._under_way_bytes += self._frame_bytes
        self._frame_bytes = 0

    def drop_frame(self) -> None:
        """Frees the memory of a frame that is gone."""
        self._bodies.give_back(self._frame_bytes)
        self._frame_bytes = 0

    def give_back(self, size: int) -> None:
        """Gives back the memory of a request that is answered, or whose client is gone."""
        self._under_way_bytes -= size
        self._bodies.give_back(size)

    def hold_records(self, size: int) -> None:
        """Takes memory for records that were just handed over to be sent, until the system has them."""
        self._answers.take(size, held=self._answers.used)
        self._record_bytes += size
        asyncio.get_running_loop().call_soon(self.release_records)

    def release_records(self) -> None:
        """Gives back that of records, if the client takes what was sent."""
        if not self._stream.is_clogged or self._is_over:
            self._answers.give_back(self._record_bytes)
            self._record_bytes = 0

    def close(self) -> None:
        """Gives back the memory of the frame and of records, since the connection is lost."""
        self._is_over = True
        self.drop_frame()
        self.release_records()
