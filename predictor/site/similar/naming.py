"""The names of a job as a history keeps them, so that similar runs are found by hashes too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...optional import needs
from ..history import SETTINGS_NAME
from ..history.hashing import site_hash
from .memory import Naming, as_they_are
from .request import JobRequest

if TYPE_CHECKING:
    from ..history.settings import HistorySettings


def naming_at(home: Path) -> Naming:
    """What the settings in a home say; raises HistoryError where its key cannot be used."""
    if not (home / SETTINGS_NAME).exists():
        return as_they_are
    with needs("history"):
        from ..history.settings import stored_settings
    return naming_of(stored_settings())


def naming_of(settings: HistorySettings) -> Naming:
    """Clear names, or their hashes by the key of the site."""
    if settings.anonymise == "none" or settings.site_key is None:
        return as_they_are
    hashed = site_hash(settings.site_key)

    def kept(job: JobRequest) -> JobRequest:
        names = settings.anonymise == "users-and-names"
        return replace(
            job,
            user=hashed("user", job.user),
            account=hashed("account", job.account),
            name=hashed("name", job.name) if names else job.name,
            script=hashed("script", job.script),
            command="",
            directory=hashed("directory", job.directory),
        )

    return kept
