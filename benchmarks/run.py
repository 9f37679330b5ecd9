"""Measures the budgets of precision-time on this machine and prints them as one table.

Every figure comes from a process of its own, so that imports, caches and memory of one do not
help another. Run with ``make bench``; exits with 1 if a budget is not kept.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

IMPORTS = 5  # runs; the fastest counts, as others only add what else the machine did
SHAPES = 40  # jobs no prediction was made for before
REPEATS = 200  # predictions of a job already seen
SAMPLING_S = 0.02  # between two looks at the memory of a measurement
MODELS = ("resnet50", "bert-large")
HEAVY = ("torch", "sklearn", "scipy", "pandas", "matplotlib")
FORBIDDEN = ("torch", "sklearn")
NEED_TORCH = {"trace"}  # the one public name that says so

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Budget:
    """A figure, what it may be at most, and how to print it (value times ``scale``)."""

    name: str
    key: str
    limit: float
    unit: str
    scale: float = 1.0


BUDGETS = (
    Budget("first answer, empty home", "answer_s", 2.0, "s"),
    Budget("import precision_time", "import_s", 0.3, "s"),
    Budget("full fit from profiles", "fit_s", 60.0, "s"),
    Budget("full fit, peak memory", "fit_bytes", 2 * 2**30, "MiB", 2**-20),
    Budget("artifact on disk", "artifact_bytes", 10e6, "MB", 1e-6),
    Budget("loaded predictor, memory", "loaded_bytes", 200 * 2**20, "MiB", 2**-20),
    Budget("prediction, new job shape", "cold_s", 3e-3, "ms", 1e3),
    Budget("the same, 405B model on 16,384 GPUs", "cold_405b_s", 5e-3, "ms", 1e3),
    Budget("prediction, seen job shape", "warm_s", 50e-6, "us", 1e6),
)


def tree_bytes(process: int) -> int:
    """Memory a process and its descendants hold now, what they share counted once; 0 if gone."""
    try:
        rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    own = int(rollup.split("\nPss:")[1].split()[0]) * 1024
    return own + sum(tree_bytes(int(child)) for child in children)


def seconds(action: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def measure_import() -> Figures:
    """Seconds until the public names are there, and which heavy packages that pulled in."""
    import importlib

    def public_names() -> None:
        package = importlib.import_module("precision_time")
        for name in set(package.__all__) - NEED_TORCH:
            getattr(package, name)

    figures = {"import_s": seconds(public_names)}
    return figures | {name: float(name in sys.modules) for name in HEAVY}


def measure_numpy() -> Figures:
    """Seconds to import numpy alone, the floor of every import above it."""
    import importlib

    return {"numpy_s": seconds(lambda: importlib.import_module("numpy"))}


def measure_fit() -> Figures:
    """Seconds of a fit, from the imports to the predictor stored and in use, and its bytes."""
    from predictor.estimate.store import fit_and_store

    fit_s = seconds(fit_and_store)
    files = (Path(os.environ["PRECISION_TIME_HOME"]) / "models").rglob("*")
    return {"fit_s": fit_s, "artifact_bytes": sum(path.stat().st_size for path in files) * 1.0}


def measure_first_answer() -> Figures:
    """Seconds of a command in a home that holds nothing, the start of Python included."""
    start = (sys.executable, "-c", "from predictor.cli.main import main; main()", "predict")
    job = ("resnet50", "--gpu", "a100-sxm4-80gb", "--precision", "amp", "--batch-size", "256")
    command = (*start, *job)
    return {"answer_s": seconds(partial(subprocess.run, command, check=True, capture_output=True))}


def measure_predictions() -> Figures:
    """A stored predictor: seconds to load, bytes once it has predicted, seconds a prediction."""
    from precision_time import TrainingJob, load_predictor
    from predictor.job.precision import Precision

    start = time.perf_counter()
    predictor = load_predictor()
    load_s = time.perf_counter() - start

    def job(model: str, batch_size: int) -> TrainingJob:
        return TrainingJob(
            model=model,
            precision=Precision.MIXED_FP16_FP32,
            gpu="a100-sxm4-80gb",
            gpus=8,
            batch_size=batch_size,
            steps=1000,
        )

    def largest(batch_size: int) -> TrainingJob:
        """Llama 3.1 405B as in table 4 of arXiv 2407.21783, with other batches."""
        by_hand = ("embedding", "loss")
        return TrainingJob(
            model="llama3.1-405b",
            precision=Precision.MIXED_BF16_FP32,
            gpu="h100-sxm5-80gb",
            gpus=16384,
            batch_size=batch_size,
            grad_accum=16,
            seq_len=8192,
            tensor_parallel=8,
            pipeline_parallel=16,
            virtual_stages=8,
            sequence_parallel=True,
            sharding="zero1",
            framework="megatron",
            steps=1000,
            options=tuple((f"account_for_{end}_in_pipeline_split", "on") for end in by_hand),
        )

    for model in MODELS:  # what a process does once is not part of a prediction
        predictor.predict(job(model, 7))
    predictor.predict(largest(1))
    jobs = [job(model, 8 * (i + 1)) for model in MODELS for i in range(SHAPES // len(MODELS))]
    cold = [seconds(partial(predictor.predict, job)) for job in jobs]
    warm = [seconds(partial(predictor.predict, jobs[-1])) for _ in range(REPEATS)]
    return {
        "load_s": load_s,
        "cold_s": statistics.median(cold),
        "cold_405b_s": statistics.median(
            seconds(partial(predictor.predict, largest(2 + i))) for i in range(SHAPES)
        ),
        "warm_s": statistics.median(warm),
        "loaded_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0,
    }


MEASUREMENTS = {
    "import": measure_import,
    "numpy": measure_numpy,
    "first_answer": measure_first_answer,
    "fit": measure_fit,
    "predictions": measure_predictions,
}


def in_own_process(name: str, home: str) -> Figures:
    """Run one of MEASUREMENTS in a new interpreter with this home.

    Returns its figures and, as ``<name>_bytes``, the peak memory of it and its workers.
    """
    process = subprocess.Popen(
        [sys.executable, Path(__file__).resolve(), name],
        env=os.environ | {"PRECISION_TIME_HOME": home},
        stdout=subprocess.PIPE,
        text=True,
    )
    peak = 0
    while process.poll() is None:
        peak = max(peak, tree_bytes(process.pid))
        time.sleep(SAMPLING_S)
    output, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"the measurement {name!r} failed")
    figures: Figures = json.loads(output.splitlines()[-1])
    return figures | {f"{name}_bytes": float(peak)}


def collect() -> Figures:
    """All figures, the imports from the fastest run."""
    with tempfile.TemporaryDirectory() as home:
        imports = [in_own_process("import", home) for _ in range(IMPORTS)]
        numpy_s = min(in_own_process("numpy", home)["numpy_s"] for _ in range(IMPORTS))
        fastest = min(imports, key=lambda figures: figures["import_s"])
        first = in_own_process("first_answer", home)
        fit = in_own_process("fit", home)
        predictions = in_own_process("predictions", home)
    return fastest | {"numpy_s": numpy_s} | first | fit | predictions


def report(figures: Figures) -> bool:
    """Print the table; True if every budget is kept."""
    kept = True
    print(f"{'':28}{'measured':>12}{'budget':>12}{'of budget':>12}")
    for budget in BUDGETS:
        value = figures[budget.key]
        kept &= value <= budget.limit
        print(
            f"{budget.name:28}{value * budget.scale:>8.4g} {budget.unit:3}"
            f"{budget.limit * budget.scale:>8.4g} {budget.unit:3}{value / budget.limit:>12.1%}"
        )
    pulled = [name for name in HEAVY if figures[name]]
    print(f"\nheavy packages imported with precision_time: {', '.join(pulled) or 'none'}")
    kept &= not set(pulled) & set(FORBIDDEN)
    print("ratios of this run:")
    print(f"  import precision_time / import numpy  {figures['import_s'] / figures['numpy_s']:.2f}")
    print(f"  fit / load of what was fitted         {figures['fit_s'] / figures['load_s']:.1f}")
    print(f"  new shape / seen shape                {figures['cold_s'] / figures['warm_s']:.1f}")
    return kept


def main(arguments: list[str]) -> int:
    """Print the report, or the figures of the one measurement that is named."""
    if arguments:
        print(json.dumps(MEASUREMENTS[arguments[0]]()))
        return 0
    return 0 if report(collect()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
