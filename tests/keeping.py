"""Errors that outlive what they were raised for: their tracebacks keep all that was at hand there.

An error that is stored where its own traceback leads back to lives until the next full collection of garbage. A broker
that refuses large requests would keep them meanwhile, beyond every budget.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.model.errors import TidelogError


@contextmanager
def nothing_kept(*kinds: type[BaseException]) -> Iterator[None]:
    """Asserts that no error of these kinds, or that the project raises, is left by what is done meanwhile."""
    gc.collect()
    gc.disable()
    before = set(map(id, _errors(kinds)))
    try:
        yield
        assert [kept for kept in _errors(kinds) if id(kept) not in before] == []
    finally:
        gc.enable()


def _errors(kinds: tuple[type[BaseException], ...]) -> list[object]:
    return [kept for kept in gc.get_objects() if isinstance(kept, (TidelogError, *kinds))]
