"""Names replaced by keyed hashes on their way in, so that no clear one is ever stored.

HMAC-SHA256 with a key of the site: equal names stay equal, and without the key nobody can try
names against a hash.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from sqlalchemy import Connection, delete, insert, select

from ...errors import ArtifactError, HistoryError
from ...trusted_files import trusted
from .run import Run
from .settings import HistorySettings
from .tables import META, RUNS
from .where import Where

MODE = "anonymise"
KEY_ID = "site_key"
LEAST_KEY_BYTES = 16
_DIGITS = 20  # 80 bits: no two names of a site meet
_CACHED = 2**16
# Ids that schedulers give, which say nothing of anybody; a Kubernetes name may.
_GIVEN_ID = re.compile(r"\d+([_+.]\d+)*|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)

Hash = Callable[[str, str], str]


class Anonymiser:
    """Makes what is stored from what is known; ``mark`` is what the history remembers of it."""

    def __init__(self, settings: HistorySettings) -> None:
        self.mode = settings.anonymise
        key = None if settings.site_key is None else _key(settings.site_key)
        self._hash = None if key is None or self.mode == "none" else _hasher(key)

    @property
    def mark(self) -> dict[str, str]:
        """How names are kept, and by which key, without telling the key."""
        if self._hash is None:
            return {MODE: "none"}
        return {MODE: self.mode, KEY_ID: self._hash("key", "id")}

    def __call__(self, run: Run) -> Run:
        """The run as it may be stored."""
        hashed = self._hash
        if hashed is None:
            return run
        job = replace(
            run.ended,
            user=hashed("user", run.ended.user),
            account=hashed("account", run.ended.account),
            stated="",
            decision="",
            submit_line="",
            script=hashed("script", run.ended.script),
            directory=hashed("directory", run.ended.directory),
        )
        if self.mode == "users-and-names":
            job = replace(job, name=hashed("name", job.name), job_id=self._job_id(job.job_id))
        return replace(run, ended=job)

    def where(self, where: Where) -> Where:
        """The same condition on what is stored; names may be given clear or hashed."""
        hashed = self._hash
        if hashed is None:
            return where
        where = replace(
            where,
            users=tuple(hashed("user", name) for name in where.users),
            accounts=tuple(hashed("account", name) for name in where.accounts),
        )
        if self.mode != "users-and-names":
            return where
        return replace(
            where,
            names=tuple(hashed("name", name) for name in where.names),
            job_ids=tuple(map(self._job_id, where.job_ids)),
        )

    def _job_id(self, job_id: str) -> str:
        assert self._hash is not None
        return job_id if _GIVEN_ID.fullmatch(job_id) else self._hash("job", job_id)


def site_hash(site_key: Path) -> Hash:
    """What hashes a name of a kind by the key in a file; raises HistoryError for a bad one."""
    return _hasher(_key(site_key))


def _hasher(key: bytes) -> Hash:
    @lru_cache(_CACHED)
    def hashed(kind: str, name: str) -> str:
        """``user-5f1c...``; a hash stays what it is, and so does a missing name."""
        prefix = f"{kind}-"
        if not name or re.fullmatch(rf"{prefix}[0-9a-f]{{{_DIGITS}}}", name):
            return name
        text = f"{kind}\0{name}".encode("utf-8", "surrogatepass")
        return prefix + hmac.digest(key, text, hashlib.sha256).hex()[:_DIGITS]

    return hashed


def _key(path: Path) -> bytes:
    """The secret; raises HistoryError where others can read or write it, or it is too short."""
    try:
        trusted(path)
        key = path.read_bytes().strip()
        mode = stat.S_IMODE(path.stat().st_mode)
    except (ArtifactError, OSError) as error:
        raise HistoryError(f"invalid site_key={str(path)!r}; {error}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise HistoryError(
            f"invalid site_key={str(path)!r}; mode {mode:04o} lets others read it; expected a file"
            f" of its owner alone: run `chmod 600 {path}`"
        )
    if len(key) < LEAST_KEY_BYTES:
        raise HistoryError(
            f"invalid site_key={str(path)!r}; it holds {len(key)} bytes;"
            f" expected {LEAST_KEY_BYTES} or more"
        )
    return key


def check_names(connection: Connection, anonymiser: Anonymiser) -> None:
    """Keep clear and hashed names, or hashes of two keys, out of one history.

    An empty history takes the way it is given; raises HistoryError where it has another.
    """
    stored = _stored_mark(connection)
    mark = anonymiser.mark
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


def names_kept(connection: Connection) -> str:
    """How the names of a history are kept, and by which key."""
    return _told(_stored_mark(connection))


def _stored_mark(connection: Connection) -> dict[str, str]:
    return {MODE: "none", **{row.name: row.value for row in connection.execute(select(META))}}


def _told(mark: Mapping[str, str]) -> str:
    return mark[MODE] + (f" by {mark[KEY_ID]}" if KEY_ID in mark else "")
