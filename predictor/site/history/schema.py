"""The schema of a history, brought to what this release reads and writes.

A new SQLite file gets its name when it is complete, so that two programs that open it at once
find all of it, or nothing.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from tempfile import mkdtemp

from sqlalchemy import URL, Connection, Engine, inspect, text

from ...errors import HistoryError
from ...trusted_files import DRAFT_PREFIX
from .engine import POSTGRES, engine_of, reading, shown, writing

HEAD = "0003"
VERSION_TABLE = "history_version"
CONNECTION = "connection"
MIGRATIONS = Path(__file__).with_name("migrations")
FILE_MODE = 0o600  # users and what they run
_BEFORE_THE_FIRST_PAGE = ("auto_vacuum=INCREMENTAL", "journal_mode=WAL")


def open_engine(url: URL, *, create: bool) -> Engine:
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


def version_of(connection: Connection) -> str | None:
    """The revision a history is at, None where the database holds none."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    return None if found is None else str(found)


def _bring_to_head(engine: Engine, *, create: bool) -> None:
    with reading(engine) as connection:
        version = version_of(connection)
        if engine.dialect.name == POSTGRES:
            _check_encoding(engine, connection)
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


def migrate(connection: Connection, revision: str = "head") -> None:
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


def _check_encoding(engine: Engine, connection: Connection) -> None:
    encoding = connection.execute(text("SHOW server_encoding")).scalar()
    if encoding != "UTF8":
        raise HistoryError(
            f"history {shown(engine.url)}: the database keeps texts as {encoding}; expected one"
            " made with ENCODING 'UTF8'"
        )


def _make_file(url: URL, *, create: bool) -> None:
    """A complete empty history at the path of a URL, where there is nothing."""
    path = Path(url.database or "")
    if path.exists() or url.query.get("uri"):
        return
    if not create:
        raise HistoryError(f"history {shown(url)}: there is no file {path}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(mkdtemp(prefix=DRAFT_PREFIX, dir=path.parent))
    except OSError as error:
        raise HistoryError(f"history {shown(url)} cannot be made: {error}") from None
    try:
        _publish(url, draft / path.name, path)
    finally:
        for left in draft.iterdir():
            left.unlink()
        draft.rmdir()


def _publish(url: URL, draft: Path, path: Path) -> None:
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL, FILE_MODE))
    with closing(sqlite3.connect(draft)) as connection:
        for pragma in _BEFORE_THE_FIRST_PAGE:
            connection.execute(f"PRAGMA {pragma}")
    engine = engine_of(url.set(database=str(draft)))
    try:
        _bring_to_head(engine, create=True)
    finally:
        engine.dispose()
    with suppress(FileExistsError):  # another program was first, with the same
        path.hardlink_to(draft)
