"""How a site keeps its history: where, how long, and under which names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from ...errors import HistoryError
from ...settings import Section, read_settings
from ...trusted_files import home, trusted
from . import SETTINGS_NAME

VARIABLE = "PRECISION_TIME_HISTORY"
FILE_NAME = "history.sqlite"

Anonymise = Literal["none", "users", "users-and-names"]


class HistorySettings(Section):
    """``history.yaml`` in the home of precision-time, or the section ``history`` of a daemon.

    ``url`` is a path (SQLite) or a URL of SQLAlchemy. ``users`` hashes users and accounts, and
    drops what users wrote freely and submit lines; ``users-and-names`` hashes the names of jobs
    too. Both need ``site_key``, a file only its owner can read. ``keep_days`` is what ``forget``
    keeps.
    """

    url: str | None = None
    keep_days: float | None = Field(default=None, gt=0)
    anonymise: Anonymise = "none"
    site_key: Path | None = None

    @model_validator(mode="after")
    def _key_given(self) -> Self:
        if self.anonymise != "none" and self.site_key is None:
            raise ValueError(
                f"anonymise: {self.anonymise} needs site_key, a file with a secret of the site"
                " (`(umask 077; openssl rand -hex 32 > site.key)` makes one)"
            )
        return self


def stored_settings() -> HistorySettings:
    """Those in ``history.yaml``, the defaults where there is none.

    Raises HistoryError naming file and field, ArtifactError where others could have written it.
    """
    path = home() / SETTINGS_NAME
    try:
        trusted(path)
    except FileNotFoundError:
        return HistorySettings()
    return read_settings(path, HistorySettings, HistoryError)


def history_url(given: str | None, settings: HistorySettings) -> str:
    """The first of what was given, ``$PRECISION_TIME_HISTORY``, the settings and the home."""
    return given or os.environ.get(VARIABLE) or settings.url or str(home() / FILE_NAME)
