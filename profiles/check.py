"""Checks everything under ``profiles/``: what is wrong, and what waits in quarantine."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import ProfileDataError
from .gpus import CPU, CPU_PREFIX, Gpu, find_gpu, gpus
from .roots import also
from .rules import collective_faults, measurement_fault, operator_faults
from .storage import HERE, sources
from .tables import CollectiveTable, OperatorTable, collectives, measurements, models, operators

SIZE_LIMIT_BYTES = 11_000_000
_DATA = (".csv", ".yaml", ".md")


@dataclass(frozen=True, slots=True)
class DataProblem:
    """One thing wrong with the data: the table or file, the row or entry, and why."""

    table: str
    row: str
    reason: str


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A row that was refused at import, and why."""

    table: str
    row: str
    source: str
    reason: str


def check(root: Path = HERE) -> list[DataProblem]:
    """Every problem found; an empty list where the data can be used."""
    found: list[DataProblem] = []
    with also(root):
        for name, look in _CHECKS.items():
            try:
                found += look(root)
            except (ProfileDataError, OSError, ValueError, KeyError, TypeError) as error:
                found.append(DataProblem(name, "", str(error)))
    return found


def quarantined(root: Path = HERE) -> list[Quarantined]:
    """Every refused row, in the order of the quarantine files."""
    found: list[Quarantined] = []
    for path in sorted((root / "quarantine").glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                found.append(Quarantined(path.stem, row["id"], row["source"], row["reason"]))
    return found


def size_bytes(root: Path = HERE) -> int:
    """Bytes of all data files."""
    return sum(path.stat().st_size for path in root.rglob("*") if path.suffix in _DATA)


def _size(root: Path) -> Iterator[DataProblem]:
    size = size_bytes(root)
    if size > SIZE_LIMIT_BYTES:
        yield DataProblem("profiles", "", f"{size} bytes of data, at most {SIZE_LIMIT_BYTES}")


def _gpus(root: Path) -> Iterator[DataProblem]:
    for gpu in gpus().values():
        find_gpu(gpu.name)
        for reason in _sheet_faults(gpu):
            yield DataProblem("gpus", gpu.name, reason)


def _sheet_faults(gpu: Gpu) -> Iterator[str]:
    """What a data sheet cannot be: peaks out of order, or matrix formats before their time."""
    peak = gpu.peak_flops
    if not gpu.source:
        yield "source is empty"
    if "fp32" not in peak:
        yield "peak_tflops has no fp32"
        return
    if gpu.kind == CPU:
        if not gpu.name.startswith(CPU_PREFIX):
            yield f"the name of a CPU starts with {CPU_PREFIX}"
        return
    if gpu.tensor_core_generation == 0 and any(name.endswith("_tensor") for name in peak):
        yield "tensor peak without tensor cores"
    if gpu.compute_capability < (8, 0) and {"tf32", "bf16", "bf16_tensor"} & set(peak):
        yield "tf32 or bf16 before compute capability 8.0"
    if gpu.compute_capability < (8, 9) and "fp8_tensor" in peak:
        yield "fp8 before compute capability 8.9"
    if peak.get("fp16_tensor", peak["fp32"]) < peak["fp32"]:
        yield "fp16_tensor below fp32"


def _sources(root: Path) -> Iterator[DataProblem]:
    for key, source in sources(root).items():
        for name in ("repository", "commit", "license", "citation"):
            if not getattr(source, name):
                yield DataProblem("sources", key, f"{name} is empty")


def _operators(root: Path) -> Iterator[DataProblem]:
    table = operators(root)
    yield from _table("operators", root, table, operator_faults(table))


def _collectives(root: Path) -> Iterator[DataProblem]:
    table = collectives(root)
    yield from _table("collectives", root, table, collective_faults(table))


def _table(
    name: str, root: Path, table: OperatorTable | CollectiveTable, faults: Iterable[str | None]
) -> Iterator[DataProblem]:
    known = sources(root)
    rows = zip(table.id.tolist(), table.source.tolist(), faults, strict=True)
    for id_, source, fault in rows:
        if fault is not None:
            yield DataProblem(name, id_, fault)
        if source not in known:
            yield DataProblem(name, id_, f"unknown source {source!r}")
    yield from _repeated(name, table.id.tolist())


def _measurements(root: Path) -> Iterator[DataProblem]:
    rows = measurements(root)
    for row in rows:
        fault = measurement_fault(row)
        if fault is not None:
            yield DataProblem("measurements", row["id"], fault)
    yield from _repeated("measurements", (row["id"] for row in rows))


def _repeated(table: str, ids: Iterable[str]) -> Iterator[DataProblem]:
    for id_, count in Counter(ids).items():
        if count > 1:
            yield DataProblem(table, id_, f"its id is used {count} times")


def _models(root: Path) -> Iterator[DataProblem]:
    for name, entry in models(root).items():
        for key in ("family", "source"):
            if not entry.get(key):
                yield DataProblem("models", name, f"{key} is empty")


_CHECKS: dict[str, Callable[[Path], Iterator[DataProblem]]] = {
    "profiles": _size,
    "gpus": _gpus,
    "sources": _sources,
    "operators": _operators,
    "collectives": _collectives,
    "measurements": _measurements,
    "models": _models,
}
