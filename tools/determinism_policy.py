"""What the determinism lint forbids, where it does not, and what to do instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ADAPTERS: Final = (
    "tidelog/adapters/",
    "tidelog/bench/",
    "tidelog/broker/assembly.py",
    "tidelog/standalone/process.py",
    "tidelog/cli/",
    "tidelog/config/load.py",
    "tidelog/spark/cluster.py",
    "tidelog/spark/jobs/",
    "tidelog/storage/disk_files.py",
    "tidelog/testing/",
)
"""Where the outside world is let in: adapters of the ports, what wires them into a process, programs people run."""

_CLOCK = "take a Clock (tidelog.model.ports); for timeouts, asyncio.get_running_loop().time()"
_ENTROPY = "take an Entropy (tidelog.model.ports)"
_FILES = "go through the Files port (tidelog.model.ports)"
_PROCESSES = "only programs start processes"
_SOCKETS = "leave sockets to the event loop"
_TASKS = "await the tasks one by one, in the order they were made"
_THREADS = "take a BlockingRunner (tidelog.model.ports)"

MODULES: Final[Mapping[str, str]] = {
    "_thread": _THREADS,
    "concurrent": _THREADS,
    "fcntl": _FILES,
    "glob": _FILES,
    "mmap": _FILES,
    "multiprocessing": _PROCESSES,
    "os": _FILES,
    "pathlib": f"{_FILES}, or use PurePosixPath",
    "queue": _THREADS,
    "random": f"{_ENTROPY}; a Random with a seed is fine",
    "secrets": _ENTROPY,
    "select": _SOCKETS,
    "selectors": _SOCKETS,
    "shutil": _FILES,
    "signal": "only programs handle signals",
    "socket": _SOCKETS,
    "subprocess": _PROCESSES,
    "tempfile": _FILES,
    "threading": _THREADS,
    "time": _CLOCK,
    "uuid": _ENTROPY,
    "uvloop": "only programs choose the event loop",
}
"""Modules that may not be imported."""

HARMLESS: Final = frozenset({"pathlib.PurePath", "pathlib.PurePosixPath", "random.Random"})
"""What may be used of them all the same."""
HARMLESS_PARENTS: Final = frozenset({"pathlib", "random"})
"""Modules that may be imported whole, for the sake of that."""

NAMES: Final[Mapping[str, str]] = {
    "asyncio.as_completed": f"its order is chance; {_TASKS}",
    "asyncio.create_subprocess_exec": _PROCESSES,
    "asyncio.create_subprocess_shell": _PROCESSES,
    "asyncio.to_thread": _THREADS,
    "asyncio.wait": f"it returns sets; {_TASKS}",
    "datetime.date.today": _CLOCK,
    "datetime.datetime.now": _CLOCK,
    "datetime.datetime.today": _CLOCK,
    "datetime.datetime.utcnow": _CLOCK,
    "hash": "it differs from run to run; use a checksum, or an order of your own",
    "input": "only programs talk to a terminal",
    "io.open": _FILES,
    "open": _FILES,
}
"""Functions that may not be used."""

METHODS: Final[Mapping[str, str]] = {"run_in_executor": _THREADS}
"""Methods that may not be called, on whatever object."""

SEEDLESS: Final = f"makes a Random without a seed: give it one, or {_ENTROPY}"
SET_ORDER: Final = "depends on the order of a set, which differs from run to run: sort it, or keep a dict or a list"
GLOBAL: Final = "assigns a global: keep state in an object that a broker owns"
STATE: Final = (
    "is mutable module state, shared by all brokers of a process: keep it in an object that a broker owns, or make it "
    "an UPPER_CASE constant that is complete from the start and never changed"
)

SET_TYPES: Final = frozenset({"AbstractSet", "FrozenSet", "MutableSet", "Set", "frozenset", "set"})
SET_METHODS: Final = frozenset({"copy", "difference", "intersection", "symmetric_difference", "union"})
"""Methods of a set that return a set."""

ORDER_BLIND: Final = frozenset({"all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum"})
"""Functions whose result does not depend on the order of what they are given."""
ORDER_KEEPING: Final = frozenset({"dict.fromkeys", "enumerate", "iter", "list", "map", "next", "tuple", "zip"})
"""Functions whose result does."""

BUILDERS: Final = frozenset({"dict", "list", "set"})
"""Mutable types that make a fine constant if they are given their contents."""
CONTAINERS: Final = frozenset(
    {"Condition", "Counter", "Event", "Gauge", "Histogram", "Lock", "OrderedDict", "Queue", "Semaphore"}
    | {"WeakKeyDictionary", "WeakSet", "WeakValueDictionary", "bytearray", "count", "cycle", "defaultdict", "deque"}
)
"""Types that exist to be changed."""
MUTATORS: Final = frozenset(
    {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove"}
    | {"reverse", "setdefault", "sort", "update"}
)
"""Methods that change a container."""
