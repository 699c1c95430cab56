"""Content types: the formats in which records are sent and returned.

As in Confluent's REST Proxy the media type names the *embedded format* of keys and values, and binary (base64) is the
default. `application/json` is taken as the json format, because that is what people type. Strimzi's `text` is for
strings: its key has the same bytes, and so the same partition, as a string key of any Kafka client, while a JSON key
includes its quotes.

Media types that browsers send across origins without a preflight are refused; the check of origins is in `origin.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from aiohttp import web
from aiohttp.hdrs import ACCEPT, CONTENT_TYPE

from tidelog.broker.http.params import shown
from tidelog.model.errors import NotAcceptable, UnsupportedMediaType
from tidelog.model.records import RecordForm

BATCHES_TYPE: Final = "application/vnd.tidelog.batches"
JSON_TYPE: Final = "application/json"


class Embedded(enum.Enum):
    """The embedded format: how a record's key and value are written inside a JSON document."""

    BINARY = "application/vnd.kafka.binary.v2+json"
    JSON = "application/vnd.kafka.json.v2+json"
    TEXT = "application/vnd.kafka.text.v2+json"

    @property
    def form(self) -> RecordForm:
        """The name of this format in the settings of a consumer instance."""
        return _FORMS[self]


_FORMS: Final[Mapping[Embedded, RecordForm]] = MappingProxyType(
    {Embedded.BINARY: "binary", Embedded.JSON: "json", Embedded.TEXT: "text"}
)


_EMBEDDED: Final = MappingProxyType(
    {
        "application/vnd.kafka.binary.v2+json": Embedded.BINARY,
        "application/vnd.kafka.v2+json": Embedded.BINARY,
        "application/vnd.kafka.json.v2+json": Embedded.JSON,
        "application/vnd.kafka.text.v2+json": Embedded.TEXT,
        JSON_TYPE: Embedded.JSON,
    }
)
# A range of types is a wish, in `Accept`. As the type of a body it says nothing, and browsers send it without asking.
_ACCEPTED: Final = MappingProxyType({**_EMBEDDED, "application/*": Embedded.BINARY, "*/*": Embedded.BINARY})
_DOCUMENTS: Final = frozenset({*_EMBEDDED, "application/vnd.kafka+json"})
_BYTES: Final = "application/octet-stream"
_UTF_8: Final = frozenset({"utf-8", "utf8", "us-ascii"})


def embedded_sent(request: web.BaseRequest) -> Embedded:
    """Returns the format of the records in a v2 body, by its Content-Type. Raises `UnsupportedMediaType`, naming the
    header to send, if it is unknown.
    """
    kind = _sent(request)
    form = Embedded.BINARY if kind is None else _EMBEDDED.get(kind)
    if form is None:
        raise UnsupportedMediaType(
            f"Content-Type {shown(str(kind))} is not known here: send {Embedded.JSON.value} for keys and values in "
            f"JSON, {Embedded.TEXT.value} for strings, or {Embedded.BINARY.value} for base64"
        )
    return form


def check_document(request: web.BaseRequest) -> None:
    """Raises `UnsupportedMediaType` if the Content-Type is not that of a JSON document."""
    kind = _sent(request)
    if kind is not None and kind not in _DOCUMENTS:
        raise UnsupportedMediaType(f"Content-Type {shown(kind)} is not known here: send {JSON_TYPE}")


def check_batches(request: web.BaseRequest, expected: str = BATCHES_TYPE) -> None:
    """Raises `UnsupportedMediaType` if the Content-Type is neither that of raw record batches nor that of plain bytes.
    `expected` is another type for batches of many partitions.
    """
    kind = request.headers.get(CONTENT_TYPE)
    if kind is not None and kind != expected and _sent(request) not in (expected, _BYTES):
        raise UnsupportedMediaType(f"Content-Type {shown(kind)} is not known here: send {expected}")


def embedded_accepted(request: web.BaseRequest) -> Embedded:
    """Returns the record format that `Accept` prefers, by quality and then by order. Raises `NotAcceptable` if it
    allows none.
    """
    accept = request.headers.get(ACCEPT)
    if accept is None:
        return Embedded.BINARY
    best, best_quality = None, 0.0
    for entry in accept.split(","):
        kind, _, parameters = entry.partition(";")
        form = _ACCEPTED.get(kind.strip().lower())
        quality = _quality(parameters)
        if form is not None and quality > best_quality:
            best, best_quality = form, quality
    if best is None:
        raise NotAcceptable(
            f"records are read as {Embedded.JSON.value}, {Embedded.TEXT.value} or {Embedded.BINARY.value}, and Accept "
            f"{shown(accept)} allows none of them"
        )
    return best


def _sent(request: web.BaseRequest) -> str | None:
    """Returns the media type of the body, in lower case and without parameters; None if there is none."""
    text = request.headers.get(CONTENT_TYPE)
    if not text:
        return None
    kind, _, parameters = text.partition(";")
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip(' "').lower() not in _UTF_8:
            raise UnsupportedMediaType("JSON is UTF-8: leave the charset out of Content-Type")
    return kind.strip().lower()


def _quality(parameters: str) -> float:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return min(1.0, max(0.0, float(value)))
            except ValueError:
                return 0.0
    return 1.0
