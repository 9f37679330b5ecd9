"""Names replaced by keyed hashes, so that no clear one is ever stored.

HMAC-SHA256 with a key of the site: equal names stay equal, and without the key nobody can try
names against a hash.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import stat
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ...errors import ArtifactError, HistoryError
from ...trusted_files import trusted
from .run import Run

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from .settings import HistorySettings
    from .tables import Where

MODE, KEY_ID = "anonymise", "site_key"
LEAST_KEY_BYTES = 16
_DIGITS = 20  # 80 bits: no two names of a site meet
_CACHED = 2**16
# Ids that schedulers give, which say nothing of anybody; a Kubernetes name may.
_GIVEN_ID = re.compile(r"\d+([_+.]\d+)*|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)

Hash = Callable[[str, str], str]
Named = TypeVar("Named", bound="DataclassInstance")


class Anonymiser:
    """Makes what is stored from what is known; ``mark`` is what the history remembers of it."""

    def __init__(self, settings: HistorySettings) -> None:
        self.mode = settings.anonymise
        key = settings.site_key
        hashed = None if key is None else site_hash(key)
        self._hash = None if self.mode == "none" else hashed

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
        names = self.mode == "users-and-names"
        job = without_clear_names(run.ended, hashed, job_name=names)
        job = replace(job, stated="", decision="", submit_line="")
        if names:
            job = replace(job, job_id=_job_id(job.job_id, hashed))
        return replace(run, ended=job)

    def where(self, where: Where) -> Where:
        """The same condition on what is stored; names may be given clear or hashed."""
        hashed = self._hash
        if hashed is None:
            return where
        where = replace(where, users=tuple(hashed("user", name) for name in where.users))
        if self.mode != "users-and-names":
            return where
        return replace(where, job_ids=tuple(_job_id(one, hashed) for one in where.job_ids))


def _job_id(job_id: str, hashed: Hash) -> str:
    return job_id if _GIVEN_ID.fullmatch(job_id) else hashed("job", job_id)


def without_clear_names(job: Named, hashed: Hash, *, job_name: bool) -> Named:
    """A job or request with hashes for its user, account, script, directory, and its own name."""
    told = ("user", "account", "script", "directory", *(["name"] if job_name else []))
    return replace(job, **{field: hashed(field, getattr(job, field)) for field in told})


def site_hash(site_key: Path) -> Hash:
    """What hashes a name of a kind by the key in a file, and lets hashes pass.

    Raises HistoryError where others can read or write the file, or the key is too short.
    """
    invalid = f"invalid site_key={str(site_key)!r}"
    try:
        trusted(site_key)
        key = site_key.read_bytes().strip()
        mode = stat.S_IMODE(site_key.stat().st_mode)
    except (ArtifactError, OSError) as error:
        raise HistoryError(f"{invalid}; {error}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise HistoryError(
            f"{invalid}; mode {mode:04o} lets others read it; expected a file of its owner alone:"
            f" run `chmod 600 {site_key}`"
        )
    if len(key) < LEAST_KEY_BYTES:
        raise HistoryError(
            f"{invalid}; it holds {len(key)} bytes; expected {LEAST_KEY_BYTES} or more"
        )

    @lru_cache(_CACHED)
    def hashed(kind: str, name: str) -> str:
        """``user-5f1c...``; a hash stays what it is, and so does a missing name."""
        prefix = f"{kind}-"
        if not name or re.fullmatch(rf"{prefix}[0-9a-f]{{{_DIGITS}}}", name):
            return name
        text = f"{kind}\0{name}".encode("utf-8", "surrogatepass")
        return prefix + hmac.digest(key, text, hashlib.sha256).hex()[:_DIGITS]

    return hashed
