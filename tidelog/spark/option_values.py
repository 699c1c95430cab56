"""Parsing of Spark options: case-insensitive names, string values.

Options that are given but never read raise an error at the end (`finish`): a misspelt `failOnDataLoss` or
`startingOffsets` must not be ignored, since that may cost data. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from tidelog.model.errors import InvalidRequest

_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+)\s*([a-z]*)")


class OptionValues:
    """The options of one source or sink, with a record of which were read."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        self._names: dict[str, str] = {}

    def text(self, *names: str) -> str | None:
        """Returns the value of the first given name; the others are aliases. Raises `InvalidRequest` if two differ."""
        for name in names:
            self._names[name.lower()] = name
        given = {name: self._values[name.lower()] for name in names if name.lower() in self._values}
        if len(set(given.values())) > 1:
            raise InvalidRequest(f"options {' and '.join(given)} contradict each other")
        return next(iter(given.values()), None)

    def flag(self, name: str, default: bool) -> bool:
        """Returns a boolean option, `true` or `false` in any case."""
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def number(self, *names: str, least: int = 1) -> int | None:
        """Returns an integer option of at least `least`; None if it is not given."""
        text = self.text(*names)
        if text is None:
            return None
        if not text.strip().isascii() or not text.strip().isdigit() or int(text) < least:
            raise InvalidRequest(f"option {names[0]} must be a number from {least} on, not {text!r}")
        return int(text)

    def duration_s(self, name: str, default_s: float) -> float:
        """Returns a duration in seconds, in Spark's notation: `15m`, `30s`, `500ms`; a bare number is milliseconds."""
        text = self.text(name)
        if text is None:
            return default_s
        match = _DURATION.fullmatch(text.strip().lower())
        unit_s = _UNITS_S.get(match[2] or "ms") if match else None
        if match is None or unit_s is None:
            raise InvalidRequest(f"option {name} must be a time such as 30s or 15m, not {text!r}")
        return int(match[1]) * unit_s

    def choice(self, name: str, choices: Iterable[str], default: str) -> str:
        """Returns one of the `choices`, given in any case."""
        text = self.text(name)
        words = list(choices)
        word = default if text is None else text.lower()
        if word not in words:
            raise InvalidRequest(f"option {name} must be {' or '.join(words)}, not {text!r}")
        return word

    def document(self, name: str) -> Any:
        """Returns a JSON option, decoded; None if it is not given."""
        text = self.text(name)
        try:
            return None if text is None else json.loads(text)
        except ValueError as error:
            raise InvalidRequest(f"option {name} must be JSON: {error}") from None

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Raises `InvalidRequest` with the reason for a given option of Spark's Kafka source that tidelog does not
        support."""
        for name, reason in reasons.items():
            if name.lower() in self._values:
                raise InvalidRequest(f"option {name}: {reason}")

    def finish(self, *passed: str) -> None:
        """Raises `InvalidRequest` for a given option that was not read and is not in `passed`, Spark's own."""
        ours = {*self._names, *(name.lower() for name in passed)}
        unknown = [name for name in self._values if name not in ours]
        if unknown:
            raise InvalidRequest(f"unknown option {unknown[0]}; there are {', '.join(sorted(self._names.values()))}")
