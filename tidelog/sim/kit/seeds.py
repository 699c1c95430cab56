"""Random streams from one seed: a stream per purpose, so that drawing more of one does not shift the others."""

from __future__ import annotations

import random


def stream(seed: object, purpose: str = "") -> random.Random:
    """Returns the random generator for this purpose; the same in every process, whatever its hash seed."""
    return random.Random(f"{seed}/{purpose}")  # noqa: S311 - repeatable, not secret, is the point
