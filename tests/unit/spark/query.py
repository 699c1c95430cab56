"""A streaming query as Spark runs one, on a lake: the calls, and the log, that matter to a source."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.spark.lake import Lake
from tidelog.spark.offsets import Offsets
from tidelog.spark.options import parse_source_options
from tidelog.spark.stream import StreamPlanner


class Query:
    """Ends go to a log before a batch is run, and a restart goes on from there."""

    def __init__(self, lake: Lake, **options: str) -> None:
        self.lake = lake
        self.options = {"bootstrap.servers": "a:1", "subscribe": "t", **options}
        self.log: list[str] = []
        self.read: list[tuple[int, int, int]] = []
        self.now_s = 0.0
        self.restart()

    def restart(self, **options: str) -> None:
        self.options |= options
        parsed = parse_source_options(self.options, is_streaming=True)
        self.planner = StreamPlanner(parsed, self.lake, lambda: self.now_s)

    def initial(self) -> Offsets:
        return self.planner.initial()

    def start_of(self, batch: int) -> Offsets:
        return Offsets.from_json(json.loads(self.log[batch - 1])) if batch else self.initial()

    def plan(self, *, is_limited: bool = True) -> bool:
        """Decides on the next batch; False if there is nothing to do."""
        start = self.start_of(len(self.log))
        end = json.dumps(self.planner.latest(start, is_limited=is_limited).to_json())
        if self.log and end == self.log[-1]:
            return False
        self.log.append(end)
        return True

    def run(self) -> list[tuple[int, int, int]]:
        """Runs the batch that was planned last, as Spark also does after a restart."""
        end = Offsets.from_json(json.loads(self.log[-1]))
        ranges, _ = self.planner.ranges(self.start_of(len(self.log) - 1), end)
        found = [(one.partition, one.start, one.end) for one in ranges]
        self.read += found
        return found

    def step(self, **how: Any) -> list[tuple[int, int, int]] | None:
        return self.run() if self.plan(**how) else None
