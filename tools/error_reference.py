"""Prints the page of all errors, `docs/errors.md`, from their classes: `python -m tools.error_reference`.

Errors are declared where they are raised: those that a broker may say in `tidelog.model.errors`, those of clients and
tools beside these. So the page needs the whole package imported.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import tidelog
from tidelog.model.errors import TidelogError
from tidelog.model.kafka_codes import OLD_REPEAT, KafkaCode

HEAD = f"""# Errors

Generated from the classes by `make docs`; do not edit.

An error has a five-digit code, whose first three digits are the HTTP status, and a code that Kafka's clients are told.
It is *definite* if surely nothing was appended: every 4xx, 503 and 507. After an indefinite one the outcome is unknown,
and only an idempotent repetition is safe. It is *retriable* if the same request may succeed later without a change.

Kafka's clients act on a code by themselves. So an indefinite error is {KafkaCode.REQUEST_TIMED_OUT.name}, after which
they take a record for possibly appended; a definite one that passes by itself (503, 507, a used up share) is a code
after which they try again; and one that stays (4xx) is a code after which they give up, but for topics, partitions and
replicas that they may know before a broker does, and for a wrong checksum. A batch that is in the log already, but
older than the last five of its producer, is no error: HTTP answers a receipt without offsets, Kafka's clients are told
{OLD_REPEAT.name} ({OLD_REPEAT.value}), which they take for success.

A line without a code of its own is a finer kind of the line above it, which only Kafka's clients are told apart.
"""
SECTIONS = (("## What brokers say", True), ("## What only clients and tools say", False))
COLUMNS = "| code | error | Kafka | definite | retriable | meaning |\n|---|---|---|---|---|---|"


def error_classes() -> list[type[TidelogError]]:
    """All public errors of the package, by code, each before the finer kinds of it."""
    for module in pkgutil.walk_packages(tidelog.__path__, "tidelog."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    kinds = [kind for kind in _below(TidelogError) if not kind.__name__.startswith("_")]
    return sorted(kinds, key=lambda kind: (kind.code, "code" not in vars(kind), kind.__name__))


def _below(base: type[TidelogError]) -> Iterator[type[TidelogError]]:
    for kind in base.__subclasses__():
        if kind.__module__.startswith("tidelog."):
            yield kind
            yield from _below(kind)


def page() -> str:
    """The page's text."""
    parts = [HEAD]
    for heading, is_said_by_brokers in SECTIONS:
        rows = [_row(kind) for kind in error_classes() if (kind.kafka is not None) == is_said_by_brokers]
        parts.append("\n".join([heading, "", COLUMNS, *rows]) + "\n")
    return "\n".join(parts)


def _row(kind: type[TidelogError]) -> str:
    code = str(kind.code) if "code" in vars(kind) else ""
    kafka = "" if kind.kafka is None else f"{kind.kafka.name} ({kind.kafka.value})"
    meaning = " ".join((inspect.getdoc(kind) or "").split())
    cells = (code, kind.__name__, kafka, _tick(kind.__new__(kind).definite), _tick(kind.retriable), meaning)
    return f"| {' | '.join(cells)} |"


def _tick(is_so: bool) -> str:
    return "yes" if is_so else "no"


if __name__ == "__main__":
    print(page(), end="")
