"""A report as JSON, and the schema it keeps to."""

from __future__ import annotations

import json
import math
from typing import Any

from ..report_data import CapacityReport
from .words import read

SCHEMA_NAME = "report.schema.json"


def render_json(report: CapacityReport) -> str:
    """One object, fields named as in report_data; what is not known or not finite is null."""
    return (
        json.dumps(_finite(report.as_dict()), allow_nan=False, indent=1, ensure_ascii=True) + "\n"
    )


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) that is shipped."""
    return dict(json.loads(read(SCHEMA_NAME)))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, (list, tuple)) else value
