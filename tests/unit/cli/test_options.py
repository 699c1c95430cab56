"""Rates as people write them."""

from __future__ import annotations

import pytest

from tidelog.cli.options import parse_rate
from tidelog.cli.terminal import UsageError


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        (None, None),
        ("none", 0),
        ("500", 500),
        ("500B", 500),
        ("20kb", 20_000),
        ("50MB", 50_000_000),
        ("50MB/s", 50_000_000),
        ("1GB", 1_000_000_000),
    ],
)
def test_a_rate_is_bytes_per_second(text: str | None, bytes_per_s: int | None) -> None:
    assert parse_rate(text) == bytes_per_s


@pytest.mark.parametrize("text", ["", "0", "0MB", "fast", "-1MB", "1.5MB", "50 MB", "50Mbit", "MB", "٣MB"])
def test_what_is_no_rate_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(UsageError, match="50MB"):
        parse_rate(text)
