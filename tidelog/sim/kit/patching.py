"""Attributes of the shipped code, replaced for as long as a context is open.

The cluster simulator's observers hook into brokers that way, with functions that call the original and report; tests
plant bugs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def patched(owner: object, name: str, replacement: object) -> Iterator[None]:
    """Replaces one attribute, and restores the original when the context ends."""
    original = getattr(owner, name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, original)
