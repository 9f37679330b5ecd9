"""A report as JSON, and the schema it keeps to."""

from __future__ import annotations

import json
import math
from importlib.resources import files
from typing import Any

from ..report_data import CapacityReport

SCHEMA_NAME = "report.schema.json"


def render_json(report: CapacityReport) -> str:
    """One object, fields named as in report_data; what is not known or not finite is null."""
    return (
        json.dumps(_finite(report.as_dict()), allow_nan=False, indent=1, ensure_ascii=True) + "\n"
    )


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) that is shipped."""
    return dict(json.loads(files(__package__).joinpath(SCHEMA_NAME).read_text("utf-8")))


def generated_schema() -> dict[str, Any]:
    """The schema as it follows from the types; needs pydantic."""
    from pydantic import TypeAdapter

    found: dict[str, Any] = TypeAdapter(CapacityReport).json_schema(mode="serialization")
    for part in (found, *found["$defs"].values()):
        if "properties" in part:
            part["additionalProperties"] = False
            part["required"] = list(part["properties"])
    found["properties"] |= {
        "v": {"const": 1, "title": "Version of this schema"},
        "idle": {"anyOf": [{"type": "number"}, {"type": "null"}], "title": "GPU-hours nobody had"},
    }
    found["required"] += ["v", "idle"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, (list, tuple)) else value
