"""The generated page says all, and says what the checks do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidelog.config.load import load_config
from tidelog.config.names import environment_name, names_of
from tidelog.config.reference import reference
from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.config.topics import topic_config
from tidelog.model.errors import InvalidRequest

ROOT = Path(__file__).parents[3]


def test_the_page_in_the_repository_is_the_generated_one() -> None:
    assert (ROOT / "docs" / "config.md").read_text(encoding="utf-8") == reference(), "run `make docs`"


def test_every_setting_has_its_heading_and_variable() -> None:
    headings = re.findall(r"^### `(.+)`$", reference(), re.MULTILINE)
    assert headings == [*names_of(BrokerConfig), *names_of(TopicConfig)]
    assert all(f"`{environment_name(name)}`" in reference() for name in names_of(BrokerConfig))


def test_the_bounds_on_the_page_are_the_bounds_of_the_check() -> None:
    bounds = re.findall(r"^### `(.+)`\n\n(?:.+\n\n)(?:- .+\n)*?- Valid: (\d+) to (\d+)$", reference(), re.MULTILINE)
    assert ("log.segment.bytes", "1024", "2147483647") in bounds
    assert ("commit.hole.span", "1", "4096") in bounds
    for name, low, high in bounds:
        for value in (low, high):
            check(name, value)
        for value in (int(low) - 1, int(high) + 1):
            with pytest.raises(InvalidRequest):
                check(name, str(value))


def check(name: str, value: str) -> None:
    """Raises `InvalidRequest` for a bad value of a broker's setting, or of one that only topics have."""
    if name in names_of(BrokerConfig):
        load_config(None, {}, {name: value})
    else:
        topic_config(BrokerConfig(), {"commit.protocol": "paxos", name: value})


def test_the_example_on_the_page_works(tmp_path: Path) -> None:
    (example,) = re.findall(r'```toml title="tidelog.toml"\n(.+?)```', reference(), re.DOTALL)
    file = tmp_path / "example.toml"
    file.write_text(example, encoding="utf-8")
    config = load_config(str(file), {}, {})
    assert (config.log_segment_bytes, config.http_listener) == (268435456, "127.0.0.1:9000")
