"""The protocol as transcripts: elections, fills, duels, rejoining, truncation, catching up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.paxos.stage import Stage
from tests.golden.scripts import check
from tidelog.replication.paxos.events import Timer
from tidelog.replication.paxos.numbers import make_number
from tidelog.sim.paxos.describe import number_text, prefix_text, slot_text

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


class Play:
    """Carries out a script's commands on a stage.

    `stage` builds it; `show` and `tell` decide whether a command answers with its transcript or only with the news.
    """

    def __init__(self) -> None:
        self.stage = Stage()

    def handle(self, command: str, words: list[str], pairs: dict[str, str]) -> list[str]:
        if command == "stage":
            window = int(pairs.get("window", 4))
            learners = int(pairs.get("learners", 0))
            self.stage = Stage(
                int(pairs.get("nodes", 3)), window=window, is_founded="new" not in words, learners=learners
            )
            self.stage.transcript()
            return []
        if command == "log":
            return self._log(int(words[0]))
        if command == "run":
            self.stage.run(*map(int, words))
            return self.stage.news()
        self._act(command, words, pairs)
        return self.stage.transcript()

    def _act(self, command: str, words: list[str], pairs: dict[str, str]) -> None:
        stage = self.stage
        if command in {"deliver", "drop", "repeat"}:
            for link in words:
                source, target = map(int, link.split("->"))
                if command == "repeat":
                    stage.repeat(source, target)
                else:
                    getattr(stage, command)(source, target, int(pairs.get("count", 1 << 30)))
            return
        for node in map(int, words):
            self._act_on(node, command, pairs)

    def _act_on(self, node: int, command: str, pairs: dict[str, str]) -> None:
        stage = self.stage
        match command:
            case "elect":
                stage.elect(node, make_number(int(pairs["round"]), node) if "round" in pairs else None)
            case "append":
                stage.append(node, pairs["batch"], int(pairs.get("records", 1)))
            case "truncate":
                stage.truncate(node, int(pairs["to"]))
            case "rejoin":
                stage.rejoin(node, make_number(int(pairs["round"]), node))
            case "slow":
                stage.slow.add(node)
            case "store":
                stage.slow.discard(node)
                stage.store(node)
            case "timer":
                stage.fire(node, Timer(pairs["of"]))
            case "damage" | "lose_name":
                getattr(stage, command)(node, int(pairs["position"]))
            case "voters" | "reconfigure":
                self._change_voters(node, command, pairs)
            case _:
                getattr(stage, command)(node)

    def _change_voters(self, node: int, command: str, pairs: dict[str, str]) -> None:
        if command == "voters":
            self.stage.append_voters(node, pairs["are"])
            return
        settling = int(pairs["settling"]) if "settling" in pairs else None
        groups = pairs["by"].split("&")
        self.stage.reconfigure(node, *groups, position=int(pairs.get("position", -1)), settling=settling)

    def _log(self, node: int) -> list[str]:
        replica = self.stage.nodes[node].replica
        metadata = replica.metadata
        lines = [f"{metadata.status.value}, promised {number_text(metadata.promised)}"]
        lines.append(f"begins {prefix_text(replica.floor)}, applied {prefix_text(replica.applied)}")
        return lines + [slot_text(replica.slots[position]) for position in sorted(replica.slots)]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path, request: pytest.FixtureRequest) -> None:
    check(path, Play().handle, rewrite=request.config.getoption("--rewrite"))
