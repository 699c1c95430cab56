"""Importing what a command needs, when it is known which, as fast as that goes."""

from __future__ import annotations

import gc
import importlib
import os
from types import ModuleType


def imported(name: str) -> ModuleType:
    """The module. What importing makes is there to stay, so the garbage collector need not look at it again and again:
    that alone is an eighth of a broker's start."""
    # Pydantic would look through every package that is installed, for plugins that nobody has.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.enable()
