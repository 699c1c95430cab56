"""Importing the modules of a command on demand, as fast as possible."""

from __future__ import annotations

import gc
import importlib
import os
from types import ModuleType


def imported(name: str) -> ModuleType:
    """Imports and returns a module, with the garbage collector off, since the imported objects stay anyway: an eighth
    of a broker's start time."""
    # Pydantic would look through every package that is installed, for plugins that nobody has.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.enable()
