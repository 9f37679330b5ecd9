"""Everything decided of one job, and the answer that says it."""

from __future__ import annotations

from dataclasses import dataclass

from predictor.identify.grammar import stated_text
from predictor.identify.stated import Stated

from .config import SlurmPolicy
from .estimate import JobPredictions
from .limit import LimitChoice
from .mark import JobMark
from .message import job_words, lines, log_words, time_words
from .partition_choice import Elsewhere
from .placement import Placed
from .protocol import HookAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDecision:
    """One decision with all it rests on."""

    policy: SlurmPolicy
    stated: Stated
    estimate: JobPredictions
    placed: Placed
    choice: LimitChoice
    elsewhere: Elsewhere | None = None
    version: str = ""
    ttl_s: int = 60

    def answer(self) -> HookAnswer:
        """What the hook is to do and to say."""
        place, choice = self.placed, self.choice
        moved = self.elsewhere is not None and self.elsewhere.applied
        return HookAnswer(
            log=self._log(),
            message=self._message(),
            time_limit=choice.limit_min,
            time_min=choice.time_min,
            features=place.features,
            prefer=place.prefer,
            gres=place.gres,
            partition=self.elsewhere.partition if self.elsewhere and moved else None,
            admin_comment=self.mark().text() if self._written else None,
            ttl_s=self.ttl_s,
        )

    def mark(self) -> JobMark:
        """What is written on the job."""
        limit, predictions = self.choice.found, self.estimate.predictions
        slowest = limit.slowest if limit else predictions[0] if predictions else None
        if slowest is None:  # similar runs alone
            job = stated_text(self.stated)
            return JobMark(limit=self.choice.limit_min, version=self.version or None, job=job)
        return JobMark(
            limit=self.choice.limit_min,
            p50_s=limit.median_s if limit else None,
            hi_s=limit.quantile_s if limit else None,
            q=self.policy.limits.quantile,
            step_s=slowest.step_s,
            gpu=slowest.job.gpu,
            gpus=slowest.job.gpus,
            tier=slowest.tier.value,
            version=self.version or None,
            job=stated_text(self.stated),
        )

    @property
    def _written(self) -> bool:
        """True where there is something to remember of the decision."""
        return bool(self.estimate.predictions) or self.choice.limit_min is not None

    def _message(self) -> str | None:
        clauses = [self.estimate.advice, self.choice.clause]
        if self._told():
            clauses.append(self.placed.note)
        if self.elsewhere is not None:
            clauses.append(self.elsewhere.note)
        return lines(self._headline(), clauses, self.stated.problems)

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
            limit=self.choice.limit_min,
            reason=self.choice.reason,
            place=self.placed.reason,
            elsewhere=self.elsewhere.partition if self.elsewhere else None,
        )
