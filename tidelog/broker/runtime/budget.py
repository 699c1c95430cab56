"""A bound on the bytes that all requests together may hold; taken before the memory is, given back when it is free."""

from __future__ import annotations

from tidelog.model.errors import Overloaded


class ByteBudget:
    """So many bytes for `purpose`, and no more. Never waits: a request that does not fit now is told to come again."""

    def __init__(self, bytes_max: int, purpose: str) -> None:
        assert bytes_max > 0
        self.bytes_max = bytes_max
        self._purpose = purpose
        self._used = 0

    @property
    def used(self) -> int:
        """Bytes that are taken now."""
        return self._used

    def take(self, size: int, *, held: int = 0) -> None:
        """Takes `size` bytes for a request that has taken `held` before. `Overloaded` if they do not fit beside what is
        taken; a budget of which others have nothing lets any size in, so that nothing is refused for ever."""
        if self._used + size > self.bytes_max and self._used > held:
            raise Overloaded(f"the memory for {self._purpose} is in use by other requests; try again in a moment")
        self._used += size

    def give_back(self, size: int) -> None:
        """Gives back what `take` took."""
        self._used -= size
        assert size >= 0 <= self._used, "a byte budget was given back more than was taken"
