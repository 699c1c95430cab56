"""Names that users choose. A name never becomes a path, but it does appear in URLs, tables and logs."""

from __future__ import annotations

import re

from tidelog.model.errors import InvalidRequest

OFFSETS_TOPIC = "__consumer_offsets"
"""The topic in which the brokers keep consumer groups and their committed offsets."""
AUDIT_TOPIC = "__audit"
"""Topic to which the brokers write refused requests and changes, if audit logging to it is configured."""
INTERNAL_PREFIX = "__"
"""The prefix of topics that the brokers make for themselves."""
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SHOWN_MAX = 80


def is_internal(topic: str) -> bool:
    """True for the name of a topic that only brokers make, write and delete."""
    return topic.startswith(INTERNAL_PREFIX)


def check_topic_name(name: str) -> str:
    """Returns the topic name if it is valid, by Kafka's rules. Raises `InvalidRequest` if it is not."""
    if _TOPIC_NAME.fullmatch(name) is None or name in (".", ".."):
        shown = ascii(name if len(name) <= _SHOWN_MAX else f"{name[:_SHOWN_MAX]}...")
        raise InvalidRequest(
            f"{shown} is no topic name: use 1 to 249 of the characters A-Z a-z 0-9 . _ - and not . or .. alone"
        )
    return name
