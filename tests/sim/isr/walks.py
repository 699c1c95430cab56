"""Random walks: each draws how often what happens, so that some are mostly crashes and some mostly late messages."""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.isr.world import Rules, Violation, World
from tidelog.sim.seeds import stream

STEPS = 220
IN_FLIGHT_MAX = 24

CALM = {
    "produce": 6.0, "fetch": 12.0, "arrive": 24.0, "sync": 8.0, "metadata": 6.0, "tick": 4.0,
}  # fmt: skip
FAULTS = {
    "lose": 3.0, "repeat": 3.0, "give_up": 2.0, "crash": 1.5, "stop": 0.5, "start": 4.0, "fence": 1.5, "unfence": 5.0,
    "prefer": 1.0, "rescue": 1.0, "checkpoint": 2.0, "delete_prefix": 0.5,
}  # fmt: skip


def run_seed(seed: int, rules: Rules | None = None, seen: dict[str, int] | None = None) -> str | None:
    """What went wrong, if anything; `seen` counts what happened."""
    counts = {} if seen is None else seen
    rng = stream(seed, "isr")
    is_fsynced = rng.random() < 0.5
    replicas = rng.choice((2, 3, 3, 3, 4))
    min_isr = rng.choice((1, 2, 2)) if replicas > 2 else rng.choice((1, 2))
    world = World(rng, rules or Rules(), replicas=replicas, min_isr=min_isr, is_fsynced=is_fsynced)
    weights = {name: weight * rng.choice((0.5, 1, 1, 2)) for name, weight in CALM.items()}
    weights |= {name: weight * rng.choice((0, 0.3, 1, 1, 3)) for name, weight in FAULTS.items()}
    weights["sync"] *= rng.choice((0.1, 1, 1))
    names, odds = list(weights), list(weights.values())
    try:
        for name in rng.choices(names, odds, k=STEPS):
            world.now_ms += rng.randrange(4)
            ACTIONS[name](world)
        world.settle()
    except Violation as violation:
        return str(violation)
    except AssertionError as broken:
        return f"an invariant of the core: {broken!r}"
    finally:
        for what, count in world.seen.items():
            counts[what] = counts.get(what, 0) + count
    return None


def any_node(action: Callable[[World, int], None]) -> Callable[[World], None]:
    return lambda world: action(world, world.rng.choice(tuple(world.replicas)))


def leading(action: Callable[[World, int], None]) -> Callable[[World], None]:
    """On the leader, or, now and then, on whoever takes itself for one."""

    def act(world: World) -> None:
        leader = world.controller.now.leader
        action(
            world,
            leader if leader in world.replicas and world.rng.random() < 0.8 else world.rng.choice([*world.replicas]),
        )

    return act


def arrive(world: World) -> None:
    if world.messages:
        at = 0 if world.rng.random() < 0.6 else world.rng.randrange(len(world.messages))
        world.messages.pop(at)()


def lose(world: World) -> None:
    if world.messages:
        world.messages.pop(world.rng.randrange(len(world.messages)))


def repeat(world: World) -> None:
    """The message stays under way, for as long as it likes, when its copy arrives."""
    if world.messages and len(world.messages) < IN_FLIGHT_MAX:
        world.messages.append(world.rng.choice(world.messages))


def metadata(world: World, node: int) -> None:
    replica = world.replicas[node]
    newest = len(world.controller.history) - 1
    if replica.is_running and newest > replica.known:
        at = newest if world.rng.random() < 0.7 else world.rng.randint(replica.known + 1, newest)
        world.apply_metadata(node, at)
        if world.rng.random() < 0.5:  # a follower asks at once, and its disk is busy with what came before
            world.fetch(node)
            world.sync(node)


ACTIONS: dict[str, Callable[[World], None]] = {
    "produce": leading(World.produce),
    "fetch": any_node(World.fetch),
    "arrive": arrive,
    "sync": any_node(World.sync),
    "metadata": any_node(metadata),
    "tick": leading(World.tick),
    "lose": lose,
    "repeat": repeat,
    "give_up": leading(World.give_up),
    "crash": any_node(World.crash),
    "stop": any_node(World.stop),
    "start": any_node(World.start),
    "fence": any_node(World.fence),
    "unfence": any_node(World.unfence),
    "prefer": lambda world: world.controller.prefer(world.rng.choice(tuple(world.replicas))),
    "rescue": any_node(World.rescue),
    "checkpoint": any_node(World.checkpoint),
    "delete_prefix": leading(World.delete_prefix),
}
