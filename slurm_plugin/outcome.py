"""Everything decided of one job, and what is said of it: to the hook, the user and the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from predictor.estimate.fits import Fit
from predictor.estimate.prediction import Prediction
from predictor.identify.stated import SCRIPT, Stated
from predictor.site.similar.estimate import Estimate
from predictor.site.similar.request import JobRequest
from predictor.units import MINUTE_S, about, gibibytes

from .ahead import NewJob
from .config import SlurmPolicy
from .estimate import JobPredictions
from .limit import MIB, LimitChoice, SoftTime, estimate_words, no_runs, slurm_time, too_short
from .mark import JobMark
from .order import OrderField, told_order
from .placement import Elsewhere, Placed
from .protocol import HookAnswer

MAX_PROBLEMS = 4


def too_large(found: Sequence[Fit]) -> str:
    """What a job needs of a GPU's memory, where none of those it may get holds it; else empty."""
    if not found or any(fit.ok for fit in found):
        return ""
    best = max(found, key=lambda fit: fit.have_bytes)
    needs, has = gibibytes(best.need_bytes), gibibytes(best.have_bytes)
    return f"it needs {needs} a GPU, which has {has}: it may run out of memory"


def log_words(**words: object) -> str:
    """``key=value`` words; what is None is skipped, blanks in a value become underscores."""
    return " ".join(
        f"{key}={'_'.join(str(value).split()) or '-'}"
        for key, value in words.items()
        if value is not None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDecision:
    """One decision with all it rests on.

    ``own_min`` is the user's limit, ``new`` the job as the queue before it sees it, ``wait_s`` when
    it would start, ``queue`` where the order of the queue is written; None where there is none.
    ``back_s`` is how long it stands back there, ``sooner_s`` how much earlier it would start with a
    limit of ``enough_min``.
    """

    policy: SlurmPolicy
    stated: Stated
    estimate: JobPredictions
    placed: Placed
    choice: LimitChoice
    job: JobRequest
    similar: Estimate
    own_min: float | None
    queue: OrderField | None
    back_s: float
    soft: SoftTime | None
    new: NewJob | None
    wait_s: float | None
    enough_min: int | None
    sooner_s: float
    elsewhere: Elsewhere | None
    version: str
    ttl_s: int

    def answer(self) -> HookAnswer:
        """What the hook is to do and to say."""
        other, mark = self.elsewhere, self._mark()
        return HookAnswer(
            log=self._log(),
            message=self._message(),
            time_limit=self.choice.limit_min,
            time_min=mark.soft,
            features=self.placed.features,
            prefer=self.placed.prefer,
            gres=self.placed.gres,
            partition=other.partition if other is not None and other.applied else None,
            admin_comment=mark.text(),
            ttl_s=self.ttl_s,
            **told_order(self.policy.order, self.queue, self.back_s),
        )

    @property
    def _slowest(self) -> Prediction | None:
        """On the slowest GPU the job may get."""
        limit = self.choice.found
        return limit.slowest if limit else next(iter(self.estimate.predictions), None)

    def _mark(self) -> JobMark:
        """What is written on the job."""
        limit, slowest, memory = self.choice.found, self._slowest, self.job.memory_bytes
        found: dict[str, Any] = {}
        if self.soft is not None and self.policy.soft_time.mode == "apply":
            found = {"soft": self.soft.time_min, "cap": self.soft.whole_min}
        if slowest is not None:
            found |= {
                "p50_s": limit.median_s if limit else None,
                "hi_s": limit.quantile_s if limit else None,
                "steps_s": self.choice.steps_s,
                "q": self.policy.limits.quantile,
                "step_s": slowest.step_s,
                "gpu": slowest.job.gpu,
                "gpus": slowest.job.gpus,
                "tier": slowest.tier.value,
            }
        return JobMark(
            own="none" if self.own_min is None else f"{self.own_min:.0f}",
            limit=self.choice.limit_min,
            expected_s=self.similar.expected_s,
            upper_s=self.similar.quantile_s(0.95),
            mean_s=self.similar.mean_s,
            cpus=self.job.cpus,
            mem=None if memory is None else memory // MIB,
            script=self.job.script or None,
            command=self.job.command or None,
            version=self.version or None,
            job=self.job.asked,
            **found,
        )

    def _message(self) -> str | None:
        """One line for the decision, one for each thing that could not be used."""
        known, placed = bool(self.estimate.predictions), self.placed
        said = estimate_words(self.similar, self.policy.limits.quantile)
        if not (said or known or self.estimate.advice):
            learns = self.policy.history.url is not None
            said = no_runs(learns=learns, script=self.job.script)
        clauses = [", ".join(part for part in (self._headline(), said) if part)]
        clauses += [self.estimate.advice, too_large(self.estimate.fits), self.choice.clause]
        if self.choice.found is not None:
            clauses.append(too_short(self.policy.limits, self.similar, self.estimate))
        if self.enough_min is not None and not self.choice.clause:
            sooner = f"{about(self.sooner_s)} " if self.sooner_s >= MINUTE_S else ""
            text = slurm_time(self.enough_min)
            clauses.append(f"your limit is long, {text} would do and may start {sooner}earlier")
        if self.soft is not None:
            verb = "plans" if self.policy.soft_time.mode == "apply" else "would plan"
            text = slurm_time(self.soft.time_min)
            clauses.append(f"backfill {verb} it as {text}, it may run its whole limit")
        if self.wait_s:
            applies = self.policy.order.mode == "apply" and self.queue is not None
            later = ", later if shorter jobs come" if applies else ""
            clauses.append(f"starts in {about(self.wait_s)}{later}")
        if known or placed.reason in ("placed", "preferred", "advice"):
            clauses.append(placed.note)
        if self.elsewhere is not None:
            clauses.append(self.elsewhere.note)
        first = "; ".join(clause for clause in clauses if clause)
        # Of a network that nobody knows the flags of its own script are none of our business.
        told = self.stated.problems
        if self.stated.model is None:
            told = tuple(p for p in told if p.field in ("model", "command") or p.origin != SCRIPT)
        rest = [f"{p.origin}: {p.text}" for p in told[:MAX_PROBLEMS]]
        return "\n".join(line for line in (first, *rest) if line) or None

    def _headline(self) -> str:
        """``resnet50, mixed_fp16_fp32, 8x a100``."""
        if self._slowest is None:
            return ""
        job = self._slowest.job
        gpus = "|".join(self.estimate.labels) or job.gpu
        words = f"{job.model}, {job.precision.value}, {job.gpus}x {gpus}"
        return words + ("" if "precision" in self.stated.values else " (precision not stated)")

    def _log(self) -> str:
        limit, first = self.choice.found, self._slowest
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
            delay_s=round(self.back_s) if self.policy.order.mode != "off" else None,
            limit=self.choice.limit_min,
            soft=self.soft.time_min if self.soft else None,
            reason=self.choice.reason,
            place=self.placed.reason,
            elsewhere=self.elsewhere.partition if self.elsewhere else None,
        )
