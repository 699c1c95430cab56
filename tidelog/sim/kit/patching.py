"""Attributes of the shipped code, replaced for as long as a context is open.

The cluster simulator's observers hook into brokers that way, with functions that call the original and report; tests
plant bugs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

Wrap = Callable[[Any], Any]
"""Function that returns the replacement of an attribute, given the original."""


@contextmanager
def patched(owner: object, name: str, replacement: object) -> Iterator[None]:
    """Replaces one attribute, and restores the original when the context ends."""
    original = getattr(owner, name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextmanager
def hooked(*hooks: tuple[object, str, Wrap]) -> Iterator[None]:
    """Replaces attributes, each an (owner, name, wrapper), and restores the originals when the context ends."""
    with ExitStack() as stack:
        for owner, name, wrap in hooks:
            stack.enter_context(patched(owner, name, wrap(getattr(owner, name))))
        yield


def before(seen: Callable[..., None]) -> Wrap:
    """Returns a wrapper that makes each call of a function call `seen` first, with the same arguments."""

    def wrap(original: Any) -> Any:
        def both(*args: Any, **kwargs: Any) -> Any:
            seen(*args, **kwargs)
            return original(*args, **kwargs)

        return both

    return wrap


def after(seen: Callable[..., None]) -> Wrap:
    """Returns a wrapper that makes each call of a function that is no coroutine call `seen` last, with the same
    arguments."""

    def wrap(original: Any) -> Any:
        def both(*args: Any, **kwargs: Any) -> Any:
            outcome = original(*args, **kwargs)
            seen(*args, **kwargs)
            return outcome

        return both

    return wrap
