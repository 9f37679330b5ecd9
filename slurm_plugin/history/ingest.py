"""Ended jobs of accounting as records of the history."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

from predictor.errors import HistoryError
from predictor.identify.grammar import stated_text
from predictor.identify.identify import identify
from predictor.identify.rules import RuleContext, Rules
from predictor.identify.stated import Stated
from predictor.site.history.ingest import Item, LeftOut, Tally, Through, Unread, fill, period
from predictor.site.history.run import (
    EndedJob,
    LimitBy,
    Predicted,
    PrintedProgress,
    Reported,
    Run,
    reported,
)
from predictor.site.history.store import History
from predictor.site.progress.reader import ProgressKind
from predictor.site.similar.request import script_signature, wrapped_script

from ..cluster import SlurmJob, SlurmNode
from ..config import SlurmHardware, SlurmPolicy, rules_of
from ..limit import MIB, MINUTE_S
from ..mark import JobMark, parse_mark
from ..nodes import gpu_named, gpu_of
from ..sources.accounting import stored_scripts, streamed
from ..sources.choose import open_source
from ..sources.commands import Commands
from ..sources.text import SlurmSource
from ..watch.reports import progress_of
from ..watch.revision import usable_report

_KEPT = 65_536  # GRES types times nodes


class GpuNames:
    """Names GPUs as submit does: through the site's ``hardware`` and the nodes as they are today.

    The node of a job may be gone; then its GRES type alone tells.
    """

    def __init__(self, nodes: Iterable[SlurmNode], hardware: SlurmHardware) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._hardware = hardware
        self._named = lru_cache(maxsize=_KEPT)(self._name)

    def __call__(self, kind: str | None, node_names: tuple[str, ...]) -> str | None:
        """The GPU of a job by GRES type and nodes; the type where no GPU is known for it."""
        return self._named(kind, node_names[0] if node_names else "")

    def _name(self, kind: str | None, node_name: str) -> str | None:
        node = self._nodes.get(node_name)
        gres = () if node is None else node.gpus
        found = {
            None if (gpu := gpu_of(node, one, self._hardware)) is None else gpu.name
            for one in gres
            if node is not None and (kind is None or one.type in (kind, None))
        }
        if len(found) == 1 and (name := found.pop()) is not None:
            return name
        known = None if kind is None else gpu_named(kind, self._hardware)
        return kind if known is None else known.name


NO_GPUS = LeftOut("without GPUs")
SCRIPTS_AT_ONCE = 100
Row = EndedJob | Unread | Through


def records(
    policy: SlurmPolicy, since_s: float, until_s: float, reports: Reports | None = None
) -> Iterator[Item]:
    """The runs of all GPU jobs that ended in [since_s, until_s), a day after the other.

    ``reports`` are those that the jobs made while they ran. Raises SourceError where Slurm does not
    answer, RulesError where rules cannot be read.
    """
    commands, said = Commands.of(policy.slurm), reports or Reports()
    slurm = SlurmSource(commands)
    names = GpuNames(slurm.nodes(), policy.hardware)
    # Accounting does not tell whose a limit is: one that differs from the default is the user's.
    defaults = ((part.name, part.default_min or part.max_min) for part in slurm.partitions())
    default_s = {name: limit * MINUTE_S for name, limit in defaults if limit is not None}
    runs = Runs(rules_of(policy), default_s)
    rows = streamed(commands, since_s, until_s, names)
    for row, script in _with_scripts(commands, rows, stored=slurm.settings().stores_scripts):
        if isinstance(row, EndedJob):
            run = runs.run(row, said.of(row), said.printed(row), script) if row.gpus else NO_GPUS
            yield run
        else:
            yield row


def _with_scripts(
    commands: Commands, rows: Iterable[Row], *, stored: bool
) -> Iterator[tuple[Row, str]]:
    """Each row with the script that accounting has of an undecided batch job on GPUs."""
    waiting: list[EndedJob] = []

    def scripted() -> Iterator[tuple[Row, str]]:
        ids = tuple(dict.fromkeys(job.job_id for job in waiting))
        found = stored_scripts(commands, ids) if ids else {}
        yield from ((job, found.get(job.job_id, "")) for job in waiting)
        waiting.clear()

    def lacks_script(row: EndedJob) -> bool:
        if not stored or not row.gpus:
            return False
        program = row.submit_line.partition(" ")[0].rpartition("/")[2]
        mark = parse_mark(row.decision) or JobMark()  # while the daemon was away it says little
        # an array that never ran has no one id, which sacct would refuse
        return program == "sbatch" and "[" not in row.job_id and not (mark.script or mark.job)

    for row in rows:
        if isinstance(row, EndedJob) and lacks_script(row):
            waiting.append(row)
            if len(waiting) >= SCRIPTS_AT_ONCE:
                yield from scripted()
            continue
        if isinstance(row, Through):
            yield from scripted()
        yield row, ""
    yield from scripted()


# How late accounting may hear of an end: seldom a day, mostly within the hour.
OVERLAP_S, NEAR_S = 86400.0, 3600.0
FAR_EVERY_S = 3600.0

Open = Callable[[], History]


@dataclass(eq=False)
class SlurmFollower:
    """Looks at Slurm again and again, and keeps nothing that it could not read anew.

    What was not written is read again from the cursor on: while Slurm or the database is away,
    nothing is held but the last report of each running job. The first look is from ``since_s`` on.
    """

    open_history: Open
    since_s: float | None = None
    overlap_s: float = OVERLAP_S

    def __post_init__(self) -> None:
        self._history: History | None = None
        self._source: SlurmSource | None = None
        self._reports = Reports()
        self._far_s = -FAR_EVERY_S

    def look(self, policy: SlurmPolicy) -> Tally:
        """One look; raises SourceError and HistoryError, after which another may be taken.

        Ends that were heard of late are looked for an hour back, once an hour ``overlap_s`` back.
        """
        source = self._source = self._source or open_source(policy.slurm)
        self._reports.look(source.queue(), policy)
        far = time.monotonic() - self._far_s >= FAR_EVERY_S
        overlap_s = self.overlap_s if far else min(NEAR_S, self.overlap_s)
        try:
            history = self._history = self._history or self.open_history()
            name = cursor_of(source.settings().cluster_name)
            read = period(
                history.cursor(name), time.time(), since_s=self.since_s, overlap_s=overlap_s
            )
            found = records(policy, read.since_s, read.until_s, self._reports)
            tally = fill(history, found, cursor=name, since_s=read.since_s)
        except HistoryError:
            self._history = None  # opened anew with the next look
            raise
        self.since_s = None
        if far:
            self._far_s = time.monotonic()
        return tally


def cursor_of(cluster: str) -> str:
    """The name of a cluster's cursor: several may share a history."""
    return f"slurm:{cluster}"


MAX_KEPT = 100_000  # about 50 MB
Key = tuple[str, int]
Value = TypeVar("Value", Reported, PrintedProgress)


class Reports:
    """The last report of every running GPU job, kept until accounting tells its end.

    The oldest is forgotten first where there are too many. A report is the user's claim: one that
    cannot be of this run of the job is not taken.
    """

    def __init__(self) -> None:
        self._kept: dict[Key, Reported] = {}
        self._printed: dict[Key, PrintedProgress] = {}

    def look(self, queue: Iterable[SlurmJob], policy: SlurmPolicy) -> None:
        """Read what the running jobs say, with no more rights than their users have."""
        for job in queue:
            if job.state != "RUNNING" or not job.gpus:
                continue
            report = usable_report(job, policy, time.time())
            found = None if report is None else reported(report, job.start_s)
            if found is not None:
                _keep(self._kept, job, found)
                continue
            mark = parse_mark(job.admin_comment)
            reading = progress_of(job, "" if mark is None else mark.job)
            if reading.kind is ProgressKind.TRAINING and reading.unit is not None:
                printed = PrintedProgress(
                    unit=reading.unit,
                    at=reading.at,
                    total=reading.total,
                    seconds_per_unit=reading.seconds_per_unit,
                )
                _keep(self._printed, job, printed)

    def of(self, job: EndedJob) -> Reported | None:
        """What a job reported last, None where nothing usable is known."""
        return self._kept.get((job.job_id, int(job.submit_s)))

    def printed(self, job: EndedJob) -> PrintedProgress | None:
        """How far a job's output said it was when it was last seen running."""
        return self._printed.get((job.job_id, int(job.submit_s)))


def _keep(kept: dict[Key, Value], job: SlurmJob, value: Value) -> None:
    # accounting names a component of a het job by its number or by its own id
    for name in {job.label, str(job.job_id)}:
        key = (name, int(job.submit_s))
        kept.pop(key, None)
        kept[key] = value
    while len(kept) > MAX_KEPT:
        del kept[next(iter(kept))]


DECISION = "decision"
_KEPT_TEXTS = 8192  # that many jobs share
# -t 30, --time=30, -t30; accounting keeps the words of a submit line with blanks between them
_OWN_LIMIT = re.compile(r"(?<=\s)-(?:t\s*|-time[=\s])(?:\d|UNLIMITED|INFINITE)")


@dataclass(frozen=True, slots=True)
class StatedJob:
    """What is known of a job in the shared grammar, and where it was said; empty for nothing."""

    text: str = ""
    origin: str = ""


class Runs:
    """Makes runs of ended jobs.

    ``rules`` are the site's, ``default_s`` the default time limit of each partition that has one.
    """

    def __init__(
        self, rules: Rules | None = None, default_s: Mapping[str, float] | None = None
    ) -> None:
        self._rules = rules
        self._default_s = default_s or {}
        # Sweeps submit the same words many times, and reading them takes most of a row's time.
        self._identified = lru_cache(maxsize=_KEPT_TEXTS)(self._identify)

    def run(
        self,
        job: EndedJob,
        reported: Reported | None = None,
        printed: PrintedProgress | None = None,
        script: str = "",
    ) -> Run:
        """The run of a job; ``script`` is the text that accounting has of an undecided one."""
        mark = _mark(job.decision)
        if mark is not None:
            job = _as_submitted(job, mark)
        if text := script or wrapped_script(job.submit_line):
            job = replace(job, script=job.script or script_signature(text))
        context = RuleContext(
            name=job.name,
            user=job.user,
            account=job.account,
            partition=job.partition,
            command=job.submit_line,
            script=script,
        )
        asked = self.asked(job.stated, job.decision, context)
        return Run(
            ended=job,
            asked=asked.text,
            origin=asked.origin,
            limit_by=self._limit_by(job, mark),
            predicted=None if mark is None else _predicted(mark),
            reported=reported,
            printed=printed,
        )

    def asked(self, comment: str, decision: str, context: RuleContext) -> StatedJob:
        """What is known of a job by the decision written on it, its comment, or how it came.

        The command of ``context`` is the submit line, empty where it is not known.
        """
        mark = _mark(decision)
        if mark is not None and mark.job:
            return StatedJob(mark.job, DECISION)
        line = context.command
        if context.script:
            stated = identify(
                comment=comment, script=context.script, rules=self._rules, context=context
            )
            return _stated(stated)
        # without one of these a submit line starts nothing that could be known
        launched = line if ".py" in line or " --wrap" in line or "srun " in line else ""
        if self._rules is not None:
            return self._identified(comment, launched, context)
        if "=" not in comment and not launched:
            return StatedJob()
        return self._identified(comment, launched, None)

    def _identify(self, comment: str, launched: str, context: RuleContext | None) -> StatedJob:
        """By the script text or the words that a submit line starts, of which no quotes are kept.

        ``sbatch`` with a Python file, ``srun`` and ``salloc`` start words, ``--wrap`` a text.
        """
        script, words = wrapped_script(launched), launched.split()
        argv = ("srun", *words[1:]) if words and not script else ()
        stated = identify(
            comment=comment, script=script, argv=argv, rules=self._rules, context=context
        )
        return _stated(stated)

    def _limit_by(self, job: EndedJob, mark: JobMark | None) -> LimitBy | None:
        """Ours where the job ended with the limit we wrote; where nothing tells, None."""
        if mark is not None and mark.limit is not None and mark.limit * MINUTE_S == job.limit_s:
            return LimitBy.US
        if mark is not None and mark.own is not None:
            return LimitBy.DEFAULT if mark.own_min is None else LimitBy.USER
        if _OWN_LIMIT.search(job.submit_line):
            return LimitBy.USER
        default_s = self._default_s.get(job.partition)
        if default_s is None or job.limit_s is None:
            return None
        return LimitBy.DEFAULT if job.limit_s == default_s else LimitBy.USER


@lru_cache(maxsize=1)
def _mark(decision: str) -> JobMark | None:
    return parse_mark(decision) if decision else None


def _as_submitted(job: EndedJob, mark: JobMark) -> EndedJob:
    """The job with what the hook saw of it, by which jobs like it are found at submit."""
    limit_s = job.limit_s
    if mark.soft is not None and mark.cap is not None and limit_s is not None:
        limit_s = None if mark.cap == float("inf") else mark.cap * MINUTE_S  # before backfill
    return replace(
        job,
        limit_s=limit_s,
        script=mark.script or job.script,
        cpus=mark.cpus or job.cpus,
        memory_bytes=job.memory_bytes if mark.cpus is None else mark.mem and mark.mem * MIB,
    )


def _predicted(mark: JobMark) -> Predicted | None:
    """What a mark says was predicted; None for one that sets nothing but a limit."""
    if mark.step_s is None and mark.p50_s is None:
        return None
    limit = mark.limit if mark.first is None else mark.first  # at submit
    return Predicted(
        step_s=mark.step_s,
        median_s=mark.p50_s,
        upper_s=mark.hi_s,
        level=None if mark.hi_s is None else mark.q,
        gpu=mark.gpu,
        gpus=mark.gpus,
        version=mark.version,
        tier=mark.tier,
        limit_s=None if limit is None else float(limit * MINUTE_S),
    )


def _stated(stated: Stated) -> StatedJob:
    """With where the model was said, else where anything was."""
    origins = stated.origins
    origin = origins.get("model") or next(iter(origins.values()), "")
    return StatedJob(stated_text(stated), origin)
