"""How a setting is declared: its dotted name, default, documentation and unit; its type and bounds are the field's."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

MIB = 1 << 20
DAY_MS = 24 * 60 * 60 * 1000


def setting(name: str, default: object, doc: str, *, unit: str = "") -> Any:
    """A field under its dotted `name`. A default of None means computed: `doc` says how."""
    return Field(default=default, alias=name, description=doc, json_schema_extra={"unit": unit})


class Settings(BaseModel):
    """A frozen set of settings, given by dotted name or by field name; any other name is an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_by_name=True,
        validate_by_alias=True,
        defer_build=True,  # of a broker's sets only the whole is ever used
    )
