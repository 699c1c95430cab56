"""The command line that starts a broker of a cluster on this machine, and the line that the broker prints when it is
ready."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
READY: Final = re.compile(
    r"tidelog: ready (?P<url>https?://\S+) cluster=(?P<cluster>\S+) node=(?P<node>\d+)(?: ops=(?P<ops>\S+))?"
    r"(?: kafka=(?P<kafka>\S+))?"
)


def voters_setting(peers: Sequence[str]) -> str:
    """Returns the value of `cluster.voters` for brokers 1 to n, given the peer address of each, HOST:PORT."""
    return ",".join(f"{node_id}@{peer}" for node_id, peer in enumerate(peers, start=1))


def start_command(
    node_id: int, data_dir: Path, http: str, *, peer: str, settings: Mapping[str, str], kafka: str | None = None
) -> list[str]:
    """Returns the words of the `tidelog start` command, which can be run by hand, too. Addresses are HOST:PORT."""
    words = [sys.executable, "-m", "tidelog", "start", "--data-dir", str(data_dir), "--node-id", str(node_id)]
    words += ["--http", http, "--peer", peer]
    if kafka is not None:
        words += ["--kafka", kafka]
    for name, value in settings.items():
        words += ["--set", f"{name}={value}"]
    return words
