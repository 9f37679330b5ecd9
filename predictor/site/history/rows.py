"""A run as a row of the table ``runs``, and a row as a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any

from sqlalchemy import BigInteger, Double, Text

from ...errors import HistoryError
from ..ended_job import EndedJob, JobState
from .run import LimitBy, Predicted, PrintedProgress, Reported, Run, asked_value
from .tables import COLUMNS, KEY, RUNS

Row = tuple[Any, ...]

MOST = 2.0**62  # what any number stays below, so that both databases hold it
# Fields that are columns of the same name, and those whose column has a prefix.
_JOB = tuple(field.name for field in fields(EndedJob))
_PARTS: Mapping[str, Any] = {
    "predicted": Predicted,
    "reported": Reported,
    "printed": PrintedProgress,
}
_COLUMNS_OF = {
    part: {field.name: f"{part}_{field.name}" for field in fields(kind)}
    for part, kind in _PARTS.items()
}
_OR_NULL = ("gpu_type", "script", "directory")  # NULL where they are empty
_ASKED = ("model", "precision", "gpu")
_NOTHING: Mapping[str, Any] = dict.fromkeys(COLUMNS)
_job_of = attrgetter(*_JOB)
_in_order = itemgetter(*COLUMNS)
# The second of submission in the key follows from ``submit_s``.
_NUMBERS = tuple(
    COLUMNS.index(column.name)
    for column in RUNS.columns
    if isinstance(column.type, BigInteger | Double) and column.name not in KEY
)
_TEXTS = tuple(COLUMNS.index(c.name) for c in RUNS.columns if isinstance(c.type, Text))
_numbers_of = itemgetter(*_NUMBERS)
_all_texts_of = itemgetter(*_TEXTS)


def row_of(run: Run, ingested_s: float) -> Row:
    """The values of COLUMNS; raises HistoryError for a number that is none, such as NaN."""
    job = run.ended
    values = {**_NOTHING, **dict(zip(_JOB, _job_of(job), strict=True))}
    try:
        values["submit_second"] = int(job.submit_s)
    except (ValueError, OverflowError):
        raise _not_possible(job, "submit_s", job.submit_s) from None
    values["state"] = job.state.value
    values["node_names"] = _list_text(job.node_names)
    for name in _OR_NULL:
        values[name] = values[name] or None
    values |= {"asked": run.asked, "origin": run.origin, "ingested_s": ingested_s}
    values |= zip(_ASKED, _asked(run.asked), strict=True)
    if run.limit_by is not None:
        values["limit_by"] = run.limit_by.value
    for part, columns in _COLUMNS_OF.items():
        told = getattr(run, part)
        if told is not None:
            values |= {column: getattr(told, name) for name, column in columns.items()}
    row = _in_order(values)
    _check_numbers(job, row)
    return _clean(row)


def run_of(row: Sequence[Any]) -> Run:
    """The run of the values of COLUMNS."""
    values = dict(zip(COLUMNS, row, strict=True))
    job = {name: values[name] for name in _JOB}
    job["state"] = JobState(values["state"])
    job["node_names"] = _list_of(values["node_names"])
    job |= {name: values[name] or "" for name in ("script", "directory")}
    return Run(
        ended=EndedJob(**job),
        asked=values["asked"],
        origin=values["origin"],
        limit_by=None if values["limit_by"] is None else LimitBy(values["limit_by"]),
        predicted=_part("predicted", values),
        reported=_part("reported", values),
        printed=_part("printed", values),
    )


def _part(part: str, values: Mapping[str, Any]) -> Any:
    """What was predicted, reported or printed; None where nothing is known of it."""
    told = {name: values[column] for name, column in _COLUMNS_OF[part].items()}
    return None if all(value is None for value in told.values()) else _PARTS[part](**told)


@lru_cache(2**12)
def _asked(asked: str) -> Row:
    return tuple(asked_value(asked, name) for name in _ASKED)


@lru_cache(2**12)
def _list_text(names: tuple[str, ...]) -> str:
    return json.dumps(names) if names else ""


@lru_cache(2**12)
def _list_of(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text)) if text else ()


def _check_numbers(job: EndedJob, row: Row) -> None:
    """NaN, an infinity or a huge number shows in the sum of all, which is quick to take."""
    try:
        if -MOST < sum(filter(None, _numbers_of(row))) < MOST:
            return
    except OverflowError:
        pass
    for index in _NUMBERS:
        value = row[index]
        if value is not None and not -MOST < value < MOST:
            raise _not_possible(job, COLUMNS[index], value)


def _not_possible(job: EndedJob, field: str, value: object) -> HistoryError:
    return HistoryError(
        f"invalid {field}={value!r} of {job.scheduler} job {job.job_id!r}; expected a number"
        " between -2**62 and 2**62"
    )


def _clean(row: Row) -> Row:
    """The row without what PostgreSQL does not take: NULs, and halves of characters."""
    texts = "".join(filter(None, _all_texts_of(row)))
    if texts.isascii() and "\0" not in texts:
        return row
    return tuple(_storable(value) if isinstance(value, str) else value for value in row)


def _storable(text: str) -> str:
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
