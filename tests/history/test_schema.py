"""A history of any release opens with all it holds, or tells why not."""

from __future__ import annotations

import stat
from itertools import pairwise
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from history_runs import run_number
from postgres_server import PostgresServer
from setuptools import find_packages
from sqlalchemy import insert, inspect, text

from predictor.errors import HistoryError
from predictor.site.history.engine import (
    HEAD,
    MIGRATIONS,
    VERSION_TABLE,
    engine_of,
    migrate,
    reading,
    revisions,
    url_of,
    writing,
)
from predictor.site.history.rows import row_of
from predictor.site.history.store import Cursor, History
from predictor.site.history.tables import COLUMNS, METADATA, RUNS

FIRST, *LATER = reversed(revisions())
RUN = run_number(1)


def older(url: str, revision: str) -> None:
    """Make a history as an older release did, with one run in it, of the columns there were."""
    engine = engine_of(url_of(url))
    with writing(engine) as connection:
        migrate(connection, revision)
        there = {column["name"] for column in inspect(connection).get_columns(RUNS.name)}
        row = dict(zip(COLUMNS, row_of(RUN, 0.0), strict=True))
        values = {name: value for name, value in row.items() if name in there}
        connection.execute(insert(RUNS), values)
    engine.dispose()


def version(url: str, told: str | None = None) -> str:
    """The schema of a history, after setting it to ``told``."""
    engine = engine_of(url_of(url))
    with writing(engine) as connection:
        if told is not None:
            connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{told}'"))
        found = str(connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar())
    engine.dispose()
    return found


@pytest.mark.parametrize("revision", [FIRST, *LATER])
def test_the_history_of_an_older_release_opens_with_what_it_holds(url: str, revision: str) -> None:
    older(url, revision)
    with History.open(url, create=False) as history:
        assert list(history.runs()) == [RUN]
        history.add([run_number(2)], cursor=Cursor("sacct", 2.0))
        assert (history.count(), history.cursor("sacct")) == (2, 2.0)
    assert version(url) == HEAD


def test_the_revisions_are_one_line_and_end_in_the_schema_that_is_read(url: str) -> None:
    assert revisions()[0] == HEAD
    files = sorted(MIGRATIONS.glob("versions/r*.py"))
    assert [path.name[1:5] for path in files] == [FIRST, *LATER]
    assert all(int(b) == int(a) + 1 for a, b in pairwise([FIRST, *LATER]))


def test_the_revisions_make_the_tables_that_are_read(url: str) -> None:
    History.open(url).close()
    engine = engine_of(url_of(url))
    with reading(engine) as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, METADATA) == []
    engine.dispose()


def test_the_history_of_a_later_release_is_refused_and_left_as_it_is(url: str) -> None:
    with History.open(url) as history:
        history.add([RUN])
    version(url, "9999")
    with pytest.raises(HistoryError, match=f"schema 9999.*up to {HEAD}: upgrade precision-time"):
        History.open(url)
    assert version(url, HEAD) == HEAD
    with History.open(url) as history:
        assert list(history.runs()) == [RUN]


def test_a_revision_that_fails_leaves_the_schema_as_it_was(url: str) -> None:
    engine = engine_of(url_of(url))
    with writing(engine) as connection:
        connection.execute(text("CREATE TABLE meta (other INTEGER)"))  # in the way of the last
    with pytest.raises(HistoryError, match="meta"):
        History.open(url)
    with writing(engine) as connection:
        assert inspect(connection).get_table_names() == ["meta"]
        connection.execute(text("DROP TABLE meta"))
    engine.dispose()
    with History.open(url) as history:
        assert list(history.runs()) == []


def test_what_is_not_there_is_not_made_unasked(url: str) -> None:
    with pytest.raises(HistoryError, match="there is no"):
        History.open(url, create=False)
    with pytest.raises(HistoryError, match="there is no"):
        History.open(url, create=False)


def test_a_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "h.sqlite"
    with History.open(str(path)) as history:
        history.add([RUN])
        modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in path.parent.iterdir()}
    assert modes == dict.fromkeys(("h.sqlite", "h.sqlite-wal", "h.sqlite-shm"), 0o600)


def test_without_a_place_it_is_in_the_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with History.open() as history:
        assert history.url == f"sqlite:///{home}/history.sqlite"
    (home / "history.yaml").write_text(f"url: {home}/settled.sqlite\n")
    with History.open() as history:
        assert history.url.endswith("settled.sqlite")
    monkeypatch.setenv("PRECISION_TIME_HISTORY", f"sqlite:///{home}/named.sqlite")
    with History.open() as history:
        assert history.url.endswith("named.sqlite")
    with History.open(f"{home}/given.sqlite") as history:
        assert history.url.endswith("given.sqlite")


@pytest.mark.parametrize(
    "url", ["mysql://u:secret@h/d", "sqlite://", "oracle+x://", "://", "no://[x"]
)
def test_another_database_is_refused_without_telling_a_password(url: str) -> None:
    with pytest.raises(HistoryError, match="history") as refusal:
        History.open(url)
    assert "secret" not in str(refusal.value)


def test_a_database_that_cannot_hold_every_name_is_refused(postgres: PostgresServer) -> None:
    url = postgres.database("ENCODING 'LATIN1' TEMPLATE template0")
    with pytest.raises(HistoryError, match="LATIN1; expected one made with ENCODING 'UTF8'"):
        History.open(url)


def test_the_revisions_are_in_the_package() -> None:
    packages = find_packages(str(MIGRATIONS.parents[3]), include=["predictor", "predictor.*"])
    assert {"predictor.site.history.migrations", "predictor.site.history.migrations.versions"} <= {
        *packages
    }
