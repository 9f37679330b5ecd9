"""A measured run: the job it was, and the time of one optimizer step it took."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from profiles.rules import number_fault
from profiles.storage import COLUMNS, shipped_yaml
from profiles.tables import measurements

from ..errors import JobError, MeasurementError, reason_of
from ..graphs.catalog import ModelEntry, entry_of, find_entry, understood_variant
from ..job.fabrics import system_fabric
from ..job.frameworks import names_framework, parse_framework, submission_options
from ..job.precision import parse_precision
from ..job.software import optimizer_named, understood_options
from ..job.training_job import TrainingJob, parse_pairs
from ..job.words import accepted

Row = Mapping[str, str]

# Options that are fields of a TrainingJob or say nothing about its speed.
_NOT_OPTIONS = {
    *("container", "optimizer", "tp", "pp", "cp", "ep", "vp", "dp"),
    *("micro_batch", "grad_accum", "data", "tdp", "code"),
}
# Of tables that time forward and backward alone. Setting gradients to zero and copying the batch,
# which such loops do too, take as long there as an update, which they are priced with.
NO_OPTIMIZER = "none"
_GRAPH_OPTION = "partial_fc_sample_ratio"  # changes the network itself, an argument of its builder
# A translation batch beyond this is in tokens of one side (fairseq's max-tokens), not in pairs.
TOKEN_BATCH = 1000
_PUBLISHED = re.compile(r"(?:first seen|release table|NVIDIA table) (20\d\d)-(\d\d)-\d\d")
# Placement of one worker a machine (Gavel), over the network of cloud machines.
UNCONSOLIDATED = "unconsolidated"
CLOUD_FABRIC = "ethernet-10"
UNITS = COLUMNS["units"]  # of a throughput
_UNIT_OF = {word: unit for unit, words in shipped_yaml("units.yaml").items() for word in words}
_A_SECOND = re.compile(r"(?:/| per |_per_)s(?:ec(?:onds?)?)?$", re.ASCII)
REQUIRED = ("model", "gpu", "gpus", "precision")
# Fields of a job or of a prediction as others may name the columns that hold them.
_FIELDS = {
    "batch_size": "batch_per_gpu",
    "global_batch_size": "global_batch",
    "step_s": "iteration_s",
}


@dataclass(frozen=True, slots=True)
class Measurement:
    """One end-to-end run. ``step_s`` is seconds of one optimizer step over all GPUs."""

    id: str
    job: TrainingJob
    step_s: float
    source: str
    row: Row

    @property
    def stack(self) -> tuple[str, str, str]:
        """What one calibration run speaks for: source, framework and GPU."""
        return self.source, self.row.get("framework", ""), self.job.gpu


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A row that tells no time of one step, and why.

    ``job`` is what it ran, as far as that can be predicted: its time cannot be compared.
    """

    id: str
    reason: str
    row: Row
    job: TrainingJob | None = None


def read_csv(path: Path) -> list[Row]:
    """Rows of a measurement file; one without an id is named for its place.

    Columns may be called as the fields of a job and of a prediction are. Raises MeasurementError
    where it cannot be read, misses a column or has no rows.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            names = reader.fieldnames or ()
            columns = {name: _FIELDS.get(name, name) for name in names}
            missing = [c for c in REQUIRED if c not in names]
            twice = [c for c in names if columns[c] != c and columns[c] in names]
            if missing:
                raise MeasurementError(f"{path.name}: no column {', '.join(missing)}")
            if twice:
                raise MeasurementError(f"{path.name}: {twice[0]} is {columns[twice[0]]}: keep one")
            rows = [{columns[k]: v or "" for k, v in row.items() if k} for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise MeasurementError(f"{path} cannot be read: {reason_of(error)}") from error
    if not rows:
        raise MeasurementError(f"{path} holds no rows")
    name = path.stem
    return [{**row, "id": row.get("id") or f"{name} row {n}"} for n, row in enumerate(rows, 1)]


@cache
def shipped() -> tuple[Measurement, ...]:
    """The measurements under ``profiles/`` that have a step time and a known model."""
    return tuple(m for m in parse(measurements()) if isinstance(m, Measurement))


def parse(rows: Iterable[Row]) -> list[Measurement | Unreadable]:
    """Every row, in order, as a measurement or with the reason why not."""
    found: list[Measurement | Unreadable] = []
    for row in rows:
        try:
            found.append(measurement(row))
        except (MeasurementError, JobError) as error:
            found.append(_unreadable(row, str(error)))
    return found


def measurement(row: Row) -> Measurement:
    """One row in the columns of ``profiles/measurements``; raises MeasurementError or JobError."""
    for column in REQUIRED:
        if not row.get(column):
            raise MeasurementError(f"{column} is empty")
    entry = find_entry(row["model"])
    if entry is None:
        raise MeasurementError(f"model {row['model']!r} is not in the catalog")
    job = _job(row, entry)
    return Measurement(row.get("id", ""), job, _step_s(row, job, entry), job.source, row)


def _unreadable(row: Row, reason: str) -> Unreadable:
    """With its job where only the time of a step is missing, or the batch too."""
    try:
        entry = entry_of(row["model"])
        if not row.get("batch_per_gpu") and not row.get("global_batch"):
            batch = usual_batches().get(entry.name)
            if batch is None:
                return Unreadable(row.get("id", ""), reason, row)
            reason += f": predicted for {batch} per GPU, measured most often"
            row = {**row, "batch_per_gpu": str(batch)}
        return Unreadable(row.get("id", ""), reason, row, _job(row, entry))
    except (MeasurementError, JobError, KeyError):
        return Unreadable(row.get("id", ""), reason, row)


@cache
def usual_batches() -> Mapping[str, int]:
    """The batch per GPU that most shipped runs of a model have, by model."""
    counts: dict[str, Counter[int]] = {}
    for row in measurements():
        entry, batch = find_entry(row["model"]), row.get("batch_per_gpu", "")
        if entry is not None and batch:
            counts.setdefault(entry.name, Counter())[round(float(batch))] += 1
    return {model: count.most_common(1)[0][0] for model, count in counts.items()}


def source_of(row: Row) -> str:
    """Short name of the source: the last part of its repository, without a release number."""
    return re.sub(r"_v?\d[\d.]*$", "", row.get("source_repo", "").rpartition("/")[2]).lower()


def _number(row: Row, column: str) -> float | None:
    if fault := number_fault(row, (column,)):
        raise MeasurementError(fault)
    text = row.get(column, "")
    return float(text) if text else None


def _count(row: Row, column: str) -> int | None:
    value = _number(row, column)
    return None if value is None else max(1, round(value))


def _job(row: Row, entry: ModelEntry) -> TrainingJob:
    framework = parse_framework(row.get("framework", ""), row.get("options", ""), entry.name)
    repository = row.get("source_repo", "")
    options = submission_options(row.get("framework", ""), repository, framework.date)
    options |= dict(framework.options) | dict(parse_pairs(row.get("options", "")))
    gpus = _count(row, "gpus") or 1
    named = {k: options.get(k, "1") for k in ("tp", "pp", "cp", "ep", "vp")}
    split = {k: int(text) if text.isdigit() and int(text) else 1 for k, text in named.items()}
    ranks = max(1, gpus // (split["tp"] * split["pp"] * split["cp"]))
    batch, accum = _batch(row, ranks, split["pp"], entry)
    shared = not row.get("batch_per_gpu") and not row.get("grad_accum") and accum == 1
    spread = options.get("placement") == UNCONSOLIDATED
    nodes = _count(row, "nodes") or (gpus if spread else None)
    if "DataParallel" in options.get("dp", ""):
        options["one_process"] = "on"
    stated = tuple((k, v) for k, v in options.items() if k not in _NOT_OPTIONS)
    fabric = system_fabric(row.get("system", "")) or (CLOUD_FABRIC if spread else None)
    # When a table of a release was first seen: its software is as old or a little older.
    seen = _PUBLISHED.search(row.get("note", ""))
    published = None if seen is None else int(seen[1]) + int(seen[2]) / 12
    return TrainingJob(
        model=entry.name,
        precision=parse_precision(row["precision"]),
        gpu=row["gpu"],
        gpus=gpus,
        gpus_per_node=_count(row, "gpus_per_node") or (math.ceil(gpus / nodes) if nodes else 8),
        batch_size=None if shared else batch,
        global_batch_size=batch * ranks if shared else None,
        grad_accum=None if shared else accum,
        seq_len=_count(row, "seq_len"),
        image_size=_image_size(row.get("image_size", ""), entry),
        optimizer=_optimizer(options),
        framework=framework.name,
        framework_date=framework.date or published,
        tensor_parallel=split["tp"],
        pipeline_parallel=split["pp"],
        context_parallel=split["cp"],
        expert_parallel=split["ep"],
        virtual_stages=split["vp"] if split["pp"] > 1 else 1,
        fabric=fabric if (nodes or 1) > 1 else None,
        options=understood_options(stated)[0],
        variant=_variant(row, entry, options),
        source=source_of(row),
    )


def _batch(row: Row, ranks: int, stages: int, entry: ModelEntry) -> tuple[int, int]:
    batch, total = _number(row, "batch_per_gpu"), _number(row, "global_batch")
    accum = _count(row, "grad_accum")
    if batch is None and total is None:
        raise MeasurementError("no batch_per_gpu and no global_batch")
    if accum is None:
        each = batch or (1.0 if stages > 1 else None)  # as TrainingJob.micro_steps
        times = total / (each * ranks) if each and total else 1.0
        accum = max(1, round(times))  # what is left over of a batch is dropped
    batch = batch or (total or 0.0) / (ranks * accum)
    if entry.family == "seq2seq" and "tokens" in entry.units and batch > TOKEN_BATCH:
        batch /= entry.units["tokens"]
    return max(1, round(batch)), accum


def _image_size(text: str, entry: ModelEntry) -> tuple[int, ...] | None:
    axes = re.fullmatch(r"\s*(\d+)(?:\.0)?(?:x(\d+))?(?:x(\d+))?\s*", text)
    if axes is None or entry.image_size is None:
        return None  # ranges such as 800-1333 mean the default of the catalog
    return entry.sized([int(n) for n in axes.groups() if n])


def _variant(
    row: Row, entry: ModelEntry, options: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    pairs = dict(parse_pairs(row.get("model_variant", "")))
    if _GRAPH_OPTION in options:
        pairs[_GRAPH_OPTION] = options[_GRAPH_OPTION]
    if row.get("task", "") == "question-answering" and entry.group == "transformer":
        pairs.setdefault("finetune-squad", "on")
    return understood_variant(entry, tuple(sorted(pairs.items())))


def unknown_words(row: Row) -> tuple[str, ...]:
    """Words of a row, of framework, optimizer and options, that its job is without: unknown."""
    options = parse_pairs(row.get("options", ""))
    stated = tuple((k, v) for k, v in options if k not in _NOT_OPTIONS)
    unknown = [f"options {word}" for word in understood_options(stated)[1]]
    framework, optimizer = row.get("framework", ""), dict(options).get("optimizer")
    if framework and not names_framework(framework):
        unknown.append(f"framework {framework}")
    if optimizer not in (None, NO_OPTIMIZER) and _optimizer(dict(options)) is None:
        unknown.append(f"optimizer {optimizer}")
    return tuple(unknown)


def _optimizer(options: Mapping[str, str]) -> str | None:
    """The optimizer a row names, None where it names none that we know."""
    try:
        stated = options.get("optimizer")
        name = optimizer_named(stated) if stated else NO_OPTIMIZER
    except JobError:
        return None
    return None if name == NO_OPTIMIZER else name


def _step_s(row: Row, job: TrainingJob, entry: ModelEntry) -> float:
    throughput = _number(row, "throughput")
    if throughput is not None:
        unit = row.get("unit", "") or "samples/s"
        word = _A_SECOND.sub("", unit.strip().lower())
        kind = _UNIT_OF.get(word, word)
        if f"{kind}/s" not in UNITS and kind not in entry.units:
            raise MeasurementError(f"invalid unit={unit!r}; {accepted(unit, UNITS)}")
        if kind == "steps":
            return 1 / throughput
        return job.step_samples * entry.samples_of(kind, job.seq_len) / throughput
    iteration = _number(row, "iteration_s")
    if iteration is not None:
        return iteration
    total, steps = _number(row, "total_s"), _number(row, "steps")
    if total is not None and steps is not None:
        return total / steps
    raise MeasurementError("no throughput, iteration_s, or total_s with steps")
