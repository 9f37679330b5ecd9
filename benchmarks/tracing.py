"""Traces networks that the catalog builds too, and others that nobody lists.

Run with ``python benchmarks/tracing.py [NAME...]``; exits with 1 if a goal is missed. It needs the
extra ``trace``, transformers, and a fitted predictor in the store. Seconds are those of one core.
Step times are those of physics, without the residual, which knows only catalog models by name.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import click
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

from goals import Goal, all_kept
from trace_bench import text, vision
from trace_bench.reference import Reference
from trace_bench.unlisted import UNLISTED, Unlisted

from predictor.estimate.core import Predictor
from predictor.estimate.store import load_predictor
from predictor.graphs.catalog import Pairs, entry_of, graph_of
from predictor.graphs.operator import Direction, Graph, Kind, Workload
from predictor.job.precision import Precision
from predictor.job.training_job import TrainingJob
from predictor.measure.trace.tracer import trace

BATCH = 16
LAYERS = 6  # of transformers whose depth is one number: what is compared is a layer and the ends
GPU = "a100-sxm4-80gb"
PRECISIONS = ("fp32", "mixed_fp16_fp32")
FLOPS_GOAL = 0.01
SECONDS_GOAL = 30.0
HEADER = (
    f"{'network':28}{'weights':>9}{'FLOPs':>9}{'traffic':>8}{'launches':>9}{'fp32':>7}{'amp':>8}"
    f"{'traced in':>11}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One network: how far the trace is from the builder, as shares of the builder's figure."""

    name: str
    parameters_apart: int
    flops: float
    traffic: float
    launches: float
    steps: tuple[float, ...]
    seconds: float

    def __str__(self) -> str:
        shares = "".join(f"{100 * s:+7.1f}%" for s in (self.traffic, self.launches, *self.steps))
        return (
            f"{self.name:28}{self.parameters_apart:9d}{100 * self.flops:8.2f}%{shares}"
            f"{self.seconds:7.1f} s"
        )


def compared(reference: Reference, predictor: Predictor) -> Row:
    """Trace one network, and hold it against the builder at a batch size that was not traced."""
    with torch.device("meta"):
        network = reference.build(reference.sizes(layers=LAYERS))
    start = time.process_time()
    stored = trace(
        network,
        reference.examples(),
        name=f"own-{reference.name}".replace("_", "-"),
        seq_len=reference.seq_len,
    )
    seconds = time.process_time() - start
    entry = entry_of(reference.name)
    work = Workload(BATCH, seq_len=reference.seq_len, image_size=entry.image_size)
    ours = graph_of(stored.name, (), work)
    variant = reference.variant(layers=LAYERS)
    built = graph_of(reference.name, variant, work)
    return Row(
        name=reference.name,
        parameters_apart=ours.parameters - built.parameters,
        flops=worst_flops(ours, built),
        traffic=traffic(ours) / traffic(built) - 1,
        launches=launches(ours) / launches(built) - 1,
        seconds=seconds,
        steps=tuple(
            step_s(predictor, stored.name, (), reference, precision)
            / step_s(predictor, reference.name, variant, reference, precision)
            - 1
            for precision in PRECISIONS
        ),
    )


def worst_flops(ours: Graph, built: Graph) -> float:
    """The largest difference of any kind and direction of operator."""
    theirs = flops(built)
    found = flops(ours)
    return max(abs(found.get(k, 0.0) / theirs.get(k, 1.0) - 1) for k in {*found, *theirs})


def flops(graph: Graph) -> dict[tuple[Kind, Direction], float]:
    """FLOPs by kind and direction."""
    found: dict[tuple[Kind, Direction], float] = defaultdict(float)
    for operator in graph.operators:
        if operator.flops:
            found[operator.kind, operator.direction] += operator.flops * operator.count
    return found


def traffic(graph: Graph) -> float:
    """Elements read and written."""
    return sum((o.reads + o.writes) * o.count for o in graph.operators)


def launches(graph: Graph) -> float:
    """Device launches."""
    return sum(o.kernels * o.count for o in graph.operators)


def step_s(
    predictor: Predictor, model: str, variant: Pairs, reference: Reference, precision: str
) -> float:
    """Physical step time of one GPU, the same optimizer for both."""
    job = TrainingJob(
        model=model,
        gpu=GPU,
        gpus=1,
        batch_size=BATCH,
        precision=Precision(precision),
        seq_len=reference.seq_len,
        variant=variant,
        optimizer="adamw",
    )
    return float(predictor.predict(job).physical.step_s)


def unlisted_seconds(name: str, one: Unlisted, predictor: Predictor) -> float:
    """Seconds of a core from a network that nobody listed to its prediction."""
    start = time.process_time()
    stored = trace(
        one.build, one.examples(), name=f"own-{name}", seq_len=one.seq_len, loss=one.loss
    )
    predictor.predict(
        TrainingJob(
            model=stored.name,
            gpu=GPU,
            gpus=1,
            batch_size=BATCH,
            seq_len=one.seq_len,
            precision=Precision("mixed_bf16_fp32"),
        )
    )
    seconds = time.process_time() - start
    unknown = ", ".join(stored.model.unknown) or "none"
    click.echo(f"{name:28}{seconds:7.1f} s   priced by bytes alone: {unknown}")
    return seconds


def goals(rows: Sequence[Row], unlisted: Sequence[float]) -> list[Goal]:
    """What was asked of the tracer, and what it reached."""
    apart = sum(row.parameters_apart != 0 for row in rows)
    worst = max((row.flops for row in rows), default=0.0)
    slowest = max((*unlisted, *(row.seconds for row in rows)), default=0.0)
    return [
        Goal("weights exact", f"{len(rows) - apart} of {len(rows)}", not apart),
        Goal("FLOPs within 1 % in each pass", f"{100 * worst:.2f} %", worst <= FLOPS_GOAL),
        Goal("traced and predicted in 30 s", f"{slowest:.1f} s", slowest <= SECONDS_GOAL),
    ]


def show_spread(rows: Sequence[Row]) -> None:
    """Quartiles of the differences of step times."""
    for i, precision in enumerate(PRECISIONS):
        found = sorted(100 * row.steps[i] for row in rows)
        near = sum(abs(value) <= 10 for value in found)
        click.echo(
            f"step time, {precision}: median {median(found):+.1f} %, from {found[0]:+.1f} % to"
            f" {found[-1]:+.1f} %, {near} of {len(found)} within 10 %"
        )


@click.command()
@click.argument("names", nargs=-1)
def main(names: tuple[str, ...]) -> None:
    """Compare all networks, or those named."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    predictor = load_predictor()
    with tempfile.TemporaryDirectory() as home:
        os.environ["PRECISION_TIME_HOME"] = home
        click.echo(HEADER)
        rows = []
        for reference in (*text.NETWORKS, *vision.NETWORKS):
            if not names or reference.name in names:
                rows.append(compared(reference, predictor))
                click.echo(rows[-1])
        unlisted = [
            unlisted_seconds(name, one, predictor)
            for name, one in UNLISTED.items()
            if not names or name in names
        ]
    if rows:
        show_spread(rows)
    sys.exit(not all_kept(goals(rows, unlisted)))


if __name__ == "__main__":
    main()
