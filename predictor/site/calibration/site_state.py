"""What daemons know of a site besides the predictor: fixed times and its runs, in one JSON file.

``<home>/site.json``, written by ``precision-time calibrate`` and read at every (re)load, so that no
decision waits for a database. It holds hashes of users and names, never the names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ... import trusted_files as files
from ...errors import ArtifactError
from ...job.training_job import SITE_PREFIX
from ...optional import needs
from ..history import SETTINGS_NAME
from ..history.anonymise import site_hash, without_clear_names
from ..history.run import Run
from ..similar.memory import Naming, SiteMemory, as_they_are
from ..similar.past_runs import PastRun, RunEnd
from ..similar.request import JobRequest, Similarity, TrainingLength
from ..similar.run_times import QuantileCoverage
from .run_reader import FixedTime, FixedTimes, fixed_times, of_cluster

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
    def learn(cls, runs: Sequence[Run]) -> SiteState:
        """From runs, oldest first."""
        memory = SiteMemory()
        memory.learn([past for run in runs if (past := PastRun.of(run)) is not None])
        return cls(fixed_times(runs), memory)

    def cluster(self, site: str) -> FixedTimes | None:
        """The fixed times of a site; without a name, of the only cluster there is."""
        clusters = {f.cluster for f in self.fixed}
        name = site.removeprefix(SITE_PREFIX) or (
            next(iter(clusters)) if len(clusters) == 1 else ""
        )
        return of_cluster(self.fixed, name)


def write_state(state: SiteState) -> Path:
    """Put the file in place of the one before; raises ArtifactError."""
    path = files.home() / FILE_NAME
    raw = {
        "format": FORMAT,
        "fixed": [asdict(f) for f in state.fixed],
        "memory": memory_as_dict(state.memory),
    }
    with files.exclusive(path.parent):
        files.replace_text(path, json.dumps(raw, allow_nan=False))
    return path


def read_state() -> SiteState:
    """The state, empty where there is none; raises ArtifactError for a file not to be trusted."""
    path = files.home() / FILE_NAME
    try:
        raw = json.loads(files.trusted(path).read_bytes())
        if raw["format"] != FORMAT:
            raise ValueError(f"format {raw['format']}, not {FORMAT}")
        fixed = tuple(
            FixedTimes(cluster=f["cluster"], **{n: f[n] and FixedTime(**f[n]) for n in _FIXED})
            for f in raw["fixed"]
        )
        memory = memory_of(raw["memory"])
        memory.naming = naming_at(path.parent)
        return SiteState(fixed, memory)
    except FileNotFoundError:
        return SiteState()
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"{path} is not what `precision-time calibrate` writes ({error}): run it again"
        ) from None


# The latest runs are kept; a run of 50,000 others ago tells little of today.
MAX_RUNS = 50_000
_NAMES = tuple(field.name for field in fields(PastRun))
_FIXED = ("startup_s", "pause_share")


def memory_as_dict(memory: SiteMemory) -> dict[str, Any]:
    """Plain values for JSON; requests are kept once, and hold hashes in place of names."""
    requests: dict[JobRequest, int] = {}
    rows = []
    for run in memory.runs()[-MAX_RUNS:]:
        at = requests.setdefault(run.request, len(requests))
        length = None if run.length is None else astuple(run.length)
        told = (run.batch, length, run.rate_s, run.startup_s, run.predicted_s)
        rows.append([at, run.submit_s, run.end_s, run.run_s, int(run.ended), *told])
    return {
        "requests": [
            {name: value for name, value in asdict(request).items() if value not in ("", None)}
            for request in requests
        ],
        "runs": rows,
        "seen": [[kind.value, key, seen] for (kind, key), seen in memory.seen().items()],
        "coverage": memory.coverage.as_dict(),
        "errors": {"physics": [*memory.errors.physics], "runs": [*memory.errors.runs]},
    }


def memory_of(raw: Mapping[str, Any]) -> SiteMemory:
    """The inverse of ``memory_as_dict``; raises KeyError, TypeError or ValueError."""
    memory = SiteMemory()
    requests = []
    for told in raw["requests"]:
        length = None if told.get("length") is None else TrainingLength(**told["length"])
        requests.append(JobRequest(**told | {"length": length}))
    for at, submit_s, end_s, run_s, ended, batch, steps, *rest in raw["runs"]:
        length = None if steps is None else TrainingLength(*steps)
        values = (requests[at], submit_s, end_s, run_s, RunEnd(ended), batch, length, *rest)
        memory.add(PastRun(**dict(zip(_NAMES, values, strict=True))))
    memory.count_seen({(Similarity(kind), key): seen for kind, key, seen in raw["seen"]})
    memory.coverage = QuantileCoverage(raw["coverage"]["scores"], raw["coverage"]["moved"])
    memory.errors.physics.extend(raw["errors"]["physics"])
    memory.errors.runs.extend(raw["errors"]["runs"])
    return memory


def naming_at(home: Path) -> Naming:
    """Clear names, or their hashes by the key of the site, as the settings in a home say.

    Raises HistoryError where the key cannot be used.
    """
    if not (home / SETTINGS_NAME).exists():
        return as_they_are
    with needs("history"):
        from ..history.settings import stored_settings
    settings = stored_settings()
    if settings.anonymise == "none" or settings.site_key is None:
        return as_they_are
    hashed = site_hash(settings.site_key)
    names = settings.anonymise == "users-and-names"
    return lambda job: replace(without_clear_names(job, hashed, job_name=names), command="")
