"""Record values for benchmarks: incompressible, or JSON that compresses three- to fourfold."""

from __future__ import annotations

import random
from typing import Literal

Kind = Literal["random", "json"]
DISTINCT = 512
"""Number of different values; enough that no codec finds a value again within its window of small batches."""


def make_values(kind: Kind, value_bytes: int) -> list[bytes]:
    """Returns `DISTINCT` values of exactly `value_bytes` bytes, the same in every run."""
    dice = random.Random(f"{kind} {value_bytes}")  # noqa: S311 - nothing secret in a benchmark
    if kind == "random":
        return [dice.randbytes(value_bytes) for _ in range(DISTINCT)]
    return [_json_like(dice, value_bytes) for _ in range(DISTINCT)]


def _json_like(dice: random.Random, value_bytes: int) -> bytes:
    text = b"{"
    while len(text) < value_bytes:
        text += b'"sensor_%02d":{"at":%d,"value":%.3f,"unit":"celsius"},' % (
            dice.randrange(20), 1_700_000_000_000 + dice.randrange(10**9), dice.uniform(-40, 60),
        )  # fmt: skip
    return text[:value_bytes]
