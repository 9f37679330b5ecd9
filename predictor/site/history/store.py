"""The history of ended jobs in one database: SQLite by default, PostgreSQL by URL."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Self

from sqlalchemy import ColumnElement, Connection, Engine, delete, func, insert, select

from ...errors import HistoryError
from .anonymise import KEY_ID, MODE, Anonymiser
from .engine import (
    POSTGRES,
    SQLITE,
    give_back_space,
    open_engine,
    reading,
    shown,
    streaming,
    url_of,
    version_of,
    writing,
)
from .rows import Merged, merge, row_of, run_of, upsert
from .run import Run
from .settings import HistorySettings, history_url, stored_settings
from .tables import CURSORS, EVERY_RUN, KEY, META, RUNS, Where, conditions

if TYPE_CHECKING:
    import polars as pl

__all__ = ["EVERY_RUN", "Cursor", "History", "Merged", "Status", "Where"]

STAGED_ROWS = 10_000  # held at once, about 20 MB
READ_ROWS = 5_000
_POSTGRES_BYTES = select(func.pg_total_relation_size(RUNS.name))
_SQLITE_BYTES = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A history; times are Unix seconds, None where it holds no run.

    ``names`` is how names are kept (``none``: as they are), ``cursors`` how far each ingest got.
    """

    url: str
    schema: str | None
    names: str
    keep_days: float | None
    runs: int
    predicted: int
    reported: int
    first_end_s: float | None
    last_end_s: float | None
    bytes: int
    cursors: dict[str, float]


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far the ingest of that name got, in Unix seconds."""

    name: str
    at_s: float


class History(AbstractContextManager["History"]):
    """The history in one database; safe to use from several processes and threads at once.

    Everything raises HistoryError, which names the history, where the database does not do what
    it is asked; what was added before stays. A forked process opens its own.
    """

    def __init__(self, engine: Engine, settings: HistorySettings) -> None:
        self.settings = settings
        self._engine = engine

    @classmethod
    def open(
        cls, url: str | None = None, *, settings: HistorySettings | None = None, create: bool = True
    ) -> Self:
        """The history at a path or a URL, its schema brought up to date.

        Without a URL it is that of ``$PRECISION_TIME_HISTORY``, of the settings, or the file
        ``history.sqlite`` in the home of precision-time; without settings they are those in
        ``history.yaml`` there. Without ``create`` there has to be one.
        """
        settings = stored_settings() if settings is None else settings
        engine = open_engine(url_of(history_url(url, settings)), create=create)
        return cls(engine, settings)

    @property
    def url(self) -> str:
        """Where it is, without a password."""
        return shown(self._engine.url)

    def add(self, runs: Iterable[Run], *, cursor: Cursor | None = None) -> Merged:
        """Add runs in one transaction, with how far the ingest got by them: all or nothing.

        A run that is there already (``Run.key``) is merged: state and end are replaced, what was
        missing is filled, and nothing is erased. Adding the same again changes nothing. Other
        writers wait meanwhile, so give a batch, 5,000 to 10,000 runs.
        """
        now_s, added = time.time(), Merged()
        rows = (row_of(self._anonymiser(run), now_s) for run in runs)
        chunk = list(islice(rows, STAGED_ROWS))
        with writing(self._engine) as connection:
            _check_names(connection, self._anonymiser.mark)
            while chunk:
                added += merge(connection, chunk)
                chunk = list(islice(rows, STAGED_ROWS))
            if cursor is not None:
                upsert(connection, CURSORS, {"name": cursor.name, "at_s": cursor.at_s})
        return added

    def runs(self, where: Where = EVERY_RUN) -> Iterator[Run]:
        """The runs in order of their end and key, read while they are taken."""
        key = (RUNS.columns[name] for name in KEY)
        query = select(RUNS).where(*self._conditions(where)).order_by(RUNS.c.end_s, *key)
        with streaming(self._engine, query, READ_ROWS) as rows:
            yield from map(run_of, rows)

    def latest(self, limit: int, where: Where = EVERY_RUN) -> list[Run]:
        """The runs that ended last, at most ``limit`` of them, oldest first."""
        query = select(RUNS).where(*self._conditions(where))
        with reading(self._engine) as connection:
            rows = connection.execute(query.order_by(RUNS.c.end_s.desc()).limit(limit)).all()
        return sorted(map(run_of, rows), key=lambda run: (run.ended.end_s, run.key))

    def count(self, where: Where = EVERY_RUN) -> int:
        """How many runs there are."""
        query = select(func.count()).select_from(RUNS).where(*self._conditions(where))
        with reading(self._engine) as connection:
            return connection.execute(query).scalar_one()

    def frame(self, where: Where = EVERY_RUN, columns: Sequence[str] | None = None) -> pl.LazyFrame:
        """The runs as a table with the columns of ``tables.RUNS``, in no order, read in blocks.

        Only the columns a query needs are read, each time the frame is collected.
        """
        from .frame import lazy_frame

        return lazy_frame(self._engine, self._conditions(where), columns)

    def cursor(self, name: str) -> float | None:
        """How far the ingest of that name got, in Unix seconds; None for none."""
        with reading(self._engine) as connection:
            query = select(CURSORS.c.at_s).where(CURSORS.c.name == name)
            return connection.execute(query).scalar()

    def status(self) -> Status:
        """What it holds and how it is kept."""
        figures = {
            "runs": func.count(),
            "predicted": func.count(RUNS.c.predicted_median_s),
            "reported": func.count(RUNS.c.reported_step_s),
            "first_end_s": func.min(RUNS.c.end_s),
            "last_end_s": func.max(RUNS.c.end_s),
        }
        with reading(self._engine) as connection:
            found = connection.execute(select(*figures.values())).one()
            if connection.dialect.name == POSTGRES:
                size = connection.execute(_POSTGRES_BYTES).scalar_one()
            else:
                size = connection.exec_driver_sql(_SQLITE_BYTES).scalar_one()
            cursors = connection.execute(select(CURSORS).order_by(CURSORS.c.name))
            return Status(
                url=self.url,
                schema=version_of(connection),
                names=_told(_stored_mark(connection)),
                keep_days=self.settings.keep_days,
                **dict(zip(figures, found, strict=True)),
                bytes=int(size),
                cursors={row.name: row.at_s for row in cursors},
            )

    def forget(self, before_s: float) -> int:
        """Delete the runs that ended before, in Unix seconds; how many they were.

        SQLite gives the space back, and leaves nothing of them in its files once no reader needs
        it.
        """
        with writing(self._engine) as connection:
            gone = connection.execute(delete(RUNS).where(RUNS.c.end_s < before_s)).rowcount
        if self._engine.dialect.name == SQLITE:
            give_back_space(self._engine)
        return gone

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def _anonymiser(self) -> Anonymiser:
        """Reads the key of the site, which those who only read a history need not have."""
        return Anonymiser(self.settings)

    def _conditions(self, where: Where) -> list[ColumnElement[bool]]:
        if where.users or where.job_ids:
            where = self._anonymiser.where(where)
        return list(conditions(where))


def _check_names(connection: Connection, mark: Mapping[str, str]) -> None:
    """Keep clear and hashed names, or hashes of two keys, out of one history.

    An empty history takes the way it is given; raises HistoryError where it has another.
    """
    stored = _stored_mark(connection)
    if stored == mark:
        return
    if connection.execute(select(RUNS.c.scheduler).limit(1)).first() is not None:
        raise HistoryError(
            f"invalid anonymise={mark[MODE]!r}; the runs of this history were kept with"
            f" {_told(stored)}, and these would be with {_told(mark)}; expected the same"
            " settings and key, or another history"
        )
    connection.execute(delete(META))
    connection.execute(insert(META), [{"name": n, "value": value} for n, value in mark.items()])


def _stored_mark(connection: Connection) -> dict[str, str]:
    return {MODE: "none", **{row.name: row.value for row in connection.execute(select(META))}}


def _told(mark: Mapping[str, str]) -> str:
    return mark[MODE] + (f" by {mark[KEY_ID]}" if KEY_ID in mark else "")
