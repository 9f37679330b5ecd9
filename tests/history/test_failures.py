"""A database that fails: a batch is there whole or not at all, and the next one goes on."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest
from history_runs import run_number
from postgres_server import PostgresServer

from predictor.errors import HistoryError
from predictor.site.history import store
from predictor.site.history.run import Run
from predictor.site.history.store import Cursor, History, Merged

from .writers import writer

# Bytes a file may have, and more runs than fit; PostgreSQL needs a log segment of 16 MiB whole.
LIMITS = {"sqlite": (2**20, 5_000), "postgresql": (2**24 + 2**16, 45_000)}
FULL_FS = 'mount -t tmpfs -o size=3m none "$0" && exec "$@"'


@contextmanager
def no_file_grows_beyond(most_bytes: int) -> Iterator[None]:
    """The kernel refuses this process what a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def no_sessions_file_grows_beyond(server: PostgresServer, most_bytes: int) -> Iterator[None]:
    """The same for the sessions of a server."""
    server.limit_files(most_bytes)
    try:
        yield
    finally:
        server.limit_files(None)


def test_a_disk_that_takes_no_more_refuses_the_batch_and_loses_nothing(
    request: pytest.FixtureRequest, url: str, history: History
) -> None:
    kept = [run_number(n) for n in range(50)]
    history.add(kept, cursor=Cursor("sacct", 1))
    kind = "postgresql" if url.startswith("postgresql") else "sqlite"
    most_bytes, rows = LIMITS[kind]
    large = [run_number(n) for n in range(50, rows)]
    if kind == "postgresql":
        full = no_sessions_file_grows_beyond(request.getfixturevalue("postgres"), most_bytes)
    else:
        full = no_file_grows_beyond(most_bytes)
    with full:
        with pytest.raises(HistoryError, match=r"make room; nothing of this batch was kept"):
            history.add(large, cursor=Cursor("sacct", 2))
        assert list(history.runs()) == kept
    assert history.cursor("sacct") == 1
    assert history.add(large, cursor=Cursor("sacct", 2)) == Merged(new=len(large))
    assert (history.count(), history.cursor("sacct")) == (rows, 2)


def test_a_file_system_that_is_full_refuses_the_batch(tmp_path: Path) -> None:
    mounts = ["unshare", *([] if os.geteuid() == 0 else ["-r"]), "--mount"]
    probe = [*mounts, "sh", "-c", FULL_FS, str(tmp_path), "true"]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    under = [*mounts, "sh", "-c", FULL_FS, str(tmp_path)]
    with writer(str(tmp_path / "h.sqlite"), 1000, *range(8), 0, under=under) as process:
        opened, *done = process.all_said()
    assert opened == {"opened": 0}
    whole = [line for line in done[:8] if line.get("new") == 1000]
    refused = [line for line in done[:8] if "refused" in line]
    assert len(whole) + len(refused) == 8
    assert refused
    assert all("disk is full; make room" in line["refused"] for line in refused)
    assert done[8] == {"number": 0, "new": 0, "changed": 0, "same": 1000}  # it still answers


def test_a_server_that_dies_within_a_batch_keeps_none_of_it(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "STAGED_ROWS", 500)

    def dying() -> Iterator[Run]:
        yield from map(run_number, range(1, 510))
        postgres.stop(signal.SIGQUIT)
        yield run_number(510)

    with History.open(postgres.schema()) as history:
        history.add([run_number(0)], cursor=Cursor("sacct", 1))
        try:
            with pytest.raises(HistoryError, match="history postgresql://"):
                history.add(dying(), cursor=Cursor("sacct", 2))
            with pytest.raises(HistoryError, match="connection"):
                history.count()
        finally:
            postgres.start()
        assert (history.count(), history.cursor("sacct")) == (1, 1)
        assert history.add(map(run_number, range(5))) == Merged(new=4, same=1)


def test_a_reader_hears_that_the_server_died(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "READ_ROWS", 500)
    with History.open(postgres.schema()) as history:
        history.add(map(run_number, range(1000)))
        reader = history.runs()
        next(reader)
        try:
            postgres.stop(signal.SIGQUIT)
            with pytest.raises(HistoryError, match="connection"):
                list(reader)
        finally:
            postgres.start()


def test_a_history_that_can_only_be_read_is_read(url: str, history: History) -> None:
    history.add([run_number(1)])
    history.close()
    read_only = f"sqlite:///file:{url}?mode=ro&uri=true"
    if url.startswith("postgresql"):
        read_only = f"{url}%20-cdefault_transaction_read_only%3Don"
    with History.open(read_only, create=False) as readable:
        assert list(readable.runs()) == [run_number(1)]
        with pytest.raises(HistoryError, match="can only be read by this user"):
            readable.add([run_number(2)])
        with pytest.raises(HistoryError, match="can only be read by this user"):
            readable.forget(0)
        assert readable.count() == 1


def test_a_writer_without_an_account_is_refused(postgres: PostgresServer) -> None:
    with pytest.raises(HistoryError, match='role "stranger" does not exist'):
        History.open(postgres.schema().replace("tests@", "stranger:secret@"))


@pytest.mark.parametrize(
    ("offset", "written"), [(0, b"not a database at all"), (4096, b"\xff" * 65536)]
)
def test_a_damaged_file_is_told_and_not_written(
    tmp_path: Path, offset: int, written: bytes
) -> None:
    path = tmp_path / "h.sqlite"
    with History.open(str(path)) as history:
        history.add(map(run_number, range(200)))
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(written)
    damaged = path.read_bytes()
    with (
        pytest.raises(HistoryError, match=r"h.sqlite: .*(not a database|malformed)"),
        History.open(str(path)) as history,
    ):
        list(history.runs())
    assert path.read_bytes() == damaged


def test_a_place_that_cannot_be_one_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HistoryError, match="cannot be made"):
        History.open(str(tmp_path / "file" / "h.sqlite"))
    with pytest.raises(HistoryError, match="unable to open database file; it belongs to another"):
        History.open(str(tmp_path))


def test_a_disk_that_is_full_from_the_start_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = sqlite3.OperationalError("database or disk is full")
    monkeypatch.setattr(sqlite3, "connect", Mock(side_effect=full))
    with pytest.raises(HistoryError, match="cannot be made: database or disk is full"):
        History.open(str(tmp_path / "h.sqlite"))
    assert list(tmp_path.iterdir()) == []
