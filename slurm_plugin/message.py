"""What the user reads at sbatch and the admin greps in the log."""

from __future__ import annotations

from collections.abc import Iterable

from predictor.estimate.limits import Limit
from predictor.identify.stated import Problem
from predictor.job.training_job import TrainingJob
from predictor.units import duration

MAX_PROBLEMS = 4


def slurm_time(minutes: int) -> str:
    """Minutes as Slurm prints them: ``3:55:00``, ``2-00:30:00``."""
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{days}-{hour:02d}:{minute:02d}:00" if days else f"{hour}:{minute:02d}:00"


def job_words(job: TrainingJob, labels: Iterable[str]) -> str:
    """``resnet50, mixed_fp16_fp32, 8x a100``."""
    gpus = "|".join(dict.fromkeys(labels)) or job.gpu
    return f"{job.model}, {job.precision.value}, {job.gpus}x {gpus}"


def time_words(limit: Limit, quantile: float) -> str:
    """``3 h 12 min (95 %: 3 h 41 min)``."""
    share = f"{100 * quantile:g} %"
    return f"{duration(limit.median_s)} ({share}: {duration(limit.quantile_s)})"


def lines(headline: str, clauses: Iterable[str], problems: Iterable[Problem]) -> str | None:
    """The message: one line for the decision, one for each thing that could not be used."""
    stated = [clause for clause in clauses if clause]
    first = ": ".join(part for part in (headline, "; ".join(stated)) if part)
    rest = [f"{p.origin}: {p.text}" for p in problems][:MAX_PROBLEMS]
    return "\n".join(line for line in (first, *rest) if line) or None


def log_words(**words: object) -> str:
    """``key=value`` words; what is None is skipped, blanks in a value become underscores."""
    return " ".join(
        f"{key}={'_'.join(str(value).split()) or '-'}"
        for key, value in words.items()
        if value is not None
    )
