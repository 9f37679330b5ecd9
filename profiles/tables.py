"""Loaders of the data: operator tables, collective tables, measurements, the model catalog."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from . import storage
from .conventions import DIM_FIELDS, SHAPE_FIELDS, Floats, Texts, fill_elements, work
from .errors import ProfileDataError
from .gpus import CPU_PREFIX, find_gpu
from .recordings import entries_of_recordings

_PACE = re.compile(r"(?:^|;)pace=([0-9.]+)")


@dataclass(frozen=True)
class OperatorTable:
    """Measured operators, one array element a row; NaN where an operator has no such dimension.

    ``gpu`` is a name of ``gpus.yaml``; ``op`` and ``direction`` are the words of
    ``conventions``, ``dtype`` fp32, tf32, fp16 or bf16. ``flops`` and ``bytes`` follow the
    conventions there; ``time_s`` is seconds of one call as the source timed it, floor included.
    """

    id: Texts
    gpu: Texts
    source: Texts
    library: Texts
    op: Texts
    direction: Texts
    dtype: Texts
    m: Floats
    n: Floats
    k: Floats
    batch: Floats
    in_n: Floats
    in_c: Floats
    in_h: Floats
    in_w: Floats
    out_c: Floats
    kernel_h: Floats
    kernel_w: Floats
    stride_h: Floats
    stride_w: Floats
    pad_h: Floats
    pad_w: Floats
    groups: Floats
    elements: Floats
    rows: Floats
    cols: Floats
    heads: Floats
    head_dim: Floats
    seq_len: Floats
    params: Texts
    time_s: Floats
    flops: Floats
    bytes: Floats

    def __len__(self) -> int:
        return len(self.id)


@dataclass(frozen=True)
class CollectiveTable:
    """Measured collectives, one array element a row.

    ``bytes`` is the total buffer as nccl-tests counts it (all_gather: all ranks together).
    ``nodes`` and ``gpus_per_node`` are NaN where the source does not say; ``system`` and
    ``fabric`` are its words.
    """

    id: Texts
    gpu: Texts
    source: Texts
    library: Texts
    system: Texts
    fabric: Texts
    op: Texts
    dtype: Texts
    gpus: Floats
    nodes: Floats
    gpus_per_node: Floats
    bytes: Floats
    time_s: Floats

    def __len__(self) -> int:
        return len(self.id)

    @property
    def bus_bytes_per_s(self) -> Floats:
        """Bus bandwidth: bytes over time, times the share each link carries (nccl-tests)."""
        n = self.gpus
        ring = np.where(self.op == "all_reduce", 2 * (n - 1) / n, (n - 1) / n)
        one_way = np.isin(self.op, ("broadcast", "reduce", "send_recv"))
        return np.where(one_way, 1.0, ring) * self.bytes / self.time_s


def usual_pace(notes: Iterable[str]) -> float:
    """The median pace of rows by their notes, 1 where none states one.

    The clock of a CPU moves by tens of per cent within minutes. Its profiler states in the note of
    each row how fast the CPU was, relative to the first moment of the directory, and the time as it
    would have been then. Prices are those of the usual pace, as that moment may have been any.
    """
    paces = [float(found[1]) for note in notes if (found := _PACE.search(note))]
    return float(np.median(paces)) if paces else 1.0


def at_usual_pace(
    devices: NDArray[np.str_], notes: Sequence[str], time_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Seconds (n,) of rows at the usual pace of each CPU among ``devices`` (n,)."""
    times = time_s.copy()
    for name in np.unique(devices):
        if str(name).startswith(CPU_PREFIX):
            rows = np.flatnonzero(devices == name)
            times[rows] /= usual_pace(notes[row] for row in rows.tolist())
    return times


@cache
def operators(root: Path = storage.HERE) -> OperatorTable:
    """Every operator row; raises ProfileDataError where a file is malformed.

    Those of a CPU are at the pace that was usual while they were measured.
    """
    gpu, columns = _stacked(root, "operators", storage.OPERATOR_COLUMNS)
    table = operator_table(gpu, columns)
    return replace(table, time_s=at_usual_pace(table.gpu, columns["note"], table.time_s))


@cache
def collectives(root: Path = storage.HERE) -> CollectiveTable:
    """Every collective row; raises ProfileDataError where a file is malformed."""
    gpu, c = _stacked(root, "collectives", storage.COLLECTIVE_COLUMNS)
    return collective_table(gpu, c)


@cache
def measurements(root: Path = storage.HERE) -> tuple[Mapping[str, str], ...]:
    """Every end-to-end run as text, in the columns measurements are exchanged in."""
    known = storage.sources(root)
    found: list[Mapping[str, str]] = []
    for path in sorted((root / "measurements").glob("*.csv")):
        columns = storage.read_table(path, storage.STORED_MEASUREMENT_COLUMNS, root)
        for id_, key, source_path, *rest in zip(*columns, strict=True):
            source = known.get(key)
            if source is None:
                raise ProfileDataError(f"{path.name}: row {id_} has unknown source {key!r}")
            head = (id_, source.repository, source.commit, source_path, source.license)
            found.append(dict(zip(storage.MEASUREMENT_COLUMNS, (*head, *rest), strict=True)))
    return tuple(found)


@cache
def models(root: Path = storage.HERE) -> Mapping[str, Mapping[str, Any]]:
    """All networks by name: those of ``models/*.yaml``, and the recorded ones none of them names.

    Raises ProfileDataError on a name used twice.
    """
    merged: dict[str, Mapping[str, Any]] = {}
    owner: dict[str, str] = {}
    for path in sorted((root / "models").glob("*.yaml")):
        raw = yaml.load(path.read_bytes(), yaml.CSafeLoader) or {}
        for name, entry in raw.items():
            this = f"{path.name}: {name}"
            for alias in (name, *entry.get("aliases", ())):
                spelling = str(alias).lower().replace("_", "-")
                if (other := owner.setdefault(spelling, this)) != this:
                    raise ProfileDataError(
                        f"model name {spelling!r} is claimed by {other} and by {this}"
                    )
            merged[name] = entry
    described = {e["architecture"].get("graph") for e in merged.values() if "architecture" in e}
    for name, entry in entries_of_recordings(described):
        if name.lower().replace("_", "-") not in owner:
            merged[name] = entry
    return merged


def operator_table(gpu: Sequence[str], columns: Mapping[str, Sequence[str]]) -> OperatorTable:
    """The table of stored columns (``OPERATOR_COLUMNS``), FLOPs and bytes computed."""
    op, direction, dtype, params = (
        _texts(columns[name]) for name in ("op", "direction", "dtype", "params")
    )
    dims = _dims(op, columns["shape"])
    fill_elements(op, dims)
    flops, moved = work(op, direction, dtype, params, dims)
    return OperatorTable(
        id=_texts(columns["id"]),
        gpu=_texts(gpu),
        source=_texts(columns["source"]),
        library=_texts(columns["library"]),
        op=op,
        direction=direction,
        dtype=dtype,
        params=params,
        time_s=_floats(columns["time_us"]) * 1e-6,
        flops=flops,
        bytes=moved,
        **dims,
    )


def collective_table(gpu: Sequence[str], columns: Mapping[str, Sequence[str]]) -> CollectiveTable:
    """The table of stored columns (``COLLECTIVE_COLUMNS``)."""
    return CollectiveTable(
        id=_texts(columns["id"]),
        gpu=_texts(gpu),
        source=_texts(columns["source"]),
        library=_texts(columns["library"]),
        system=_texts(columns["system"]),
        fabric=_texts(columns["fabric"]),
        op=_texts(columns["op"]),
        dtype=_texts(columns["dtype"]),
        gpus=_floats(columns["gpus"]),
        nodes=_floats(columns["nodes"]),
        gpus_per_node=_floats(columns["gpus_per_node"]),
        bytes=_floats(columns["bytes"]),
        time_s=_floats(columns["time_us"]) * 1e-6,
    )


def take(table: OperatorTable, rows: NDArray[np.intp]) -> OperatorTable:
    """The chosen rows of a table."""
    return OperatorTable(**{f.name: getattr(table, f.name)[rows] for f in fields(table)})


def _stacked(
    root: Path, folder: str, names: Sequence[str]
) -> tuple[list[str], Mapping[str, Sequence[str]]]:
    """Files of a folder under one another; a file is named for the GPU as its sources spell it."""
    gpu: list[str] = []
    stacked: list[list[str]] = [[] for _ in names]
    for path in sorted((root / folder).glob("*.csv")):
        columns = storage.read_table(path, names, root)
        gpu += [find_gpu(path.stem).name] * len(columns[0])
        for whole, part in zip(stacked, columns, strict=True):
            whole += part
    return gpu, dict(zip(names, stacked, strict=True))


def _dims(op: Texts, shapes: Sequence[str]) -> dict[str, Floats]:
    dims = {name: np.full(len(op), np.nan) for name in DIM_FIELDS}
    for name in np.unique(op):
        names = SHAPE_FIELDS.get(str(name))
        if names is None:
            raise ProfileDataError(
                f"operator {str(name)!r} is not one of {', '.join(SHAPE_FIELDS)}"
            )
        rows = np.flatnonzero(op == name)
        cells = " ".join(shapes[i] for i in rows.tolist()).split()
        if len(cells) != len(names) * len(rows):
            raise ProfileDataError(f"a {name} row has a shape that is not {' '.join(names)}")
        values = _floats(cells).reshape(-1, len(names))
        for column, field in enumerate(names):
            dims[field][rows] = values[:, column]
    return dims


def _texts(values: Iterable[str]) -> Texts:
    return np.array(list(values), dtype=np.str_)


def _floats(values: Sequence[str]) -> Floats:
    return np.array([v or "nan" for v in values], dtype=np.float64)
