"""Fault mixes: which actions a run consists of, and how often. One seed of one mix is one scenario.

Each mix is about one kind of fault, with a few others that make it matter; `swarm` draws for each seed which kinds
there are at all (Groce et al., ISSTA 2012): a run with a bit of everything rarely shows what two or three do to each
other. The odds within a mix are drawn too, so that some runs are mostly crashes and some mostly late messages.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidelog.sim.kit.seeds import stream

Odds = Mapping[str, float]
"""Odds of each action of a step, by the action's name (`actions.py`)."""

CALM: Odds = {
    "produce": 6.0, "fetch": 12.0, "arrive": 24.0, "sync": 8.0, "learn": 6.0, "tick": 4.0, "heartbeat": 3.0,
    "round": 2.5, "start": 3.0, "fence": 1.0,
}  # fmt: skip
"""Odds of the actions in every run. A stopped node starts again, and now and then a live broker is fenced."""

NETWORK: Odds = {"arrive_late": 5.0, "lose": 3.0, "repeat": 3.0, "give_up": 2.0, "cut": 0.8, "mend": 1.5}
CRASHES: Odds = {
    "kill": 0.8, "power": 1.2, "stop": 0.6, "wipe": 0.3, "replace_disk": 0.3, "checkpoint": 2.0, "fence": 1.5,
    "fail_over": 0.6, "bounce": 0.6, "delete_records": 0.4,
}  # fmt: skip
CONTROL: Odds = {
    "give_up": 3.0, "lose": 1.5, "repeat": 1.5, "fence": 2.0, "prefer": 1.5, "move": 0.8, "swap_out_and_in": 0.5,
    "call_off": 0.3, "change_min_isr": 0.6, "change_durability": 0.3, "change_unclean": 0.3, "rescue": 0.5,
    "power": 0.5, "fail_over": 0.4,
}  # fmt: skip
DISK: Odds = {
    "fail_sync": 0.6, "power": 1.5, "lose_checkpoint": 0.5, "checkpoint": 1.0, "delete_records": 0.8, "fence": 1.0,
    "fail_over": 0.6,
}  # fmt: skip
ROT: Odds = {
    "rot": 1.0, "rot_and_restart": 0.7, "rot_heir": 3.0, "bounce": 1.5, "ask_for_copies": 6.0, "fence": 1.0,
    "power": 0.5, "kill": 0.5, "fail_over": 0.6, "checkpoint": 0.5, "arrive_late": 2.0, "lose_checkpoint": 0.3,
    "prefer": 0.4,
}  # fmt: skip
DECAY: Odds = {
    **ROT, "rot": 0.2, "rot_and_restart": 0.2, "rot_alike": 1.0, "rot_but_for_an_outsider": 3.0,
}  # fmt: skip
"""Odds by which the same batch rots on many disks, perhaps on all. Rot on one disk alone is rare here, as it would soon
take the last copy of other batches."""

MIXES: Mapping[str, tuple[Odds, ...]] = {
    "network": (NETWORK, {"power": 0.4, "fence": 1.0, "prefer": 0.5, "checkpoint": 0.5}),
    "crashes": (CRASHES, {"arrive_late": 2.0, "give_up": 1.0, "rescue": 0.5}),
    "control": (CONTROL, {"arrive_late": 2.0}),
    "disk": (DISK, {"arrive_late": 2.0, "give_up": 1.0, "rescue": 0.5}),
    "rot": (ROT, {"give_up": 1.0, "rescue": 0.5}),
    "decay": (DECAY, {"give_up": 1.0, "rescue": 0.5}),
    "everything": (NETWORK, CRASHES, CONTROL, DISK, ROT),
    "swarm": (),
}
"""Odds of the faults of each mix; `swarm` draws from all of them."""

STEPS = 220
TAMED = (0.0, 0.3, 1.0, 1.0, 3.0)
"""Factors by which a run scales the odds of a fault."""


class Topic(msgspec.Struct, frozen=True):
    """The partition of a run: its settings, and the number of brokers."""

    brokers: int
    replicas: int
    min_isr: int
    is_fsynced: bool
    is_unclean_allowed: bool


class Step(msgspec.Struct, frozen=True, array_like=True):
    """An action, with the seed of its random numbers."""

    action: str
    dice: int


class Scenario(msgspec.Struct, frozen=True):
    """All that determines a run: `run_scenario` replays the same run from it."""

    mix: str
    seed: int
    topic: Topic
    steps: tuple[Step, ...]


def draw_scenario(mix: str, seed: int) -> Scenario:
    """Returns the scenario of this seed. Raises `KeyError` if there is no such mix."""
    rng = stream(seed, f"isr/{mix}")
    replicas = rng.choice((2, 3, 3, 3, 4))
    topic = Topic(
        brokers=replicas + rng.choice((0, 0, 1, 2) if mix in ("control", "everything", "swarm") else (0,)),
        replicas=replicas,
        min_isr=rng.choice((1, 2, 2)),
        is_fsynced=rng.random() < 0.5,
        is_unclean_allowed=rng.random() < 0.1,
    )
    odds = {name: weight * rng.choice((0.5, 1, 1, 2)) for name, weight in CALM.items()}
    odds["sync"] *= rng.choice((0.1, 1, 1))
    calmer = rng.choice((0.15, 0.4, 1.0))
    for kind in MIXES[mix] or MIXES["everything"]:
        for name, weight in kind.items():
            tamed = rng.choice(TAMED if MIXES[mix] else (0.0, 0.0, *TAMED)) * calmer
            odds[name] = odds.get(name, 0.0) + weight * tamed
    drawn = rng.choices(list(odds), list(odds.values()), k=STEPS)
    return Scenario(mix, seed, topic, tuple(Step(name, rng.getrandbits(32)) for name in drawn))
