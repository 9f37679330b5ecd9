"""Whose runs teach nothing, by the word of an administrator.

``<home>/quarantine.yaml``, a list; each entry names one user, job or cluster as
``precision-time history show`` prints it (hashed where names are hashed)::

    - user: mallory
      reason: tried out a debug build for a month
    - job: "4711"
    - cluster: testbed
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ... import trusted_files as files
from ...errors import RulesError
from .site_run import SiteRun

FILE_NAME = "quarantine.yaml"
KINDS = ("user", "job", "cluster")


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The users, jobs and clusters of a file."""

    users: frozenset[str] = frozenset()
    jobs: frozenset[str] = frozenset()
    clusters: frozenset[str] = frozenset()

    def holds(self, candidate: SiteRun) -> bool:
        """True where its user, job or cluster is named."""
        ended = candidate.run.ended
        return (
            ended.user in self.users or ended.job_id in self.jobs or ended.cluster in self.clusters
        )


def read_quarantine(home: Path | None = None) -> Quarantine:
    """The file, empty where there is none.

    Raises RulesError for an entry that is invalid, ArtifactError where others can write it.
    """
    path = (files.home() if home is None else home) / FILE_NAME
    try:
        raw = yaml.safe_load(files.trusted(path).read_bytes())
    except FileNotFoundError:
        return Quarantine()
    except (OSError, yaml.YAMLError, RecursionError) as error:
        raise RulesError(f"{path}: {error}") from None
    if raw is not None and not isinstance(raw, list):
        raise RulesError(f"{path}: expected a list of entries")
    pairs = [_entry(f"{path}: entry {n}", entry) for n, entry in enumerate(raw or [], 1)]
    named = [frozenset(value for kind, value in pairs if kind == wanted) for wanted in KINDS]
    return Quarantine(*named)


def _entry(where: str, raw: Any) -> tuple[str, str]:
    """What kind it names, and the name."""
    kinds = [kind for kind in KINDS if isinstance(raw, dict) and kind in raw]
    if len(kinds) != 1 or set(raw) - {*kinds, "reason"}:
        raise RulesError(f"{where}: expected one of {', '.join(KINDS)}, and a reason")
    value = raw[kinds[0]]
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value):
        raise RulesError(f"{where}: invalid {kinds[0]}={value!r}; expected a name")
    return kinds[0], str(value)
