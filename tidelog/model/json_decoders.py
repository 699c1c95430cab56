"""Decoders of JSON documents. One is made for each type when its first document comes, and kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import msgspec

decoder_of: Final[Callable[[type], msgspec.json.Decoder[Any]]] = cache(msgspec.json.Decoder)
"""Returns the decoder of a type. Nothing is dropped: a process decodes a fixed set of types."""
