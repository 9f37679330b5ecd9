"""A site's memory as plain values and back, for the file that daemons read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, astuple, fields
from typing import Any

from .coverage import QuantileCoverage
from .memory import SiteMemory
from .past_runs import PastRun, RunEnd
from .request import JobRequest, Similarity, TrainingLength

# The latest runs are kept; a run of 50,000 others ago tells little of today.
MAX_RUNS = 50_000
_NAMES = tuple(field.name for field in fields(PastRun))


def memory_as_dict(memory: SiteMemory) -> dict[str, Any]:
    """Plain values for JSON; requests are kept once, and hold hashes in place of names."""
    requests: dict[JobRequest, int] = {}
    rows = [
        [requests.setdefault(run.request, len(requests)), *_row(run)]
        for run in memory.runs()[-MAX_RUNS:]
    ]
    return {
        "requests": [_plain(request) for request in requests],
        "runs": rows,
        "seen": [[kind.value, key, seen] for (kind, key), seen in memory.seen().items()],
        "coverage": memory.coverage.as_dict(),
        "errors": {
            "physics": list(memory.errors.physics),
            "runs": list(memory.errors.runs),
        },
    }


def memory_of(raw: Mapping[str, Any]) -> SiteMemory:
    """The inverse of ``memory_as_dict``; raises KeyError, TypeError or ValueError."""
    memory = SiteMemory()
    requests = [_request(values) for values in raw["requests"]]
    for at, *values in raw["runs"]:
        memory.add(_run(requests[at], values))
    memory.count_seen({(Similarity(kind), key): seen for kind, key, seen in raw["seen"]})
    memory.coverage = QuantileCoverage(raw["coverage"]["scores"], raw["coverage"]["moved"])
    memory.errors.physics.extend(raw["errors"]["physics"])
    memory.errors.runs.extend(raw["errors"]["runs"])
    return memory


def _row(run: PastRun) -> list[Any]:
    length = None if run.length is None else astuple(run.length)
    told = (run.batch, length, run.rate_s, run.startup_s, run.predicted_s)
    return [run.submit_s, run.end_s, run.run_s, int(run.ended), *told]


def _run(request: JobRequest, values: list[Any]) -> PastRun:
    submit_s, end_s, run_s, ended, batch, length, *told = values
    length = None if length is None else TrainingLength(*length)
    numbers = (submit_s, end_s, run_s, RunEnd(ended), batch, length, *told)
    return PastRun(request=request, **dict(zip(_NAMES[1:], numbers, strict=True)))


def _plain(request: JobRequest) -> dict[str, Any]:
    return {name: value for name, value in asdict(request).items() if value not in ("", None)}


def _request(values: Mapping[str, Any]) -> JobRequest:
    length = values.get("length")
    return JobRequest(**{**values, "length": None if length is None else TrainingLength(**length)})
