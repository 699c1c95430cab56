"""Parameters in paths and query strings, parsed strictly; an error message says what is allowed.

Numbers are ASCII digits: no sign (but a minus, which is then out of range), no blanks, no digits of other scripts, no
`1e3`. An unknown parameter is ignored, so that newer clients can talk to older brokers; a parameter that is given twice
is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import OFFSET_MAX

INT32_MAX: Final = 2**31 - 1
SHOWN_CHARS_MAX: Final = 60

_INTEGER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def shown(text: str) -> str:
    """Returns user text for a message: quoted, escaped and cut."""
    return ascii(text if len(text) <= SHOWN_CHARS_MAX else text[: SHOWN_CHARS_MAX - 3] + "...")


def percent_decoded(text: str) -> str:
    """Returns `text` with its `%xx` escapes decoded. Raises `InvalidRequest` if they are not well-formed UTF-8."""
    if "%" not in text:
        return text
    try:
        if _ESCAPE.search(text):
            raise ValueError
        return unquote(text, errors="strict")
    except ValueError:
        raise InvalidRequest(f"{shown(text)} has a percent escape that is not UTF-8") from None


def parse_query(raw: str) -> dict[str, str]:
    """Returns the parameters of a raw query string. Raises `InvalidRequest` if one is given twice or badly escaped."""
    query: dict[str, str] = {}
    for part in raw.replace("+", " ").split("&") if raw else ():
        name, _, value = part.partition("=")
        if not name:
            continue
        name = percent_decoded(name)
        if name in query:
            raise InvalidRequest(f"the parameter {shown(name)} is given twice; keep one")
        query[name] = percent_decoded(value)
    return query


def integer(name: str, text: str, *, low: int = 0, high: int = OFFSET_MAX) -> int:
    """Returns a whole number in [low, high]. Raises `InvalidRequest` if the text is not one."""
    if not _INTEGER.fullmatch(text):
        raise InvalidRequest(f"{name} must be a whole number from {low} to {high}, not {shown(text)}")
    value = int(text)
    if not low <= value <= high:
        raise InvalidRequest(f"{name} is {value}, outside {low} to {high}")
    return value


def node_number(text: str) -> int:
    """Returns a broker's node id. Raises `InvalidRequest` if the text is not one."""
    return integer("the broker id", text, high=INT32_MAX)


def optional_integer(query: Mapping[str, str], name: str, default: int, *, low: int = 0, high: int = OFFSET_MAX) -> int:
    """Returns the parameter `name` as a number in [low, high], or `default` if it is not given."""
    text = query.get(name)
    return default if text is None else integer(name, text, low=low, high=high)


def boolean(query: Mapping[str, str], name: str) -> bool | None:
    """Returns the parameter `name` as a boolean; None if it is not given."""
    text = query.get(name)
    if text is None:
        return None
    if text not in ("true", "false"):
        raise InvalidRequest(f"{name} must be true or false, not {shown(text)}")
    return text == "true"


def acks(query: Mapping[str, str]) -> int:
    """Returns the parameter `acks`: -1 (`all`, the default), 1 or 0. `async=true` means `acks=0`; if both are given
    they must agree.
    """
    text = query.get("acks")
    if "async" not in query:
        return -1 if text is None else _acks(text)
    is_async = boolean(query, "async")
    if text is None:
        return 0 if is_async else -1
    value = _acks(text)
    if is_async != (value == 0):
        raise InvalidRequest(f"acks={text} and async={query['async']} contradict each other; leave one out")
    return value


def _acks(text: str) -> int:
    try:
        return {"all": -1, "-1": -1, "1": 1, "0": 0}[text]
    except KeyError:
        raise InvalidRequest(f"acks must be all, 1 or 0, not {shown(text)}") from None


def offset(text: str | None) -> int:
    """Returns the parameter `offset` as a number. Raises `InvalidRequest` if it is missing or not a number."""
    if text is None:
        raise InvalidRequest("say where to read from: offset=NUMBER, offset=earliest or offset=latest")
    if not _INTEGER.fullmatch(text):
        raise InvalidRequest(f"offset must be a number, earliest or latest, not {shown(text)}")
    return integer("offset", text)
