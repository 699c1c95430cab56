"""A bound on the bytes that all requests together may hold: taken before the memory is allocated, given back when it is
freed."""

from __future__ import annotations

from tidelog.model.errors import Overloaded


class ByteBudget:
    """A budget of `bytes_max` bytes for `purpose`. Never waits: a request that does not fit now gets `Overloaded`."""

    def __init__(self, bytes_max: int, purpose: str) -> None:
        assert bytes_max > 0
        self.bytes_max = bytes_max
        self._purpose = purpose
        self.used = 0
        """The bytes in use."""

    def take(self, size: int, *, held: int = 0) -> None:
        """Takes `size` bytes for a request that has taken `held` before. Raises `Overloaded` if they do not fit beside
        what is taken; if no other request holds any, every size is let in, so that no request is refused for ever."""
        if self.used + size > self.bytes_max and self.used > held:
            raise Overloaded(f"the memory for {self._purpose} is in use by other requests; try again in a moment")
        self.used += size

    def give_back(self, size: int) -> None:
        """Gives back `size` bytes taken with `take`."""
        self.used -= size
        assert size >= 0 <= self.used, "a byte budget was given back more than was taken"
