"""docs/spark.md names every option, and none that there is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidelog.model.errors import InvalidRequest
from tidelog.spark.options import parse_source_options
from tidelog.spark.sink_options import parse_sink_options

PAGE = Path(__file__).parents[3] / "docs" / "spark.md"


def documented(section: str) -> set[str]:
    """The names in the first column of the section's table of options."""
    text = PAGE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    table = text.split("| option | default |")[1].split("\n\n")[0]
    return {name for row in table.splitlines()[2:] for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


def known(message: str) -> set[str]:
    return set(message.partition("there are ")[2].split(", "))


def test_the_options_of_the_source() -> None:
    known_names: set[str] = set()
    for is_streaming in (True, False):
        with pytest.raises(InvalidRequest) as raised:
            parse_source_options({"bootstrap.servers": "a", "subscribe": "t", "x": ""}, is_streaming=is_streaming)
        known_names |= known(raised.value.message)
    assert documented("Reading") == known_names - {"kafka.bootstrap.servers"}


def test_the_options_of_the_sink() -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse_sink_options({"bootstrap.servers": "a", "x": ""}, is_streaming=False)
    assert documented("Writing") == known(raised.value.message) - {"bootstrap.servers", "kafka.bootstrap.servers"}
