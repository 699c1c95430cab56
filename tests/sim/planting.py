"""Planted bugs: each is a context that breaks one rule of the shipped code for as long as it is open.

A simulator that finds nothing is believed only if it finds these. None of them is installed with the package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from tidelog.sim.kit.patching import patched

Mutant = Callable[[], AbstractContextManager[None]]
Patch = tuple[object, str, Any]
"""The owner of an attribute, the attribute's name, and what replaces it."""


@contextmanager
def all_patched(patches: Iterable[Patch]) -> Iterator[None]:
    """Replaces several attributes."""
    with ExitStack() as stack:
        for owner, name, replacement in patches:
            stack.enter_context(patched(owner, name, replacement))
        yield


def seeds_until_found(mutant: Mutant, run_seed: Callable[[int], bool], seeds: Iterator[int]) -> int | None:
    """How many seeds it takes until `run_seed` says no; None if the seeds run out first."""
    with mutant():
        for tried, seed in enumerate(seeds, 1):
            if not run_seed(seed):
                return tried
    return None
