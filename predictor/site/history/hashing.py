"""Keyed hashes in place of names: HMAC-SHA256 with a key of the site.

Equal names stay equal, and without the key nobody can try names against a hash.
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

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

LEAST_KEY_BYTES = 16
_DIGITS = 20  # 80 bits: no two names of a site meet
_CACHED = 2**16

Hash = Callable[[str, str], str]
Named = TypeVar("Named", bound="DataclassInstance")


def site_hash(site_key: Path) -> Hash:
    """What hashes a name of a kind by the key in a file; raises HistoryError for a bad one."""
    return hasher(site_key_of(site_key))


def hasher(key: bytes) -> Hash:
    """What hashes names by a key, and lets hashes pass."""

    @lru_cache(_CACHED)
    def hashed(kind: str, name: str) -> str:
        """``user-5f1c...``; a hash stays what it is, and so does a missing name."""
        prefix = f"{kind}-"
        if not name or re.fullmatch(rf"{prefix}[0-9a-f]{{{_DIGITS}}}", name):
            return name
        text = f"{kind}\0{name}".encode("utf-8", "surrogatepass")
        return prefix + hmac.digest(key, text, hashlib.sha256).hex()[:_DIGITS]

    return hashed


def without_clear_names(job: Named, hashed: Hash, *, job_name: bool) -> Named:
    """A job or request with hashes for its user, account, script, directory, and its own name."""
    told = ("user", "account", "script", "directory", *(["name"] if job_name else []))
    return replace(job, **{field: hashed(field, getattr(job, field)) for field in told})


def site_key_of(path: Path) -> bytes:
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
