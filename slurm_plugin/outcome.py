"""Everything decided of one job, and the answer that says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from predictor.estimate.fits import Fit
from predictor.identify.grammar import stated_text
from predictor.identify.stated import Stated
from predictor.site.similar.estimate import Estimate
from predictor.site.similar.request import JobRequest
from predictor.units import duration, gibibytes

from .config import SlurmPolicy
from .estimate import JobPredictions
from .limit import MINUTE_S, LimitChoice
from .mark import JobMark
from .message import job_words, lines, log_words, slurm_time, time_words
from .order import OrderField, delay_s, others_points
from .partition_choice import Elsewhere
from .placement import Placed
from .protocol import HookAnswer
from .similar_runs import MIB, NO_RUNS, estimate_words
from .soft_time import SoftTime

# The quantile that the queue is ordered by, as ``precision-time backtest`` plays it.
ORDER_LEVEL = 0.5


def too_large(found: Sequence[Fit]) -> str:
    """What a job needs of a GPU's memory, where none of those it may get holds it; else empty."""
    if not found or any(fit.ok for fit in found):
        return ""
    best = max(found, key=lambda fit: fit.have_bytes)
    needs, has = gibibytes(best.need_bytes), gibibytes(best.have_bytes)
    return f"as stated it needs {needs} a GPU, which has {has}: it may run out of memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDecision:
    """One decision with all it rests on.

    ``own`` is the user's limit as the mark has it, ``wait_s`` when the job would start, ``queue``
    where the order of the queue is written; both None where that is not known. ``sooner_s`` is how
    much earlier it would start with a limit of ``enough_min``.
    """

    policy: SlurmPolicy
    stated: Stated
    estimate: JobPredictions
    placed: Placed
    choice: LimitChoice
    job: JobRequest
    similar: Estimate
    own: str
    queue: OrderField | None = None
    soft: SoftTime | None = None
    wait_s: float | None = None
    enough_min: int | None = None
    sooner_s: float = 0.0
    elsewhere: Elsewhere | None = None
    version: str = ""
    ttl_s: int = 60

    def answer(self) -> HookAnswer:
        """What the hook is to do and to say."""
        place, choice = self.placed, self.choice
        moved = self.elsewhere is not None and self.elsewhere.applied
        order = self.queue if self.policy.order.mode == "apply" else None
        per_s = order.points_per_s if order else 0.0
        return HookAnswer(
            log=self._log(),
            order=order.name if order else None,
            delay=round(per_s * self._delay_s) if order else None,
            other_delay=others_points(self.policy.order, order) if order else None,
            since=order.since if order else None,
            message=self._message(),
            time_limit=choice.limit_min,
            time_min=self.soft.time_min if self.soft and self._softens else None,
            features=place.features,
            prefer=place.prefer,
            gres=place.gres,
            partition=self.elsewhere.partition if self.elsewhere and moved else None,
            admin_comment=self.mark().text(),
            ttl_s=self.ttl_s,
        )

    def mark(self) -> JobMark:
        """What is written on the job."""
        limit, predictions = self.choice.found, self.estimate.predictions
        slowest = limit.slowest if limit else predictions[0] if predictions else None
        memory = self.job.memory_bytes
        mark = JobMark(
            own=self.own,
            limit=self.choice.limit_min,
            soft=self.soft.time_min if self.soft and self._softens else None,
            cap=self.soft.whole_min if self.soft and self._softens else None,
            expected_s=self.similar.expected_s,
            upper_s=self.similar.quantile_s(0.95),
            cpus=self.job.cpus,
            mem=None if memory is None else memory // MIB,
            script=self.job.script or None,
            version=self.version or None,
            job=stated_text(self.stated),
        )
        if slowest is None:  # similar runs alone
            return mark
        return replace(
            mark,
            p50_s=limit.median_s if limit else None,
            hi_s=limit.quantile_s if limit else None,
            q=self.policy.limits.quantile,
            step_s=slowest.step_s,
            gpu=slowest.job.gpu,
            gpus=slowest.job.gpus,
            tier=slowest.tier.value,
        )

    @property
    def _delay_s(self) -> float:
        return delay_s(self.policy.order, self.similar.order_s(ORDER_LEVEL))

    def _message(self) -> str | None:
        clauses = [self._similar(), self.estimate.advice, too_large(self.estimate.fits)]
        clauses += [self.choice.clause, self._too_long()]
        if self.soft is not None:
            verb = "backfill plans it" if self._softens else "backfill would plan it"
            clauses.append(
                f"{verb} as {slurm_time(self.soft.time_min)}, it may run its whole limit"
            )
        if self.wait_s is not None:
            clauses.append(f"starts in about {duration(self.wait_s)}" if self.wait_s else "")
        if self._told():
            clauses.append(self.placed.note)
        if self.elsewhere is not None:
            clauses.append(self.elsewhere.note)
        return lines(self._headline(), clauses, self.stated.problems)

    @property
    def _softens(self) -> bool:
        return self.policy.soft_time.mode == "apply"

    def _too_long(self) -> str:
        """What an honest limit would save, where the user's own is far too long."""
        if self.enough_min is None or self.choice.clause:
            return ""
        about = f"about {duration(self.sooner_s)} " if self.sooner_s >= MINUTE_S else ""
        text = slurm_time(self.enough_min)
        return f"your limit is long, {text} would do and may start {about}earlier"

    def _similar(self) -> str:
        """What similar runs say, where there is no time by physics or runs of the user's own."""
        if self.choice.found is not None and not self.similar.runs:
            return ""
        words = estimate_words(self.similar)
        return words or ("" if self.estimate.predictions or self.estimate.advice else NO_RUNS)

    def _told(self) -> bool:
        """True where placement is worth a word: it did something, or there is a prediction."""
        return self.placed.reason in ("placed", "preferred", "advice") or bool(
            self.estimate.predictions
        )

    def _headline(self) -> str:
        predictions = self.estimate.predictions
        if not predictions:
            return ""
        limit = self.choice.found
        job = limit.slowest.job if limit else predictions[0].job
        words = job_words(job, self.estimate.labels)
        if "precision" not in self.stated.values:
            words += " (precision not stated)"
        if limit is None:
            return words
        return f"{words}: {time_words(limit, self.policy.limits.quantile)}"

    def _log(self) -> str:
        predictions, limit = self.estimate.predictions, self.choice.found
        first = limit.slowest if limit else predictions[0] if predictions else None
        return log_words(
            model=self.stated.model or self.stated.unknown_model,
            precision=first.job.precision.value if first else self.stated.values.get("precision"),
            gpus=first.job.gpus if first else None,
            gpu=first.job.gpu if first else None,
            tier=first.tier.value if first else None,
            p50_s=round(limit.median_s) if limit else None,
            hi_s=round(limit.quantile_s) if limit else None,
            expected_s=round(self.similar.expected_s),
            runs=self.similar.runs or None,
            delay_s=round(self._delay_s) if self.policy.order.mode != "off" else None,
            limit=self.choice.limit_min,
            soft=self.soft.time_min if self.soft else None,
            reason=self.choice.reason,
            place=self.placed.reason,
            elsewhere=self.elsewhere.partition if self.elsewhere else None,
        )
