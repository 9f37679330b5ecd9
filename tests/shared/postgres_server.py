"""A real PostgreSQL for the tests, on a Unix socket in a directory of its own.

PostgreSQL refuses to run as root: there it runs as ``postgres``, or as ``nobody``. With the word
``postgres`` in PRECISION_TIME_REQUIRE a missing one is a failure, not a skip.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Self

import pytest

DEBIAN = Path("/usr/lib/postgresql")
START_S = 30.0
POLL_S = 0.02
DIES_WITH_US = ("setpriv", "--pdeathsig", "QUIT")
SETTINGS = {
    "listen_addresses": "",
    "max_connections": "30",
    "shared_buffers": "16MB",
    "fsync": "off",  # no machine loses its power here
    "logging_collector": "off",
}


class PostgresServer:
    """One server, stopped by its PID and gone with its data at the end."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._user = _account()
        # A short path: a Unix socket has room for 107 characters.
        self.directory = Path(mkdtemp(prefix="pg-"))
        self._data = self.directory / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._names = (f"history_{n}" for n in count(1))

    def __enter__(self) -> Self:
        if self._user is not None:
            os.chown(self.directory, self._user.pw_uid, self._user.pw_gid)
        self._run(
            "initdb",
            "--auth=trust",
            "--username=tests",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            f"--pgdata={self._data}",
        )
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.stop(signal.SIGQUIT)
        shutil.rmtree(self.directory)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        log = (self.directory / "log").open("ab")
        settings = {**SETTINGS, "unix_socket_directories": str(self.directory)}
        options = [word for item in settings.items() for word in ("-c", "=".join(item))]
        with log:
            self._process = subprocess.Popen(
                [*DIES_WITH_US, self._programs / "postgres", "-D", self._data, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                **self._identity(),
            )
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.directory / "log").read_text(errors="replace"))
            time.sleep(POLL_S)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT ends sessions in order, SIGQUIT as a crash does."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait()
        self._process = None

    def database(self, options: str = "") -> str:
        """The URL of a new empty database, made with ``options`` of CREATE DATABASE."""
        name = next(self._names)
        self.sql(f"CREATE DATABASE {name} {options}")
        return f"postgresql://tests@/{name}?host={self.directory}"

    def schema(self) -> str:
        """The URL of a new empty schema, which is sooner made than a database."""
        name = next(self._names)
        self.sql(f"CREATE SCHEMA {name}")
        return f"postgresql://tests@/postgres?host={self.directory}&options=-csearch_path%3D{name}"

    def sql(self, statement: str, database: str = "postgres") -> str:
        """What a statement says, as psql prints it without a head."""
        return self._run(
            "psql",
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            str(self.directory),
            "-U",
            "tests",
            "-d",
            database,
            "-c",
            statement,
        ).strip()

    def limit_files(self, most_bytes: int | None) -> None:
        """Let the sessions that are open write no file beyond a size; None ends it.

        The kernel then refuses them what a full disk would. Write-ahead log comes in segments of
        16 MiB, which a server has to be able to write.
        """
        others = "backend_type = 'client backend' AND pid <> pg_backend_pid()"
        soft = "unlimited" if most_bytes is None else most_bytes
        for pid in self.sql(f"SELECT pid FROM pg_stat_activity WHERE {others}").split():
            words = ["prlimit", f"--pid={pid}", f"--fsize={soft}:"]
            subprocess.run(words, check=True, cwd="/", **self._identity())

    def _answers(self) -> bool:
        words = [self._programs / "pg_isready", "-q", "-h", self.directory]
        return subprocess.run(words, cwd="/", check=False).returncode == 0

    def _run(self, program: str, *words: str) -> str:
        done = subprocess.run(
            [self._programs / program, *words],
            capture_output=True,
            text=True,
            cwd="/",
            **self._identity(),
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr}")
        return done.stdout

    def _identity(self) -> dict[str, object]:
        if self._user is None:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A running server; skips where none is installed, or fails where one is required."""
    programs = _programs()
    if programs is None and "postgres" in os.environ.get("PRECISION_TIME_REQUIRE", "").split():
        pytest.fail("PRECISION_TIME_REQUIRE wants PostgreSQL: it is not installed")
    if programs is None:
        pytest.skip("PostgreSQL is not installed; see tools/install_debian_packages.sh")
    with PostgresServer(programs) as server:
        yield server


def _programs() -> Path | None:
    """The directory of the newest server, Debian's or that on the PATH."""
    found = [path for path in DEBIAN.glob("*/bin/postgres") if re.fullmatch(r"\d+", path.parts[-3])]
    if found:
        return max(found, key=lambda path: int(path.parts[-3])).parent
    initdb = shutil.which("initdb")
    return None if initdb is None else Path(initdb).resolve().parent


def _account() -> pwd.struct_passwd | None:
    """Whom it runs as where the tests run as root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]
