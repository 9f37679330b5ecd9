"""A run as a row of the table ``runs``, and a row as a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
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
_PREDICTED = tuple(field.name for field in fields(Predicted))
_REPORTED = tuple(field.name for field in fields(Reported))
_PRINTED = tuple(field.name for field in fields(PrintedProgress))
_NOT_PREDICTED: Row = (None,) * len(_PREDICTED)
_NOT_REPORTED: Row = (None,) * len(_REPORTED)
_NOT_PRINTED: Row = (None,) * len(_PRINTED)
_identity_of = attrgetter("scheduler", "cluster", "job_id")
_who_of = attrgetter("name", "user", "account", "partition", "qos")
_times_of = attrgetter("submit_s", "start_s", "end_s", "limit_s", "gpus")
_texts_of = attrgetter("stated", "decision", "submit_line", "constraint")
_predicted_of = attrgetter(*_PREDICTED)
_reported_of = attrgetter(*_REPORTED)
_printed_of = attrgetter(*_PRINTED)
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
    try:
        second = int(job.submit_s)
    except (ValueError, OverflowError):
        raise _not_possible(job, "submit_s", job.submit_s) from None
    row = (
        *_identity_of(job),
        second,
        *_who_of(job),
        job.state.value,
        *_times_of(job),
        job.gpu_type or None,
        job.nodes,
        _list_text(job.node_names),
        *_texts_of(job),
        job.energy_j,
        job.cpus,
        job.memory_bytes,
        job.script or None,
        job.directory or None,
        run.asked,
        run.origin,
        *_asked(run.asked),
        None if run.limit_by is None else run.limit_by.value,
        *(_NOT_PREDICTED if run.predicted is None else _predicted_of(run.predicted)),
        *(_NOT_REPORTED if run.reported is None else _reported_of(run.reported)),
        *(_NOT_PRINTED if run.printed is None else _printed_of(run.printed)),
        ingested_s,
    )
    _check_numbers(job, row)
    return _clean(row)


def run_of(row: Sequence[Any]) -> Run:
    """The run of the values of COLUMNS."""
    (
        scheduler,
        cluster,
        job_id,
        _,
        name,
        user,
        account,
        partition,
        qos,
        state,
        submit_s,
        start_s,
        end_s,
        limit_s,
        gpus,
        gpu_type,
        nodes,
        node_names,
        stated,
        decision,
        submit_line,
        constraint,
        energy_j,
        cpus,
        memory_bytes,
        script,
        directory,
        asked,
        origin,
        _,
        _,
        _,
        limit_by,
        *rest,
    ) = row
    predicted, rest = rest[: len(_PREDICTED)], rest[len(_PREDICTED) :]
    reported, printed = rest[: len(_REPORTED)], rest[len(_REPORTED) : -1]
    return Run(
        ended=EndedJob(
            scheduler=scheduler,
            cluster=cluster,
            job_id=job_id,
            name=name,
            user=user,
            account=account,
            partition=partition,
            qos=qos,
            state=JobState(state),
            submit_s=submit_s,
            start_s=start_s,
            end_s=end_s,
            limit_s=limit_s,
            gpus=gpus,
            gpu_type=gpu_type,
            nodes=nodes,
            node_names=_list_of(node_names),
            stated=stated,
            decision=decision,
            submit_line=submit_line,
            constraint=constraint,
            energy_j=energy_j,
            cpus=cpus,
            memory_bytes=memory_bytes,
            script=script or "",
            directory=directory or "",
        ),
        asked=asked,
        origin=origin,
        limit_by=None if limit_by is None else LimitBy(limit_by),
        predicted=None if _empty(predicted) else Predicted(**_named(_PREDICTED, predicted)),
        reported=None if reported[0] is None else Reported(**_named(_REPORTED, reported)),
        printed=None if printed[0] is None else PrintedProgress(**_named(_PRINTED, printed)),
    )


def _named(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(names, values, strict=True))


def _empty(values: Iterable[Any]) -> bool:
    return all(value is None for value in values)


@lru_cache(2**12)
def _asked(asked: str) -> Row:
    return tuple(asked_value(asked, name) for name in ("model", "precision", "gpu"))


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
