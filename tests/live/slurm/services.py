"""What Slurm's daemons lean on: munged, MariaDB and slurmdbd, each of one bench alone."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from .installation import Installation
from .processes import BenchError, Daemon
from .tables import Places, slurmdbd_conf

MARIADB_SMALL = (
    "--innodb-buffer-pool-size=16M",
    "--innodb-log-file-size=4M",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-data-file-path=ibdata1:4M:autoextend",
    "--innodb-lock-wait-timeout=900",
)


def start_munged(installation: Installation, places: Places, env: Mapping[str, str]) -> Daemon:
    """munged with a key of its own; it is not ready yet."""
    directory = places.munge_socket.parent
    key = directory / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    daemon = Daemon("munged", places.root / "log" / "munged.out")
    daemon.start(
        [
            installation.program("munged"),
            "--foreground",
            "--force",
            f"--socket={places.munge_socket}",
            f"--key-file={key}",
            f"--pid-file={directory}/munged.pid",
            f"--seed-file={directory}/munged.seed",
        ],
        env,
        grace_s=1.0,
    )
    return daemon


def munge_ready(places: Places) -> bool:
    """True once munged takes connections."""
    return _listens(places.munge_socket)


def start_mariadb(installation: Installation, places: Places, env: Mapping[str, str]) -> Daemon:
    """MariaDB without a network and without accounts; it is not ready yet.

    Durability is off: the data go with the bench.
    """
    directory = places.mariadb_socket.parent
    me = pwd.getpwuid(os.geteuid()).pw_name
    temporary = directory / "tmp"  # a server that starts clears what others have in /tmp
    temporary.mkdir()
    basics = ["--no-defaults", f"--datadir={directory}/data", f"--tmpdir={temporary}"]
    basics += [f"--user={me}", *MARIADB_SMALL]
    made = subprocess.run(
        [
            installation.program("mariadb-install-db"),
            *basics,
            "--skip-test-db",
            "--skip-name-resolve",
            "--auth-root-authentication-method=normal",
        ],
        env=dict(env),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if made.returncode:
        raise BenchError(f"mariadb-install-db failed:\n{made.stdout}{made.stderr}")
    daemon = Daemon("mariadbd", places.root / "log" / "mariadbd.out")
    daemon.start(
        [
            installation.program("mariadbd"),
            *basics,
            "--skip-networking",
            "--skip-grant-tables",
            f"--socket={places.mariadb_socket}",
            f"--pid-file={directory}/mariadbd.pid",
        ],
        env,
        grace_s=0.0,
    )
    return daemon


def mariadb_ready(places: Places) -> bool:
    """True once MariaDB takes connections."""
    return _listens(places.mariadb_socket)


def start_slurmdbd(installation: Installation, places: Places, env: Mapping[str, str]) -> Daemon:
    """slurmdbd on this bench's MariaDB; it is not ready yet."""
    conf = places.etc / "slurmdbd.conf"
    conf.write_text(slurmdbd_conf(places))
    conf.chmod(0o600)
    owner = pwd.getpwnam(places.slurm_user)
    os.chown(conf, owner.pw_uid, owner.pw_gid)
    logs = places.root / "log"
    daemon = Daemon("slurmdbd", logs / "slurmdbd.out", [logs / "slurmdbd.log"])
    daemon.start(
        [installation.program("slurmdbd"), "-D"],
        {**env, "MYSQL_UNIX_PORT": str(places.mariadb_socket)},
        grace_s=0.0,
    )
    return daemon


def slurmdbd_ready(places: Places) -> bool:
    """True once slurmdbd takes connections."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", places.database_port)) == 0


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0
