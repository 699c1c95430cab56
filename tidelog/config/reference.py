"""Generator of the reference page of all settings, `docs/config.md`, from their declarations."""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from tidelog.config.describe import as_text
from tidelog.config.names import environment_name
from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.config.settings.base import Settings
from tidelog.config.values import INT64_MAX

INTRODUCTION = """\
# Configuration

<!-- Generated from tidelog/config/schema.py by `make docs`; do not edit. -->

A broker's settings come from, strongest first: the command line (`--set name=value`), the environment
(`TIDELOG_LOG_SEGMENT_BYTES` for `log.segment.bytes`), the TOML file given with `--config`, the default. In the file,
dotted names and nested tables mean the same:

```toml title="tidelog.toml"
log.segment.bytes = 268435456
log.retention.ms = 86400000

[http]
listener = "127.0.0.1:9000"
```

A topic's settings are given when it is created and can be altered later; what a topic leaves alone is the broker's
setting of the synonymous name, or the default where brokers have none. An unknown name is an error, everywhere; only
what Kubernetes sets for services called `tidelog` or `tidelog-...` is left alone (`TIDELOG_HTTP_SERVICE_HOST`,
`TIDELOG_HTTP_PORT=tcp://...`).

Names and defaults are Kafka's except where the text says otherwise.
"""


def reference() -> str:
    """Returns the whole page, in Markdown."""
    return "\n".join([INTRODUCTION, *_section("Broker", BrokerConfig), *_section("Topic", TopicConfig)]).rstrip() + "\n"


def _section(title: str, settings: type[Settings]) -> Iterator[str]:
    yield f"## {title}\n"
    for field in settings.model_fields.values():
        yield f"### {_code(field.alias)}\n"
        if _synonym(field) is None:
            yield f"{field.description}\n"
        yield from (f"- {label}: {text}" for label, text in _facts(field))
        if settings is BrokerConfig:
            yield f"- Environment: {_code(environment_name(str(field.alias)))}"
        yield ""


def _synonym(field: FieldInfo) -> str | None:
    """Returns the name of the broker's setting that a topic's setting has its default from; None if there is none."""
    assert isinstance(field.json_schema_extra, dict)
    synonym = field.json_schema_extra.get("synonym")
    return None if synonym is None else str(synonym)


def _facts(field: FieldInfo) -> Iterator[tuple[str, str]]:
    assert isinstance(field.json_schema_extra, dict)
    synonym, unit = _synonym(field), field.json_schema_extra["unit"]
    if synonym is not None:
        yield "Default", f"the broker's [{_code(synonym)}](#{synonym.replace('.', '')})"
    elif field.default is not None:
        yield "Default", _code(as_text(field.default)) + (f" {unit}" if unit else "")
    if valid := _valid(field):
        yield "Valid", valid


def _valid(field: FieldInfo) -> str:
    """Returns the bounds or choices of a setting, from the type that validates it."""
    if get_origin(field.annotation) is Literal:
        return ", ".join(_code(as_text(choice)) for choice in get_args(field.annotation))
    bounds = list(_metadata(field.annotation, field.metadata))
    low = [bound.ge for bound in bounds if hasattr(bound, "ge")]
    high = [bound.le for bound in bounds if hasattr(bound, "le")]
    if not (low and high):
        return ""
    return f"{low[0]} to {high[0]}" if high[0] < INT64_MAX else f"at least {low[0]}"


def _metadata(annotation: Any, outer: list[Any]) -> Iterator[Any]:
    yield from outer
    if get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            if member is not NoneType:
                yield from _metadata(member, [])
    elif get_origin(annotation) is Annotated:
        for item in get_args(annotation)[1:]:
            yield from item.metadata if isinstance(item, FieldInfo) else [item]


def _code(text: object) -> str:
    return f"`{text}`" if text else "(empty)"
