"""Declaration of a setting: dotted name, default, documentation and unit. Type and bounds are those of the class
field."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

MIB = 1 << 20
DAY_MS = 24 * 60 * 60 * 1000


def setting(name: str, default: object, doc: str, *, unit: str = "") -> Any:
    """Returns a field with the dotted `name`. A default of None is computed at run time, as `doc` describes."""
    return Field(default=default, alias=name, description=doc, json_schema_extra={"unit": unit})


class Settings(BaseModel):
    """An immutable set of settings, given by dotted name or field name. Any other name is an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_by_name=True,
        validate_by_alias=True,
        defer_build=True,  # of a broker's sets only the whole is ever used
    )
