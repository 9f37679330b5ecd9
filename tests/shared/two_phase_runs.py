"""Published totals of BERT pre-training in two phases, and what a predictor says of them.

Run as a program it fits all shipped rows twice, with and without those of the models, and prints
every run beside both predictions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from predictor.estimate.core import Predictor
from predictor.estimate.fitting import Fitted, fit, fit_priced
from predictor.estimate.measurement import parse
from predictor.estimate.residual.model import HyperparameterSets
from predictor.job.training_job import TrainingJob, parse_pairs
from profiles.tables import measurements

MODEL = "bert-large"
# NVIDIA's recipe: 7,820 steps, nine tenths of them of 65,536 samples of 128 tokens, the rest of
# half the batch and 512 tokens (DeepLearningExamples, scripts/run_pretraining*.sh; the rows of
# PyTorch state 7038 and 1563).
GLOBAL_BATCHES = (65536, 32768)
STEPS = (7038, 1563)


@dataclass(frozen=True, slots=True)
class Run:
    """One published run: its job with phases, and the seconds of both."""

    id: str
    job: TrainingJob
    total_s: float


def runs() -> list[Run]:
    """Every row of the model with a total whose batches are those of the recipe."""
    rows = [
        row
        for row in measurements()
        if row["model"] == MODEL and row["total_s"] and "phase1_seq" in row["options"]
    ]
    return [run for row in rows for run in _run(row)]


def _run(row: Mapping[str, str]) -> Iterator[Run]:
    options, gpus = dict(parse_pairs(row["options"])), int(float(row["gpus"]))
    phases = []
    for number, (batch, steps) in enumerate(zip(GLOBAL_BATCHES, STEPS, strict=True), start=1):
        accum = int(options[f"phase{number}_accum"])
        one = options.get(f"phase{number}_batch_per_gpu")
        whole = options.get(f"phase{number}_accumulated_batch_per_gpu")
        if one is None and whole is None:
            return
        micro = int(one) if one is not None else int(whole or 0) // accum
        if micro * accum * gpus != batch:
            return
        seq_len = int(options[f"phase{number}_seq"])
        phases.append(
            {"steps": steps, "batch_size": micro, "grad_accum": accum, "seq_len": seq_len}
        )
    # The row as a measurement of its first phase says framework, fabric and site.
    first = phases[0]
    row_ = {**row, "batch_per_gpu": str(first["batch_size"]), "total_s": "1", "steps": "1"}
    (read,) = parse([row_])
    assert read.job is not None
    plain = tuple(pair for pair in read.job.options if not pair[0].startswith("phase"))
    job = read.job.but(options=plain, grad_accum=1, phases=tuple(phases))
    yield Run(row["id"], job, float(row["total_s"]))


def held_out(fitted: Fitted, hyper: HyperparameterSets) -> Predictor:
    """A predictor that no row of the model taught anything."""
    kept = [p for p in fitted.priced if p.measurement.job.model != MODEL]
    return fit_priced(fitted.predictor.steps, kept, hyper=hyper).predictor


def errors(predictor: Predictor, asked: Sequence[Run]) -> np.ndarray:
    """predicted / published - 1 of the total of every run."""
    found = predictor.predict_many([run.job for run in asked])
    return np.array([(p.total_s or 0.0) / r.total_s - 1 for p, r in zip(found, asked, strict=True)])


def table(asked: Sequence[Run], seen: np.ndarray, unseen: np.ndarray) -> str:
    """One line a run, and the medians."""
    head = f"{'run':<44}{'published h':>12}{'seen':>9}{'held out':>10}"
    lines = [
        f"{run.id:<44}{run.total_s / 3600:>12.2f}{a:>+9.1%}{b:>+10.1%}"
        for run, a, b in zip(asked, seen, unseen, strict=True)
    ]
    sums = (
        f"{'median of the absolute error':<56}{np.median(abs(seen)):>9.1%}"
        f"{np.median(abs(unseen)):>10.1%}"
    )
    return "\n".join([head, *lines, sums])


def main() -> None:
    """Print the table of a full fit."""
    from predictor.estimate.fitting import stored_hyperparameters

    asked, fitted = runs(), fit()
    other = held_out(fitted, stored_hyperparameters())
    print(table(asked, errors(fitted.predictor, asked), errors(other, asked)))
    for name, one in (("seen", fitted.predictor), ("held out", other)):
        for level in (0.5, 0.95):
            inside = [
                (p.total_quantile_s((1 - level) / 2) or 0)
                <= r.total_s
                <= (p.total_quantile_s((1 + level) / 2) or 0)
                for p, r in zip(one.predict_many([r.job for r in asked]), asked, strict=True)
            ]
            print(f"{name}: {np.mean(inside):.0%} in the interval of {level:.0%}")


if __name__ == "__main__":
    main()
