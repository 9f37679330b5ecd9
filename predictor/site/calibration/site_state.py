"""What daemons know of a site besides the predictor: fixed times and its runs, in one JSON file.

``<home>/site.json``, written by ``precision-time calibrate`` and read at every (re)load, so that no
decision waits for a database. It holds hashes of users and names, never the names.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ... import trusted_files as files
from ...errors import ArtifactError
from ...job.training_job import SITE_PREFIX
from ..history.run import Run
from ..similar.memory import SiteMemory
from ..similar.naming import naming_at
from ..similar.past_runs import PastRun
from ..similar.stored import memory_as_dict, memory_of
from .fixed_times import FixedTime, FixedTimes, fixed_times, of_cluster

FILE_NAME = "site.json"
FORMAT = 2
# Of a longer history the latest runs teach how long jobs run.
TEACHING_RUNS = 100_000


@dataclass(frozen=True, slots=True)
class SiteState:
    """Fixed times of every cluster, and the memory of its runs."""

    fixed: tuple[FixedTimes, ...] = ()
    memory: SiteMemory = field(default_factory=SiteMemory)

    @classmethod
    def learn(cls, runs: Iterable[Run]) -> SiteState:
        """From runs, oldest first, read once."""
        latest: deque[PastRun] = deque(maxlen=TEACHING_RUNS)
        fixed = fixed_times(_remembered(runs, latest))
        memory = SiteMemory()
        memory.learn(latest)
        return cls(fixed, memory)

    def cluster(self, site: str) -> FixedTimes | None:
        """The fixed times of a site; without a name, of the only cluster there is."""
        clusters = {f.cluster for f in self.fixed}
        name = site.removeprefix(SITE_PREFIX) or (
            next(iter(clusters)) if len(clusters) == 1 else ""
        )
        return of_cluster(self.fixed, name)


def write_state(state: SiteState, home: Path | None = None) -> Path:
    """Put the file in place of the one before; raises ArtifactError."""
    root = files.home() if home is None else home
    path = root / FILE_NAME
    raw = {
        "format": FORMAT,
        "fixed": [asdict(f) for f in state.fixed],
        "memory": memory_as_dict(state.memory),
    }
    with files.exclusive(root):
        files.replace_text(path, json.dumps(raw, allow_nan=False))
    return path


def read_state(home: Path | None = None) -> SiteState:
    """The state, empty where there is none; raises ArtifactError for a file not to be trusted."""
    path = (files.home() if home is None else home) / FILE_NAME
    try:
        raw = json.loads(files.trusted(path).read_bytes())
        if raw["format"] not in (1, FORMAT):
            raise ValueError(f"format {raw['format']}, not {FORMAT}")
        fixed = tuple(_fixed(f) for f in raw["fixed"])
        # Format 1 has no runs: the next calibration learns them from the history.
        memory = memory_of(raw["memory"]) if "memory" in raw else SiteMemory()
        memory.naming = naming_at(path.parent)
        return SiteState(fixed, memory)
    except FileNotFoundError:
        return SiteState()
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"{path} is not what `precision-time calibrate` writes ({error}): run it again"
        ) from None


def _remembered(runs: Iterable[Run], latest: deque[PastRun]) -> Iterator[Run]:
    for run in runs:
        past = PastRun.of(run)
        if past is not None:
            latest.append(past)
        yield run


def _fixed(raw: Mapping[str, Any]) -> FixedTimes:
    return FixedTimes(
        cluster=raw["cluster"],
        group=raw["group"],
        startup_s=_time(raw["startup_s"]),
        pause_share=_time(raw["pause_share"]),
    )


def _time(raw: Mapping[str, Any] | None) -> FixedTime | None:
    return None if raw is None else FixedTime(**raw)
