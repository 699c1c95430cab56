"""Attributes of the shipped code, replaced for as long as a context is open.

The cluster's watches hook into brokers that way, with functions that call the original and look; tests plant bugs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def patched(owner: object, name: str, replacement: object) -> Iterator[None]:
    """Replaces one attribute, and puts the original back in the end."""
    original = getattr(owner, name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, original)
