"""Points in time as people give them to a command."""

from __future__ import annotations

import re
import time
from datetime import datetime

import click

_AGO = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)([mhdw])", re.ASCII)
_UNITS_S = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
EXPECTED = "expected 2025-01-31, 2025-01-31T12:00, or an age such as 90m, 12h, 30d, 4w"


def moment(text: str) -> float:
    """Unix seconds of a date, a date and time (local where no zone is named), or an age.

    Raises click.BadParameter saying what is expected.
    """
    if ago := _AGO.fullmatch(text):
        return time.time() - float(ago[1]) * _UNITS_S[ago[2]]
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError):
        raise click.BadParameter(f"invalid {text!r}; {EXPECTED}") from None


MOMENT = moment  # the type of an option
