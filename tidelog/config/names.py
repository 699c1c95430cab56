"""Names of settings: their spellings, synonyms, and suggestions for unknown names.

A setting has three spellings: `log.segment.bytes` (files, flags, HTTP), `log_segment_bytes` (Python) and
`TIDELOG_LOG_SEGMENT_BYTES` (environment). A topic's setting and the broker's default for it are *synonyms*, as in
Kafka, and often differ in name: `segment.bytes` and `log.segment.bytes`, `segment.ms` and `log.roll.ms`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.config.settings.base import Settings

ENVIRONMENT_PREFIX: Final = "TIDELOG_"
SIMILARITY_MIN: Final = 0.6

FOREIGN_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "advertised.listeners": "http.listener",
        "broker.id": "node.id",
        "controller.quorum.voters": "cluster.voters",
        "data.dir": "log.dir",
        "flush.messages": "ack.durability",
        "flush.ms": "ack.durability",
        "listeners": "http.listener",
        "log.dirs": "log.dir",
        "log.flush.interval.messages": "ack.durability",
        "log.flush.interval.ms": "ack.durability",
        "log.retention.hours": "log.retention.ms",
        "log.retention.minutes": "log.retention.ms",
        "log.roll.hours": "log.roll.ms",
        "socket.request.max.bytes": "http.batches.bytes.max",
    }
)
"""Settings of Kafka, or plausible guesses, with their names here; used in suggestions only."""


@cache
def names_of(settings: type[Settings]) -> tuple[str, ...]:
    """Returns the dotted names of a settings class, in the order of their declaration."""
    return tuple(str(field.alias) for field in settings.model_fields.values())


def field_name(name: str) -> str:
    """Converts a dotted name to the Python form: `log.segment.bytes` to `log_segment_bytes`."""
    return name.replace(".", "_")


def environment_name(name: str) -> str:
    """Converts a dotted name to its environment variable: `log.segment.bytes` to `TIDELOG_LOG_SEGMENT_BYTES`."""
    return ENVIRONMENT_PREFIX + field_name(name).upper()


def name_in_environment(variable: str) -> str:
    """Converts an environment variable to the dotted name: `TIDELOG_LOG_SEGMENT_BYTES` to `log.segment.bytes`. No
    dotted name has an underscore, so the result is unique."""
    return variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", ".")


@cache
def broker_synonyms() -> Mapping[str, str]:
    """Returns the broker's name of each topic setting for which brokers have a default, by the topic's name."""
    pairs = {}
    for field in TopicConfig.model_fields.values():
        assert isinstance(field.json_schema_extra, dict)
        if "synonym" in field.json_schema_extra:
            pairs[str(field.alias)] = str(field.json_schema_extra["synonym"])
    return MappingProxyType(pairs)


def suggestion(name: str, settings: type[Settings]) -> str:
    """Returns a sentence for the error about an unknown `name`: the most similar known name, or else where all names
    are listed."""
    nearest = _nearest(name, names_of(settings))
    return f"did you mean {nearest}?" if nearest else "docs/config.md lists all names"


def _nearest(name: str, candidates: Iterable[str]) -> str | None:
    spelt = name.strip().lower().replace("_", ".").replace("-", ".")
    names = list(candidates)
    for candidate in (spelt, *_equivalents(spelt)):
        if candidate in names:
            return candidate
    return next(iter(difflib.get_close_matches(spelt, names, n=1, cutoff=SIMILARITY_MIN)), None)


def _equivalents(name: str) -> list[str]:
    to_broker = broker_synonyms()
    to_topic = {broker: topic for topic, broker in to_broker.items()}
    known_as = FOREIGN_NAMES.get(name, name)
    pairs = [FOREIGN_NAMES.get(name), to_broker.get(known_as), to_topic.get(known_as)]
    return [pair for pair in pairs if pair]


assert {*names_of(BrokerConfig)}.issuperset(broker_synonyms().values()), "a topic's synonym must be a broker's setting"
