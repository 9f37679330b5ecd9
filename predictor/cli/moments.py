"""Points in time as people give them to a command."""

from __future__ import annotations

import re
import time
from datetime import datetime

import click

_AGO = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)([mhdw])")
_UNITS_S = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
ACCEPTED = "2025-01-31, 2025-01-31T12:00, or an age such as 90m, 12h, 30d, 4w"


class Moment(click.ParamType):
    """A date, a date and time (of this machine where no zone is named), or an age.

    It becomes Unix seconds.
    """

    name = "TIME"

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The Unix seconds; fails naming what is accepted."""
        if isinstance(value, float):
            return value
        if ago := _AGO.fullmatch(value):
            return time.time() - float(ago[1]) * _UNITS_S[ago[2]]
        try:
            return datetime.fromisoformat(value).astimezone().timestamp()
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not possible: {ACCEPTED} is accepted", param, ctx)


MOMENT = Moment()
