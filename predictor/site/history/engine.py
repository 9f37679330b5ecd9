"""Connections to the two databases, made to behave alike, and the schema this release reads.

On both a transaction is whole or not at all, one writer works at a time while readers go on with
what was committed before, and an error becomes a HistoryError that names the history. A new SQLite
file gets its name when it is complete, so that two programs that open it at once find all of it, or
nothing.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from profiles.storage import shipped_yaml

from ...errors import HistoryError
from ...optional import needs
from ...trusted_files import DRAFT_PREFIX

WAIT_S = 30  # for another writer, whose transaction is a batch
POSTGRES = "postgresql"
SQLITE = "sqlite"
HEAD = "0003"
VERSION_TABLE = "history_version"
CONNECTION = "connection"
MIGRATIONS = Path(__file__).with_name("migrations")
FILE_MODE = 0o600  # users and what they run
_WRITES = "history_writes"
_WRITER_LOCK = 0x70726563  # of pg_advisory_xact_lock, one in a database
_DRIVERS = dict.fromkeys(("postgresql", "postgres"), "postgresql+psycopg")
_DRIVERS["sqlite"] = "sqlite+pysqlite"
_PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=NORMAL",
    "foreign_keys=ON",
    "secure_delete=ON",  # what was forgotten is not left in pages that are free
)
_EXPECTED = "expected a path, sqlite:///PATH or postgresql://USER@HOST/DATABASE"
_HINTS = [
    (word, told["hint"].format(wait_s=WAIT_S))
    for told in shipped_yaml("hints.yaml", __file__)
    for word in told["words"]
]


def url_of(given: str) -> sa.URL:
    """A path or a URL as the URL of a driver; raises HistoryError for another database."""
    if "://" not in given:
        return sa.URL.create(_DRIVERS[SQLITE], database=str(Path(given).expanduser()))
    try:
        url = sa.make_url(given)
    except (ArgumentError, ValueError):
        raise HistoryError(f"the URL of the history cannot be read: {_EXPECTED}") from None
    driver = _DRIVERS.get(url.get_backend_name())
    if driver is None or (url.get_backend_name() == SQLITE and not url.database):
        raise HistoryError(f"invalid history {shown(url)}; {_EXPECTED}")
    return url.set(drivername=driver)


def shown(url: sa.URL) -> str:
    """The URL for people: without its password and without our driver."""
    return url.set(drivername=url.get_backend_name()).render_as_string(hide_password=True)


def engine_of(url: sa.URL) -> sa.Engine:
    """Connections of a history; raises NotInstalledError without a driver for it."""
    if url.get_backend_name() == SQLITE:
        engine = sa.create_engine(url, connect_args={"timeout": WAIT_S})
        sa.event.listen(engine, "connect", _set_up_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
        return engine
    with needs("postgres"):
        engine = sa.create_engine(url, pool_pre_ping=True)
    sa.event.listen(engine, "begin", _begin_postgres)
    return engine


@contextmanager
def writing(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction that no other writer is in, committed when the block ends without an error."""
    with refusing(engine), engine.execution_options(**{_WRITES: True}).begin() as connection:
        yield connection


@contextmanager
def reading(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction in which every query sees one state of the history, however long it reads."""
    with refusing(engine), engine.connect() as connection:
        yield connection


@contextmanager
def streaming(
    engine: sa.Engine, query: sa.Select[Any], rows: int
) -> Iterator[sa.CursorResult[Any]]:
    """The result of a query, fetched so many rows at a time."""
    with (
        reading(engine) as connection,
        connection.execution_options(yield_per=rows).execute(query) as result,
    ):
        yield result


def give_back_space(engine: sa.Engine) -> None:
    """Take free pages off a SQLite file, and empty its log unless somebody needs that just now.

    ``execute`` of the driver would free one page.
    """
    with refusing(engine), closing(engine.raw_connection()) as connection:
        driver = connection.driver_connection
        assert driver is not None
        driver.executescript(
            "PRAGMA incremental_vacuum; PRAGMA busy_timeout=0; PRAGMA wal_checkpoint(TRUNCATE);"
            f" PRAGMA busy_timeout={WAIT_S * 1000}"
        )


@contextmanager
def refusing(engine: sa.Engine) -> Iterator[None]:
    """Errors of the database in the block as HistoryError."""
    assert engine.dialect.dbapi is not None
    try:
        yield
    except (SQLAlchemyError, engine.dialect.dbapi.Error, UnicodeError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        told = " ".join(str(cause).split()) or type(cause).__name__
        hint = next((f"; {hint}" for fragment, hint in _HINTS if fragment in told), "")
        raise HistoryError(f"history {shown(engine.url)}: {told}{hint}") from error


def _set_up_sqlite(connection: sqlite3.Connection, _: Any) -> None:
    """WAL lets readers go on beside a writer; what ``kill -9`` leaves is whole with NORMAL."""
    connection.isolation_level = None  # BEGIN is ours: see _begin_sqlite
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _begin_postgres(connection: sa.Connection) -> None:
    """Writers that overlap would wait for each other's rows in any order, and so for ever."""
    if connection.get_execution_options().get(_WRITES):
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{WAIT_S}s'")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITER_LOCK})")


def open_engine(url: sa.URL, *, create: bool) -> sa.Engine:
    """Connections to a history whose schema is HEAD.

    Raises HistoryError where there is none and ``create`` is False, or its schema is unknown.
    """
    if url.get_backend_name() != POSTGRES:
        _make_file(url, create=create)
    engine = engine_of(url)
    try:
        _bring_to_head(engine, create=create)
    except BaseException:
        engine.dispose()
        raise
    return engine


def version_of(connection: sa.Connection) -> str | None:
    """The revision a history is at, None where the database holds none."""
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    found = connection.execute(sa.text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    return None if found is None else str(found)


def _bring_to_head(engine: sa.Engine, *, create: bool) -> None:
    with reading(engine) as connection:
        version = version_of(connection)
        if engine.dialect.name == POSTGRES:
            encoding = connection.execute(sa.text("SHOW server_encoding")).scalar()
            if encoding != "UTF8":
                raise HistoryError(
                    f"history {shown(engine.url)}: the database keeps texts as {encoding}; expected"
                    " one made with ENCODING 'UTF8'"
                )
    if version == HEAD:
        return
    if version is None and not create:
        raise HistoryError(f"history {shown(engine.url)}: there is none")
    if version is not None and version not in revisions():
        raise HistoryError(
            f"history {shown(engine.url)}: a later release made its schema {version}, this one"
            f" knows up to {HEAD}: upgrade precision-time here"
        )
    with writing(engine) as connection:
        if version_of(connection) == version:  # no other program was first
            migrate(connection)


def migrate(connection: sa.Connection, revision: str = "head") -> None:
    """Run the revisions up to one, in the transaction of a connection."""
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={CONNECTION: connection})
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    command.upgrade(config, revision)


def revisions() -> list[str]:
    """Those this release knows, the last one first."""
    from alembic.script import ScriptDirectory

    return [script.revision for script in ScriptDirectory(MIGRATIONS).walk_revisions()]


def _make_file(url: sa.URL, *, create: bool) -> None:
    """A complete empty history at the path of a URL, where there is nothing."""
    path = Path(url.database or "")
    if path.exists() or url.query.get("uri"):
        return
    if not create:
        begin = "begin it with `history ingest`"
        raise HistoryError(f"history {shown(url)}: there is no file {path}: {begin}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=DRAFT_PREFIX, dir=path.parent) as draft:
            new = Path(draft) / path.name
            os.close(os.open(new, os.O_CREAT | os.O_EXCL, FILE_MODE))
            with closing(sqlite3.connect(new)) as connection:  # before its first page is written
                connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
                connection.execute("PRAGMA journal_mode=WAL")
            engine = engine_of(url.set(database=str(new)))
            try:
                _bring_to_head(engine, create=True)
            finally:
                engine.dispose()
            with suppress(FileExistsError):  # another program was first, with the same
                path.hardlink_to(new)
    except (OSError, sqlite3.Error) as error:
        raise HistoryError(f"history {shown(url)} cannot be made: {error}") from None
