"""One training from before its first step to its end: predict, measure, report, record.

Beside the followers of trainers stands that of a loop of one's own.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median, quantiles
from types import TracebackType
from typing import Any, Self, TypeVar

from ..estimate.prediction import Prediction
from ..job.training_job import TrainingJob
from ..site.history.run import JobState
from ..site.step_rate import StepReport, write_report
from ..units import duration, span
from . import trainer_settings
from .record import job_id_here, record, report_path, wanted, write_last_words
from .trainer_settings import TrainerSettings

REFINE_STEPS = 20
WRITE_EVERY_S = 30.0
LEVEL = 0.95
PREFIX = "precision-time:"
Result = TypeVar("Result")
Batch = TypeVar("Batch")

SKIPPED = 5  # allocation, autotuning and compilation fall into the first steps
WINDOW = 100
_log = logging.getLogger(__name__)


class HostTime:
    """Where the times of steps come from: the host's monotonic clock."""

    def now(self) -> Any:
        """A mark at the end of what was launched so far."""
        return time.perf_counter()

    def ready(self, mark: Any) -> bool:
        """Whether that end was reached; never waits."""
        return True

    def between(self, first: Any, last: Any) -> float:
        """Seconds between two marks that were reached."""
        return float(last - first)


class CudaTime(HostTime):
    """Events in the current CUDA stream of this process.

    A GPU runs behind the host, so the host's time between two steps is that of the launches until
    the queue is full, and reading the device's state with a synchronisation would drain the queue.
    An event is put into the stream at the end of each step, and looked at some steps later, when
    the device has passed it: the time between two is the device's own, waits for input included.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def now(self) -> Any:
        """An event that was just put into the stream."""
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def ready(self, mark: Any) -> bool:
        """Whether the device has passed the event."""
        return bool(mark.query())

    def between(self, first: Any, last: Any) -> float:
        """Seconds on the device."""
        return float(first.elapsed_time(last)) / 1e3


def source_here() -> HostTime:
    """CUDA events where torch has started CUDA in this process, else the host's clock."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        return CudaTime(torch)
    return HostTime()


class StepClock:
    """Seconds of the last ``WINDOW`` steps, the first ``SKIPPED`` left out.

    A step with a pause in it (evaluation, checkpoint) is none of them: what it took beyond the
    median counts as ``paused_s``.
    """

    def __init__(self, source: HostTime) -> None:
        self.seconds: deque[float] = deque(maxlen=WINDOW)
        self.measured = 0
        self._source = source
        self._waiting: deque[tuple[Any, bool]] = deque()
        self._last = source.now()
        self._passed = 0
        self._pausing = False
        self._pauses_s: list[float] = []

    def mark(self) -> None:
        """A step ended; looks at earlier marks that the device has reached, and never waits."""
        self._waiting.append((self._source.now(), self._pausing))
        self._pausing = False
        while self._waiting and self._source.ready(self._waiting[0][0]):
            self._take(*self._waiting.popleft())

    def pause(self) -> None:
        """The step under way holds something that is no step."""
        self._pausing = True

    @property
    def step_s(self) -> float | None:
        """Median seconds of recent steps, None before the first."""
        return median(self.seconds) if self.seconds else None

    @property
    def spread_s(self) -> float | None:
        """Seconds between the quartiles of recent steps, None for fewer than two."""
        if len(self.seconds) < 2:
            return None
        low, _, high = quantiles(self.seconds, n=4)
        return high - low

    @property
    def paused_s(self) -> float:
        """Seconds of all pauses."""
        step_s = self.step_s or 0.0
        return sum(max(0.0, took_s - step_s) for took_s in self._pauses_s)

    def _take(self, mark: Any, paused: bool) -> None:
        took_s = self._source.between(self._last, mark)
        self._last = mark
        self._passed += 1
        if not (math.isfinite(took_s) and took_s > 0):
            return
        if paused:
            self._pauses_s.append(took_s)
        elif self._passed > SKIPPED:
            self.seconds.append(took_s)
            self.measured += 1


class Guard:
    """Runs what must not raise; what failed once is said in one warning and not tried again."""

    def __init__(self) -> None:
        self._failed: set[str] = set()

    def run(self, what: str, act: Callable[[], Result]) -> Result | None:
        """The result of ``act``, None where it fails or failed before; ``what`` names it."""
        if what in self._failed:
            return None
        try:
            return act()
        except Exception as error:
            self._failed.add(what)
            with contextlib.suppress(Exception):
                said = " ".join(f"{error or type(error).__name__}".split())
                _log.warning("%s %s is off: %s", PREFIX, what, said)
            return None

    def say(self, text: str) -> None:
        """One line on stdout, for whoever started the training."""
        self.run("printing", lambda: print(PREFIX, text, flush=True))


class TrainingFollower:
    """Follows one training at a time; none of its methods raises, or does anything in a fork.

    ``given`` are fields of TrainingJob by which the user corrects the trainer, ``directory`` is
    where the step report goes.
    """

    def __init__(self, given: Mapping[str, Any], *, directory: Path | None = None) -> None:
        self._given = given
        self._directory = directory
        self._process = 0  # that follows, none before a training and after it

    def begin(self, tell: Callable[[], TrainerSettings]) -> None:
        """The first step comes next; ``tell`` asks the trainer for its settings."""
        self._guard, self._process = Guard(), 0
        self._guard.run("following the training", lambda: self._begin(tell()))

    def step(self) -> None:
        """An optimizer step ended."""
        if self._process == os.getpid():
            self._guard.run("measuring steps", self._step)

    def pause(self) -> None:
        """What comes before the next end of a step is no step: an evaluation, a checkpoint."""
        if self._process == os.getpid():
            self._clock.pause()

    def end(self, state: JobState = JobState.COMPLETED) -> None:
        """The training ended; a second call does nothing."""
        if self._process == os.getpid():
            self._process = 0
            self._guard.run("the end of the training", lambda: self._end(state))

    def _begin(self, trainer: TrainerSettings) -> None:
        if not trainer.leader:
            return
        self._trainer, self._steps = trainer, 0
        self._job: TrainingJob | None = None
        self._found = self._guard.run("the prediction", self._predict)
        self._total = trainer.total_steps or trainer_settings.whole(self._given.get("steps"))
        if self._found is not None:
            self._total = self._total or self._found.steps
            self._guard.say(_expectation(self._found))
        self._path = report_path(self._directory)
        self._started_s, self._written_at = time.time(), time.monotonic()
        self._refined = False
        self._clock = StepClock(source_here())
        self._process = os.getpid()

    def _predict(self) -> Prediction:
        from ..estimate.store import load_predictor

        self._job = trainer_settings.job_of(self._trainer, self._given)
        return load_predictor().predict(self._job)

    def _step(self) -> None:
        self._steps += 1
        self._clock.mark()
        if not self._refined and self._clock.measured >= REFINE_STEPS:
            self._refined = True
            self._refine()
        elif self._refined and time.monotonic() - self._written_at >= WRITE_EVERY_S:
            self._write()

    def _refine(self) -> None:
        step_s = self._clock.step_s
        predicted = "" if self._found is None else f", {duration(self._found.step_s)} predicted"
        left = ""
        if step_s is not None and self._total:
            rest_s = step_s * max(0, self._total - self._trainer.first_step - self._steps)
            left = f"; {duration(rest_s)} to go without evaluation and checkpoints"
        self._guard.say(f"{duration(step_s)} a step measured{predicted}{left}")
        self._write()

    def _write(self) -> StepReport | None:
        """Write the report, if there is one."""
        self._written_at = time.monotonic()
        report = self._guard.run("the step report", self._report)
        if report is not None:
            self._guard.run("the step report", lambda: write_report(self._path, report))
        return report

    def _report(self) -> StepReport | None:
        """None where the length or the step time is not known."""
        step_s, step = self._clock.step_s, self._trainer.first_step + self._steps
        if step_s is None or not self._total:
            return None
        return StepReport(
            step=step,
            total_steps=max(step, self._total),
            step_s=step_s,
            job_id=job_id_here(),
            step_s_spread=self._clock.spread_s,
            first_step=self._trainer.first_step,
            started_s=self._started_s,
            written_s=time.time(),
            paused_s=self._clock.paused_s,
        )

    def _end(self, state: JobState) -> None:
        report = self._write()
        if report is None:
            return
        self._guard.run("the termination message", lambda: write_last_words(report))
        if wanted() and self._job is not None:
            job = self._job
            self._guard.run(
                "the history",
                lambda: record(
                    job,
                    self._found,
                    report,
                    submit_s=self._started_s,
                    end_s=time.time(),
                    state=state,
                ),
            )


def _expectation(found: Prediction) -> str:
    level, job = found.interval(LEVEL), found.job
    of = f"{job.model} on {job.gpus} x {job.gpu} at {job.precision.value}"
    share = f"{LEVEL:.0%}"
    if found.steps is None or found.total_s is None:
        return f"{of}: {duration(found.step_s)} a step ({share}: {span(level.low_s, level.high_s)})"
    low_s, high_s = level.low_s * found.steps, level.high_s * found.steps
    return f"{of}: {duration(found.total_s)} predicted ({share}: {span(low_s, high_s)})"


class TrainingLoop:
    """Follows a loop that calls ``step()``, or one over ``over(loader)``.

    ``job`` are fields of TrainingJob: ``model``, ``precision``, ``batch_size``, ``steps`` or
    ``epochs`` ... GPU and number of GPUs are those of the process group where they are not given.
    ``with TrainingLoop(...) as loop:`` ends it also where the training fails.

    Works without torch, and never raises into the loop.
    """

    def __init__(self, *, directory: Path | None = None, first_step: int = 0, **job: Any) -> None:
        self._job = job
        self._first_step = first_step
        self._follower = TrainingFollower(job, directory=directory)
        self._begun = False

    def __enter__(self) -> Self:
        self._begin(None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._follower.end(state_of(error))

    def step(self) -> None:
        """An optimizer step ended on this rank."""
        self._begin(None)
        self._follower.step()

    def over(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches, ``grad_accum`` of them a step; the end of the loop ends the following.

        A length that was not given is that of ``batches``. A loop left early counts as cancelled.
        """
        stated = self._job.get("grad_accum", 1)
        every = stated if isinstance(stated, int) and stated > 0 else 1
        self._begin(_length(batches, every))
        ended = JobState.CANCELLED
        try:
            for number, batch in enumerate(batches, start=1):
                yield batch
                if number % every == 0:
                    self._follower.step()
            ended = JobState.COMPLETED
        finally:
            self._follower.end(ended)

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """What runs inside is no step: an evaluation, a checkpoint."""
        self._begin(None)
        self._follower.pause()
        yield

    def end(self) -> None:
        """The training ended."""
        self._follower.end()

    def _begin(self, length: int | None) -> None:
        if self._begun:
            return
        self._begun = True
        self._follower.begin(lambda: self._tell(length))

    def _tell(self, length: int | None) -> TrainerSettings:
        given = self._job.keys() & {"steps", "epochs"}
        total = trainer_settings.whole(self._job.get("steps")) if given else length
        return TrainerSettings(
            precision=trainer_settings.float32_here(),
            gpus=trainer_settings.gpus_here(),
            gpus_per_node=trainer_settings.launched("LOCAL_WORLD_SIZE"),
            total_steps=total,
            first_step=self._first_step,
            leader=trainer_settings.rank_here() == 0,
        )


def state_of(error: BaseException | None) -> JobState:
    """How a training ended that raised ``error``."""
    if error is None:
        return JobState.COMPLETED
    return JobState.FAILED if isinstance(error, Exception) else JobState.CANCELLED


def _length(batches: Iterable[object], every: int) -> int | None:
    try:
        return len(batches) // every  # type: ignore[arg-type]
    except TypeError:  # an endless stream
        return None
