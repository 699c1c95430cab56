"""ApiVersions: the request types that this broker answers, and their versions. It is a client's first request.

The head of this answer never has tagged fields, so that a client that asks in too new a version can read it: it gets an
answer of version 0, with UNSUPPORTED_VERSION and the table, and asks again.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from tidelog.broker.kafka.apis import APIS, Key
from tidelog.broker.kafka.call import Answer, Call, Head
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.kafka_wire import INT16, INT32, NO_TAGS, array

FLEXIBLE_FROM: Final = 3
NAME_CHARS_MAX: Final = 64


@cache
def table(version: int, error: int = 0) -> bytes:
    """Returns the encoded body of an answer: the error code and the versions of all request types."""
    is_flexible = version >= FLEXIBLE_FROM
    end = NO_TAGS if is_flexible else b""
    entries = [b"".join(map(INT16.pack, (api.key, api.oldest, api.newest))) + end for api in APIS.values()]
    out = INT16.pack(error) + array(len(entries), is_flexible=is_flexible) + b"".join(entries)
    return out + (INT32.pack(0) if version >= 1 else b"") + end


def answer_versions(call: Call) -> Answer:
    """Returns the answer to an ApiVersions request."""
    return [INT32.pack(call.correlation_id) + table(call.version)]


def answer_too_new(head: Head) -> Answer:
    """Returns the answer to an ApiVersions request of a version that this broker does not know."""
    return [INT32.pack(head.correlation_id) + table(0, KafkaCode.UNSUPPORTED_VERSION)]


def client_software(call: Call) -> str:
    """Returns name and version of the client's software, for metrics; empty if the client does not send them. Raises
    `Malformed`."""
    if call.version < FLEXIBLE_FROM:
        return ""
    reader = call.reader
    name, version = reader.string(is_flexible=True), reader.string(is_flexible=True)
    software = f"{name[:NAME_CHARS_MAX]} {version[:NAME_CHARS_MAX]}"
    return software if software.isprintable() else ""


assert APIS[Key.API_VERSIONS].flexible_from == FLEXIBLE_FROM
