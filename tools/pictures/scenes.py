"""Scenes: what is typed in the terminals of which pictures are made, after the commands of docs/start and
docs/repair.md, at the ports that these have.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tools.pictures.recording import PROMPT, Line, record
from tools.pictures.screen import draw

COLUMNS: Final = 90


class Scene(NamedTuple):
    """A picture of a terminal: the name of its file, its title, and what is typed."""

    name: str
    title: str
    script: tuple[str, ...]
    shown: tuple[str, ...]
    """Lines, in part, that are to be seen in this order. A run in which something else happened is no picture."""


FAILOVER: Final = Scene(
    "failover",
    "A leader is killed, and a producer goes on",
    (
        "tidelog dev --brokers 3 > dev.log & DEV=$!",
        "until grep -q node=3 dev.log; do sleep 1; done; cat dev.log",
        "tidelog topic create flights --partitions 3 --replication-factor 3",
        "# A producer writes 50 records a second:",
        "slowly() { while read -r line; do echo $line; sleep 0.02; done; }",
        "seq 600 | slowly | tidelog produce flights & PRODUCER=$!",
        "sleep 3; tidelog topic describe flights",
        "# Broker 2, which leads partition 1, dies:",
        "kill -9 $(pgrep -P $DEV -f broker-2)",
        "sleep 2; tidelog topic describe flights",
        "wait $PRODUCER",
        "# All 600 records are there, each once:",
        "tidelog consume flights --from-beginning --max-records 600 | sort -u | wc -l",
    ),
    ("node=3", "created topic", "  2,3,1", "broker 2 died", "  3,1  ", "flights: 600 records", "600"),
)
REBALANCE: Final = Scene(
    "rebalance",
    "A second consumer joins a group",
    (
        "tidelog start > start.log 2> broker.log &",
        "until grep ready start.log; do sleep 1; done",
        "tidelog topic create orders --partitions 4",
        "tidelog consume orders --group billing > first.txt & FIRST=$!",
        "sleep 3; tidelog group describe billing | tail -n 5",
        "# A second member joins, and gets half of the partitions:",
        "tidelog consume orders --group billing > second.txt &",
        "sleep 3; tidelog group describe billing | tail -n 5",
        "seq 100 | sed 's/.*/customer-&:order &/' | tidelog produce orders --key-separator :",
        "sleep 1; wc -l first.txt second.txt",
        "# The first one leaves, and the second has all of them:",
        "kill -INT $FIRST",
        "sleep 2; tidelog group describe billing | tail -n 5",
    ),
    ("node=1", "created topic", "LAG", "LAG", "100 total", "LAG"),
)
DAMAGE: Final = Scene(
    "damage",
    "A damaged batch heals",
    (
        "tidelog dev --brokers 3 > dev.log &",
        "until grep -q node=3 dev.log; do sleep 1; done; cat dev.log",
        "tidelog topic create flights --replication-factor 3",
        "seq 1000 | tidelog produce flights",
        "# Broker 2 holds a copy, equal to that of broker 1. A byte of it rots:",
        "cd tidelog-dev; ONE=$(ls broker-1/topics/*/0/*.log) TWO=$(ls broker-2/topics/*/0/*.log)",
        "cmp $ONE $TWO && echo equal",
        "printf X | dd of=$TWO bs=1 seek=3000 conv=notrunc status=none",
        "cmp $ONE $TWO",
        "# All replicas are read. What is damaged is replaced by a good copy:",
        "tidelog log verify --cluster --topic flights",
        "cmp $ONE $TWO && echo equal",
    ),
    ("node=3", "created topic", "equal", "differ", "repaired", "equal"),
)


class OtherEnding(Exception):
    """A scene did not go as it should; the message shows the screen."""


def picture(scene: Scene) -> str:
    """Plays a scene in a directory of its own, and returns the picture of it. Raises `OtherEnding`."""
    with tempfile.TemporaryDirectory(prefix="tidelog-") as directory:
        lines = record(scene.script, Path(directory), COLUMNS)
    unseen = first_unseen(scene.shown, lines)
    if unseen is not None:
        screen = "\n".join(line.text for line in lines)
        raise OtherEnding(f"{scene.name}: {unseen!r} is not to be seen\n{screen}")
    return draw(scene.name, scene.title, lines, COLUMNS)


def first_unseen(shown: Sequence[str], lines: Sequence[Line]) -> str | None:
    """Returns the first of these that no line has, of what was printed behind those before it; None if all were."""
    printed = iter(line.text for line in lines if not line.text.startswith(PROMPT))
    return next((part for part in shown if not any(part in text for text in printed)), None)
