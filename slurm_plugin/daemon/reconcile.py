"""Pending jobs that were not decided at submit, or changed since: limit, features, order, mark.

A job is found by the mark that the hook or a late answer left on it, by having none, or by asking
for something else than before while it has the limit we set. Commands are called a few times a
pass, however many jobs there are, updates in pieces, so that slurmctld has time for others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import shutil
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, replace
from errno import ENOSPC
from operator import itemgetter

from predictor.identify.grammar import parse_text
from predictor.site.history.cells import MIB, memory_bytes, whole

from ..cluster import Cluster, Partition
from ..config import SlurmPolicy
from ..errors import SourceError
from ..mark import JOB_HEAD, PREFIX, JobMark, parse_mark
from ..nodes import gpu_request
from ..order import BASE, MOST, SINCE_S, OrderField, order_field, others_points
from ..protocol import HookAnswer, HookRequest, PartitionRequest, encode_request
from ..sources.commands import Commands
from ..sources.text import table
from ..sources.words import minutes, stated, unix_s
from .decisions import Decisions

# A pass that writes for longer than EVERY_S begins anew, with who has come since.
EVERY_S, SETTLE_S = 15.0, 0.5
ANSWER_S = 30.0  # for one decision, behind others
TRIES = 3
PIECE, BREATH_S = 50, 0.05
AT_ONCE = 4  # pieces: others are decided while one is read or written
MAX_SCRIPT, LEAST_FREE_BYTES = 65_536, 1 << 20
PER = ("job", "node", "task", "socket")
FIELDS = (
    "JobID,ArrayJobID,ArrayTaskID,HetJobID,HetJobOffset,UserID,UserName,Account,QOS,Name,Comment,"
    "admin_comment,Partition,TimeLimit,MinTime,Feature,prefer,ReqNodes,Reservation,WorkDir,"
    "Command,MinCpus,MinMemory,NumNodes,NumTasks,Nice,PriorityLong,SubmitTime,BatchFlag,"
    "tres-per-job,tres-per-node,tres-per-task,tres-per-socket,State"
)
# What a user may change of a pending job that its time rests on.
CHANGES = ("Comment", "NumNodes", "NumTasks", *(f"tres-per-{of}" for of in PER))
# What becomes of a job: where it runs, the decision that rests on that, its place in the queue.
PLACED, DECIDED, ORDERED = "placed", "decided", "ordered"
Update = tuple[str, str, str]  # job, what becomes of it, what scontrol is to change
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PendingJob:
    """A record of the queue: its fields, the mark on it, and what its place in the queue is."""

    row: Mapping[str, str]
    mark: JobMark | None
    site_factor: int | None

    @property
    def asks(self) -> tuple[str, ...]:
        """What its time rests on."""
        return tuple(self.row[name] for name in CHANGES)

    @property
    def limit_min(self) -> int | None:
        """Its limit, None for UNLIMITED."""
        return minutes(self.row["TimeLimit"])

    @property
    def is_ours(self) -> bool:
        """Whether it has the limit that we set."""
        limit = None if self.mark is None else self.mark.limit
        return limit is not None and limit == self.limit_min

    @property
    def stands_back(self) -> bool:
        """Whether its nice is one of ours: about the seconds from SINCE_S to its submission."""
        since_s = (unix_s(self.row["SubmitTime"]) or 0) - SINCE_S
        return 0 < since_s < 2 * int(self.row["Nice"] or 0) <= MOST

    def own_min(self, partitions: Iterable[Partition]) -> float | None:
        """The limit of its user, inf for UNLIMITED; None where it has a default, or ours.

        The mark tells whether it had one at submit: any other than a default was set since.
        """
        unset, defaults = self.mark is not None and self.mark.own == "none", set[int | None]()
        if unset:
            defaults = {part.default_min or part.max_min for part in partitions}
        if self.is_ours or self.limit_min in defaults:
            return None
        return math.inf if self.limit_min is None else float(self.limit_min)

    @property
    def runs(self) -> bool:
        """Whether it started before it was decided."""
        return self.row["State"] == "RUNNING"

    @property
    def is_held(self) -> bool:
        """Whether it is; to change its nice would release it under priority/basic."""
        return self.row["PriorityLong"] == "0"

    @property
    def name(self) -> str:
        """What updates call it: of an array the tasks that wait, of a het job this component.

        Others may run, or ask for something else.
        """
        if (offset := self.row["HetJobOffset"]).isdecimal():
            return f"{self.row['HetJobID']}+{offset}"
        tasks = self.row["ArrayTaskID"].partition("%")[0]
        array = tasks not in ("", "N/A")
        return f"{self.row['ArrayJobID']}_[{tasks}]" if array else self.row["JobID"]


@dataclass(slots=True)
class _Known:
    """What was done about a job: tries, and what it asked for then."""

    tries: int = 0
    left: bool = False
    asks: tuple[str, ...] | None = None


@dataclass(eq=False)
class Reconciler:
    """Looks at the queue at start, when something was finished late, and every EVERY_S.

    ``policy`` may be replaced; ``told`` hears what became of each job.
    """

    policy: SlurmPolicy
    view: Callable[[], Cluster | None]
    decisions: Decisions
    told: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._soon, self._stop = threading.Event(), threading.Event()
        self._known: dict[str, _Known] = defaultdict(_Known)
        self._trouble = ""
        self._thread = threading.Thread(target=self._work, name="reconcile", daemon=True)

    def start(self) -> None:
        """Begin with a pass."""
        self._thread.start()

    def soon(self) -> None:
        """Look before the next turn."""
        self._soon.set()

    def close(self, timeout_s: float = 5.0) -> None:
        """End it after the update under way."""
        self._stop.set()
        self._soon.set()
        self._thread.join(timeout_s)

    def _work(self) -> None:
        while not self._stop.is_set():
            self._soon.clear()
            try:
                self.look()
                self._trouble = ""
            except SourceError as error:
                if str(error) != self._trouble:  # said when it begins
                    _log.warning("pending jobs cannot be looked at: %s", error)
                self._trouble = str(error)
            except Exception:
                _log.exception("a look at the pending jobs failed")
            self._soon.wait(EVERY_S)
            self._stop.wait(SETTLE_S)

    def look(self) -> None:
        """One pass; raises SourceError."""
        cluster = self.view()
        if cluster is None:
            return
        commands = Commands.of(self.policy.slurm)
        order = order_field(cluster.settings) if self.policy.order.mode == "apply" else None
        jobs = in_turns(pending_jobs(commands, late=True))
        for name in self._known.keys() - {job.name for job in jobs}:
            del self._known[name]
        over = threading.Event()

        def updates_of(piece: Sequence[PendingJob]) -> list[tuple[PendingJob, Update]]:
            if over.is_set() or self._stop.is_set():
                return []
            scripts = self._scripts(commands, piece)
            lines = ((job, self._line(job, cluster, order, scripts)) for job in piece)
            return [(job, line) for job, line in lines if line]

        until_s, written = time.monotonic() + EVERY_S, 0
        pieces = [jobs[start : start + PIECE] for start in range(0, len(jobs), PIECE)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for found in pool.map(updates_of, pieces):
                self._write(commands, updates := _unchanged(commands, found))
                written += len(updates)
                if written and time.monotonic() > until_s:
                    over.set()
        if over.is_set():
            self.soon()

    def _scripts(self, commands: Commands, jobs: Sequence[PendingJob]) -> Mapping[str, str]:
        """The batch scripts of those that are to be decided anew, all by one command."""
        asked = [j.row["JobID"] for j in jobs if j.row["BatchFlag"] == "1" and self._is_open(j)]
        if not asked:
            return {}
        found: dict[str, str] = {}
        try:
            with tempfile.TemporaryDirectory(prefix="precision-time-") as directory:
                text = "".join(f"write batch_script {name} {directory}/{name}\n" for name in asked)
                commands.feed(text, "scontrol", "-Q")
                if shutil.disk_usage(directory).free < LEAST_FREE_BYTES:  # some may be cut off
                    raise OSError(ENOSPC, os.strerror(ENOSPC))
                for name in asked:
                    with contextlib.suppress(OSError), open(f"{directory}/{name}", "rb") as file:
                        found[name] = file.read(MAX_SCRIPT).decode("utf-8", "replace")
        except OSError as error:
            raise SourceError(f"their scripts cannot be kept for a moment: {error}") from None
        return found

    def _is_changed(self, job: PendingJob) -> bool:
        """Whether it has our limit, and asks for something else than that rests on."""
        mark, known = job.mark, self._known[job.name].asks
        if mark is None or not job.is_ours:
            return False
        if known is not None:
            return known != job.asks
        decided = parse_text(mark.job, "submit")
        stated_now = parse_text(stated(job.row["Comment"]), "comment").over(decided)
        wanted = gpu_request(request_of(job, ()))
        gpus = None if wanted is None or stated(job.row["tres-per-socket"]) else wanted.gpus
        return stated_now.values != decided.values or gpus not in (None, mark.gpus)

    def _is_open(self, job: PendingJob) -> bool:
        """Whether it has to be decided, and was not finished late."""
        mark, known = job.mark, self._known[job.name]
        if self._is_changed(job):
            return True
        if known.left or known.tries >= TRIES:
            return False
        if mark is None:
            return any("gpu" in job.row[f"tres-per-{of}"] for of in PER)
        return mark.later is not None and not self.decisions.later(mark.later)[0]

    def _line(
        self,
        job: PendingJob,
        cluster: Cluster,
        order: OrderField | None,
        scripts: Mapping[str, str],
    ) -> Update | None:
        """The update that a job needs; None for none."""
        mark, known = job.mark, self._known[job.name]
        if job.runs:
            return self._told_late(job, request_of(job, ()), scripts.get(job.row["JobID"]))
        if mark is not None and mark.soft is not None and mark.soft == job.limit_min:
            # Backfill had started it, and it was requeued: it gets its whole limit back, and what
            # backfill will start it with.
            whole = "UNLIMITED" if mark.cap in (None, float("inf")) else f"{mark.cap:.0f}"
            anew = quoted(replace(mark, soft=minutes(job.row["MinTime"]) or mark.soft).text())
            return job.name, DECIDED, f"TimeLimit={whole} AdminComment={anew}"
        request = request_of(job, cluster.partitions)
        changed, asks_gpus = self._is_changed(job), gpu_request(request) is not None
        undecided = asks_gpus and (mark is None or mark.later is not None or changed)
        ordered = order is None or job.site_factor is None or job.site_factor > 0
        if order is not None and order.name == "nice":
            ordered = job.stands_back or job.is_held
        if not changed:
            known.asks = job.asks
        if (not undecided or (known.left and not changed)) and ordered:
            return _reset(job) if order is None else None
        if known.tries >= TRIES and not changed:
            return None
        if not asks_gpus:
            assert order is not None
            return job.name, ORDERED, _place(job, order, others_points(self.policy.order, order))
        answer = self._answer(job, replace(request, script=scripts.get(job.row["JobID"])))
        if answer is None:
            return None
        known.asks = job.asks
        words: list[str] = []
        placing = _placing(job, answer, cluster.partitions) if undecided else ""
        if placing:  # a limit is for where the job runs: it follows once the job is there
            self.soon()
            return job.name, PLACED, placing
        if undecided and placing is not None:
            words += _decided(job, answer, request.time_limit)
            known.left |= mark is None and bool(stated(job.row["admin_comment"]))  # the site's
        known.left |= placing is None
        # Without an answer the hook wrote the place of a job of which nothing is known.
        rewritten = undecided and (job.site_factor or 0) >= BASE // 2
        if order is not None and (rewritten or not ordered):
            others = others_points(self.policy.order, order)
            words.append(_place(job, order, others if answer.delay is None else answer.delay))
        if not words:
            known.left |= not changed
            return None
        return job.name, ORDERED if placing is None or not undecided else DECIDED, " ".join(words)

    def _told_late(
        self, job: PendingJob, request: HookRequest, script: str | None
    ) -> Update | None:
        """Of a job that has started its estimate is written, for `slurm eta` and the history."""
        known, mark = self._known[job.name], job.mark
        if mark is None or known.left or known.tries >= TRIES:
            return None
        answer = self._answer(job, replace(request, script=script, time_limit=mark.own_min))
        found = parse_mark(answer.admin_comment) if answer is not None else None
        known.left |= answer is not None and found is None
        if found is None:
            return None
        found = replace(found, limit=mark.limit, soft=mark.soft, cap=mark.cap)
        return job.name, DECIDED, f"AdminComment={quoted(found.text())}"

    def _answer(self, job: PendingJob, request: HookRequest) -> HookAnswer | None:
        """The decision that was finished late, else one made now; None while it is being made."""
        if job.mark is not None and job.mark.later is not None:
            known, answer = self.decisions.later(job.mark.later)
            if answer is not None and (request.time_limit is None or not answer.time_limit):
                return answer
            if known and answer is None:
                return None
        if self._stop.is_set():
            return None
        line = encode_request(request)
        asked = asyncio.run_coroutine_threadsafe(self.decisions.decide_aside(line), self._loop)
        try:
            return asked.result(ANSWER_S)
        except (TimeoutError, CancelledError):
            return None

    def _write(self, commands: Commands, updates: Sequence[Update]) -> None:
        if not updates:
            return
        status = _feed(commands, updates)
        for name, kind, _ in updates:
            self._known[name].tries += 1
            self.told(kind)
        _log.info("pending jobs made good: %d%s", len(updates), ", some refused" if status else "")
        self._stop.wait(BREATH_S)


def _unchanged(commands: Commands, updates: Sequence[tuple[PendingJob, Update]]) -> list[Update]:
    """Those of jobs that are as they were read: none has started, or got another limit, since."""
    fields = "JobID,State,TimeLimit"
    as_read = itemgetter(*fields.split(","))
    now = set(map(as_read, table(commands, fields, "-t", "PENDING,RUNNING") if updates else ()))
    return [update for job, update in updates if as_read(job.row) in now]


def _feed(commands: Commands, updates: Iterable[Update]) -> int:
    """All by one scontrol; its exit status."""
    lines = (f"update JobId={name} {words}" for name, _, words in updates)
    return commands.feed("".join(f"{x}\n" for x in lines if x.isprintable()), "scontrol", "-Q")


def pending_jobs(commands: Commands, *, late: bool = False) -> Iterator[PendingJob]:
    """The pending jobs, an array as one, ``late`` also those that started before they were decided.

    Raises SourceError.
    """
    places: dict[str, int] = {}  # site factors of those that are not held, where there are any
    with contextlib.suppress(SourceError):
        for line in commands.text("sprio", "-h", "-o", "%i %S").splitlines():
            words = line.split()
            if len(words) == 2 and words[1].isdecimal():
                places[words[0]] = int(words[1])
    lines = commands.text("squeue", "-h", "-a", "-t", "PENDING", "-o", "%A %x").splitlines()
    excluded = dict(words for line in lines if len(words := line.split()) == 2)
    for row in table(commands, FIELDS, "-t", "PENDING,RUNNING" if late else "PENDING"):
        row["excluded"] = excluded.get(row["JobID"], "")
        job = PendingJob(row, parse_mark(row["admin_comment"]), places.get(row["JobID"]))
        if not job.runs or (job.mark is not None and job.mark.later is not None):
            yield job


def in_turns(jobs: Iterable[PendingJob]) -> list[PendingJob]:
    """The first job of each user, then the second of each: no thousands of one keep up others."""
    turns: Counter[str] = Counter()

    def turn(job: PendingJob) -> int:
        turns[job.row["UserID"]] += 1
        return turns[job.row["UserID"]]

    return sorted(jobs, key=turn)


def request_of(job: PendingJob, partitions: tuple[Partition, ...]) -> HookRequest:
    """The request that the hook would have made, but for script and environment."""
    row = job.row
    text = {name: stated(value) or None for name, value in row.items()}
    asked = (text["Partition"] or "").split(",")
    memory = memory_bytes(row["MinMemory"], MIB, None, 1)
    return HookRequest(
        uid=int(row["UserID"]) if row["UserID"].isdecimal() else 0,
        user=row["UserName"],
        account=text["Account"],
        qos=text["QOS"],
        name=text["Name"],
        comment=text["Comment"],
        admin_comment=row["admin_comment"] if job.is_ours else None,
        partition=text["Partition"],
        partitions=tuple(
            PartitionRequest(p.name, p.default_min, p.max_min)
            for p in partitions
            if p.name in asked
        ),
        time_limit=job.own_min(partitions),
        time_min=minutes(row["MinTime"]) or None,
        min_nodes=whole(row["NumNodes"].partition("-")[0]) or None,
        num_tasks=whole(row["NumTasks"]) or None,
        min_cpus=whole(row["MinCpus"]) or None,
        min_mem_per_node=None if memory is None else round(memory / MIB),
        **{f"tres_per_{of}": text[f"tres-per-{of}"] for of in PER},  # type: ignore[arg-type]
        features=text["Feature"],
        prefer=text["prefer"],
        req_nodes=text["ReqNodes"],
        exc_nodes=text["excluded"],
        reservation=text["Reservation"],
        work_dir=text["WorkDir"],
        argv=tuple((text["Command"] or "").split()),
    )


def _placing(job: PendingJob, answer: HookAnswer, partitions: Sequence[Partition]) -> str | None:
    """What brings a job where its decision sees it, empty where it is there.

    None where that is not what it asks for now, or Slurm forbids it: as the types of GPUs.
    """
    row, words = job.row, []
    for name, now, wanted in (
        ("Features", row["Feature"], answer.features),
        ("Prefer", row["prefer"], answer.prefer),
    ):
        now = stated(now).replace(" ", "")
        if wanted and wanted != now:
            if now not in wanted or any(map(str.isspace, wanted)):
                return None
            words.append(f"{name}={wanted}")
    if answer.partition not in (None, row["Partition"]):
        known = {part.name: part for part in partitions}
        here, there = known.get(row["Partition"]), known.get(answer.partition or "")
        if here is None or there is None or not here.default:
            return None
        if (job.limit_min or math.inf) > (there.max_min or math.inf):
            return None
        words.append(f"Partition={there.name}")
    return None if answer.gres else " ".join(words)


def _decided(job: PendingJob, answer: HookAnswer, own_min: float | None) -> list[str]:
    """What a decision changes of a job, never a limit that may be its user's."""
    words = []
    if answer.time_limit and own_min is None:
        words.append(f"TimeLimit={answer.time_limit}")
    if answer.time_min and not minutes(job.row["MinTime"]) and not job.is_ours:
        words.append(f"TimeMin={answer.time_min}")
    comment = job.row["admin_comment"]
    free = not stated(comment) or comment.strip('"').startswith(PREFIX)
    if free and answer.admin_comment:
        words.append(f"AdminComment={quoted(answer.admin_comment)}")
    return words


def quoted(comment: str) -> str:
    """A mark as one word of a line for scontrol; what a user stated is dropped where it is odd."""
    if any(not c.isprintable() or c in "\"'\\" for c in comment):
        comment = comment.partition(JOB_HEAD)[0]
    return f'"{comment}"' if not set(comment) & set("\"'\\\n") else ""


def _place(job: PendingJob, order: OrderField, points: int) -> str:
    since = 0 if order.since is None else int((unix_s(job.row["SubmitTime"]) or 0) - order.since)
    back = points + max(0, since)
    if order.name == "nice":
        own = 0 if job.stands_back else int(job.row["Nice"] or 0)
        return f"Nice={min(back + own, MOST)}"
    return f"SiteFactor={BASE - min(back, 2 * MOST)}"


def _reset(job: PendingJob) -> Update | None:
    """An order that holds no longer is taken back: it would stay before, or behind, all to come."""
    if job.site_factor is not None and job.site_factor >= BASE // 2:
        return job.name, ORDERED, "SiteFactor=0"
    return (job.name, ORDERED, "Nice=0") if job.stands_back and not job.is_held else None


def clear_order(commands: Commands) -> tuple[int, str]:
    """Take back the order of jobs: how many, and which held ones keep it; raises SourceError."""
    jobs = list(pending_jobs(commands))
    updates = [found for job in jobs if (found := _reset(job)) is not None]
    held = [job for job in jobs if job.is_held]
    # Their site factor is not told, and Slurm lets it be changed.
    unknown = [(job.name, ORDERED, "SiteFactor=0") for job in held if not job.stands_back]
    if updates or unknown:
        _feed(commands, [*updates, *unknown])
    return len(updates), ",".join(job.name for job in held if job.stands_back)
