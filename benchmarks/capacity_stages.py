"""One measured run of ``capacity.py`` in a process of its own: what each stage took, as JSON.

A stage is a function of ``predictor.site.capacity.report``, timed where the report calls it.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

if TYPE_CHECKING:
    from predictor.estimate.core import Predictor

SINCE_S, UNTIL_S = 1_736_121_600.0, 1_740_960_000.0
ADDED = "a100-sxm4-80gb", 8


@dataclass(frozen=True, slots=True)
class Stage:
    """What one part took; ``bytes`` is the most the process had held by its end."""

    name: str
    seconds: float
    cpu_s: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Clock:
    """The stages of a run, in the order in which they ended."""

    stages: list[Stage] = field(default_factory=list)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Times what is done inside."""
        began, worked = time.perf_counter(), time.process_time()
        yield
        size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        took = time.perf_counter() - began, time.process_time() - worked
        self.stages.append(Stage(name, *took, size))

    def around(self, module: object, *names: str) -> None:
        """Times every call of these functions of a module."""
        for name in names:
            setattr(module, name, self._timed(name.strip("_"), getattr(module, name)))

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any, **named: Any) -> Any:
            with self.stage(name):
                return function(*given, **named)

        return timed


def scan(path: Path, clock: Clock) -> None:
    """The least anything can do: read and add up."""
    import polars as pl

    hours = pl.col("gpus") * (pl.col("end_s") - pl.col("start_s"))
    with clock.stage("all"):
        pl.scan_parquet(path).group_by("gpu_type").agg(hours.sum()).collect()


def report(path: Path, clock: Clock) -> None:
    """The whole report as a page."""
    from predictor.site.capacity import facts
    from predictor.site.capacity import report as module
    from predictor.site.capacity.jobs import of_file
    from predictor.site.capacity.render.page import render_html
    from predictor.site.history.ingest import Period

    clock.around(facts, "hours_of", "splits", "waits", "limits", "predictions", "tensor_cores")
    clock.around(
        module,
        "jobs_of",
        "pools_of",
        "use",
        "configurations",
        "better",
        "forecasts",
        "cleared",
        "alternatives",
    )
    predictor = _predictor()
    with clock.stage("all"):
        period = Period(since_s=SINCE_S, until_s=UNTIL_S)
        found = module.make_report(of_file(path), period, predictor)
        with clock.stage("page"):
            render_html(found)


def whatif(path: Path, clock: Clock) -> None:
    """One change of a long period, replayed."""
    import polars as pl

    from predictor.planning.cost import Terms
    from predictor.site.capacity import whatif as module
    from predictor.site.capacity.configurations import Outlook
    from predictor.site.capacity.jobs import jobs_of, of_file, pools_of
    from predictor.site.history.ingest import Period
    from predictor.site.replay import Pool

    outlook = Outlook(_predictor())
    frame = of_file(path).frame
    until_s = float(frame.select(pl.col("end_s").max()).collect().item())
    clock.around(module, "configurations", "replay")
    with clock.stage("all"):
        jobs = jobs_of(frame, Period(since_s=SINCE_S, until_s=until_s))
        plan = module.ClusterChange(add=(Pool(name=ADDED[0], gpus=ADDED[1]),))
        module.what_if(jobs, plan, outlook, Terms(), pools_of(jobs.table, ()))


def _predictor() -> Predictor:
    from predictor.estimate.store import load_predictor

    return load_predictor()


def main() -> None:
    """Run one of the above on a file and print its stages."""
    clock = Clock()
    runs = {each.__name__: each for each in (scan, report, whatif)}
    runs[sys.argv[1]](Path(sys.argv[2]), clock)
    *parts, whole = clock.stages
    print(json.dumps(asdict(whole) | {"stages": [asdict(part) for part in parts]}))


if __name__ == "__main__":
    main()
