"""The options of the sink, and the check of a row schema against them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidelog.model.batch_header import Compression
from tidelog.model.errors import InvalidRequest
from tidelog.spark.option_values import OptionValues
from tidelog.spark.options import TIMEOUT_MS, parse_servers
from tidelog.transport.security import Security

_REFUSED = {
    "kafka.acks": "acks=all is all there is: a task's records are on the disks of all in-sync replicas when it ends",
    "kafka.enable.idempotence": "use idempotence",
    "kafka.transactional.id": "there are no transactions; see idempotence and writeId in docs/spark.md",
    "kafka.key.serializer": "keys are bytes or text",
    "kafka.value.serializer": "values are bytes or text",
    "kafka.partitioner.class": "use the partition column",
}
_CONTENT = ("binary", "string")
_HEADERS = "array<struct<key:string,value:binary>>"
_EXPECTED = {
    "key": _CONTENT,
    "value": _CONTENT,
    "topic": ("string",),
    "partition": ("int",),
    "headers": (_HEADERS,),
    "timestamp": ("timestamp",),
}
_SPARKS_OWN = ("path", "checkpointLocation", "queryName")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The validated options of a writer; picklable, since they are sent to the executors."""

    bootstrap: tuple[str, ...]
    security: Security
    """TLS and authentication settings. Their files must exist on the driver and on each executor."""
    topic: str | None
    """The topic of all rows; None if rows have a column `topic`."""
    compression: Compression
    is_idempotent: bool
    write_id: str | None
    """The id of a batch write, by which a repeated write is recognised."""
    keeps_timestamps: bool
    timeout_s: float
    """Seconds without progress after which a task fails."""


def parse_sink_options(options: Mapping[str, str], *, is_streaming: bool) -> SinkOptions:
    """Parses the options of a query that writes. Raises `InvalidRequest` with the option's name."""
    values = OptionValues(options)
    values.refuse(_REFUSED)
    if is_streaming:
        values.refuse({"writeId": "a streaming query is known by its id and its batches' numbers; leave it out"})
    codec = values.choice(
        "kafka.compression.type", [compression.label for compression in Compression], Compression.NONE.label
    )
    bootstrap, security = parse_servers(values)
    parsed = SinkOptions(
        bootstrap=bootstrap,
        security=security,
        topic=values.text("topic"),
        compression=next(compression for compression in Compression if compression.label == codec),
        is_idempotent=values.flag("idempotence", True),
        write_id=values.text("writeId"),
        keeps_timestamps=values.flag("keepTimestamps", False),
        timeout_s=(values.number("kafka.delivery.timeout.ms") or TIMEOUT_MS) / 1000,
    )
    values.finish(*_SPARKS_OWN)
    if parsed.write_id is not None and not parsed.is_idempotent:
        raise InvalidRequest("writeId makes no sense with idempotence=false")
    return parsed


def check_schema(schema: Any, options: SinkOptions) -> None:
    """Raises `InvalidRequest` if rows of this Spark schema cannot be written."""
    kinds = {field.name: field.dataType.simpleString() for field in schema}
    if "value" not in kinds:
        raise InvalidRequest("there is no column 'value'")
    if options.topic is None and "topic" not in kinds:
        raise InvalidRequest("say where to: with the option topic, or a column 'topic'")
    if options.keeps_timestamps and "timestamp" not in kinds:
        raise InvalidRequest("keepTimestamps needs a column 'timestamp'")
    for name, kind in kinds.items():
        if kind not in _EXPECTED.get(name, (kind,)) and (name != "timestamp" or options.keeps_timestamps):
            raise InvalidRequest(f"column {name} must be {' or '.join(_EXPECTED[name])}, not {kind}: cast it")
