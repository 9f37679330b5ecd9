"""Turns exchanged CSV files into stored tables: ``python tools/import_profiles.py [--add] DIR``.

DIR holds ``measurements.csv``, ``operators.csv`` and ``collectives.csv``; a missing one is an
empty table. Everything the importer writes is derived from them and replaced as a whole; the
same rows give the same bytes, in whatever order they come. ``--add`` keeps the stored rows but
those whose id DIR has, too, and writes no quarantine.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray
from packing import (
    Book,
    Cells,
    Packed,
    Row,
    book_of,
    collective_cells,
    measurement_cells,
    operator_cells,
    operator_word_fault,
    shared_texts,
    stray_dimension,
)

from profiles.conventions import parse_params
from profiles.rules import (
    collective_faults,
    common_fault,
    link_share,
    measurement_fault,
    number_fault,
    operator_faults,
)
from profiles.storage import (
    COLLECTIVE_COLUMNS,
    HERE,
    OPERATOR_COLUMNS,
    STORED_MEASUREMENT_COLUMNS,
    Source,
    sources,
    texts,
)
from profiles.tables import (
    CollectiveTable,
    OperatorTable,
    collective_table,
    collectives,
    measurements,
    operator_table,
    operators,
)

# A quarantine file starts with these; the raw columns of its table follow.
QUARANTINE_COLUMNS = ("id", "source", "reason")
# Without peer access a message crosses the memory of the node several times: 8 L40S of one machine
# reached 0.04 to 0.06 of a link, those of every other node here at least 0.079.
NO_PEERS, LARGE_MESSAGE = 0.07, 2.0**26
TABLES = ("measurements", "operators", "collectives")
_COLUMNS = {
    "measurements": STORED_MEASUREMENT_COLUMNS,
    "operators": OPERATOR_COLUMNS,
    "collectives": COLLECTIVE_COLUMNS,
}
_CELLS: Mapping[str, Callable[[Row, str], Cells]] = {
    "measurements": measurement_cells,
    "operators": operator_cells,
    "collectives": collective_cells,
}
# Two rows that agree in all but these say the same thing twice.
_NOT_COMPARED = {"id", "source_commit", "source_path", "license", "note"}
# Two rows of a page that agree in all but these measured one configuration.
_NOT_CONFIGURED = {
    *("id", "note", "global_batch", "peak_memory_bytes"),
    *("throughput", "unit", "iteration_s", "epoch_s", "total_s", "steps", "epochs"),
}
# Rows kept of one (GPU, library, operator, direction, format, function); others keep all.
_KEEP = {
    "gemm": 1000,
    "batched_gemm": 500,
    "elementwise": 120,
    "layernorm": 300,
    "softmax": 300,
    "embedding": 100,
}
_HEAD = """# Sources of the data

Facts and figures only, re-typed into our own columns; no code and no file of a source is copied,
and no row is estimated. Every row keeps its id, its source (below) and the path of the file it was
read from. Written by `python tools/import_profiles.py`; do not edit.

Operator tables are thinned where one source swept one operator densely. Rows that contradict
physics, themselves or each other wait in `quarantine/` with a reason and are not used.

Recorded networks (`graphs/`) are the sizes of the operators that a library's own module runs: timm,
transformers and diffusers (Apache-2.0), torchvision (BSD-3-Clause), ultralytics (AGPL-3.0). No code
and no weights of theirs are here.

| repository | licence | commits | measurements | operators | collectives | quarantined |
|---|---|---|---|---|---|---|"""


@dataclass(frozen=True, slots=True)
class Sorted:
    """Rows of one table: those to ship, those in quarantine with their reason, those thinned."""

    kept: Sequence[Row]
    quarantined: Sequence[tuple[Row, str]]
    thinned: int = 0


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write one CSV file with a header and Unix line ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def without_peers(table: CollectiveTable) -> NDArray[np.bool_]:
    """Rows of sweeps on one node whose large messages all stay below NO_PEERS of the link.

    Such a node is no pattern for others; at its own site it is measured rightly.
    """
    keys = list(zip(table.gpu, table.system, table.op, table.gpus, table.nodes, strict=True))
    best: dict[tuple[object, ...], float] = {}
    for key, size, reached in zip(keys, table.bytes, link_share(table).tolist(), strict=True):
        if size >= LARGE_MESSAGE and key[-1] == 1:
            best[key] = max(best.get(key, 0.0), reached)
    return np.array([best.get(key, 1.0) < NO_PEERS for key in keys], dtype=np.bool_)


def import_directory(directory: Path, root: Path = HERE) -> Mapping[str, Sorted]:
    """Read DIR, validate, thin, and write every table under ``root``."""
    done, book = _done_and_sources(directory)
    files = _files(done, book)
    for folder in (*TABLES, "quarantine"):
        for path in (root / folder).glob("*.csv"):
            path.unlink()
    _write(root, files, shared_texts(files.values()), book.sources)
    return done


def add_directory(directory: Path, root: Path = HERE) -> Mapping[str, Sorted]:
    """Read DIR, validate, thin, and add its rows to the tables under ``root``."""
    done, book = _done_and_sources(directory)
    files = {k: v for k, v in _files(done, book).items() if not k.startswith("quarantine")}
    shared = {text: key for key, text in texts(root).items()} | shared_texts(files.values())
    _write(root, files, shared, {**sources(root), **book.sources})
    return done


def _done_and_sources(directory: Path) -> tuple[Mapping[str, Sorted], Book]:
    raw = {name: _read(directory / f"{name}.csv") for name in TABLES}
    done = {name: _SORT[name](rows) for name, rows in raw.items()}
    return done, book_of(row for rows in raw.values() for row in rows)


def _write(
    root: Path, files: Mapping[str, Packed], shared: Mapping[str, str], known: Mapping[str, Source]
) -> None:
    """Write files beside the rows that are stored under other ids, the keys of ``shared`` texts."""
    for name, file in files.items():
        path = root / name
        ids = {cells[0] for cells in file.rows}
        kept = [row for row in _stored(path) if row[0] not in ids]
        write_table(path, file.columns, [*kept, *file.refer(shared)])
    write_table(root / "texts.csv", ("key", "text"), sorted((k, t) for t, k in shared.items()))
    for loader in (sources, texts, operators, collectives, measurements):
        loader.cache_clear()
    _write_sources(root, known)


def _stored(path: Path) -> list[list[str]]:
    """The rows of a stored file as they are, without its header."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))[1:]


def sort_measurements(rows: Sequence[Row]) -> Sorted:
    """Validate end-to-end rows; the time of a whole run is no step where a page states that too."""
    stated = {_configuration(row) for row in rows if row["throughput"] or row["iteration_s"]}
    return _sorted(rows, [measurement_fault(row) or _whole_run(row, stated) for row in rows])


def _whole_run(row: Row, stated: Collection[tuple[str, ...]]) -> str | None:
    """Why ``total_s`` over ``steps`` is no step time: evaluations and checkpoints are in it."""
    told = row["throughput"] or row["iteration_s"] or not row["steps"]
    if told or _configuration(row) not in stated:
        return None
    return "a whole run over its steps; the same page states the throughput of this configuration"


def _configuration(row: Row) -> tuple[str, ...]:
    return tuple(value for name, value in row.items() if name not in _NOT_CONFIGURED)


def sort_operators(rows: Sequence[Row]) -> Sorted:
    """Validate operator rows, then thin the dense sweeps."""
    words = [common_fault(r) or operator_word_fault(r) or stray_dimension(r) for r in rows]
    readable = [row for row, fault in zip(rows, words, strict=True) if fault is None]
    physics = iter(operator_faults(_operator_table(readable)))
    done = _sorted(rows, [fault or next(physics) for fault in words])
    kept = [done.kept[i] for i in _thinned(_operator_table(done.kept)).tolist()]
    return Sorted(kept, done.quarantined, len(done.kept) - len(kept))


def _thinned(table: OperatorTable) -> NDArray[np.intp]:
    """Indices of the rows to keep, spread evenly over the sizes of every group.

    One source may have swept one operator densely; rare operators stay whole.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    functions = {
        text: parse_params(text).get("func", "") for text in np.unique(table.params).tolist()
    }
    columns = (table.gpu, table.library, table.op, table.direction, table.dtype)
    keys = zip(*(c.tolist() for c in columns), table.params.tolist(), strict=True)
    for row, (*key, params) in enumerate(keys):
        groups.setdefault((*key, functions[params]), []).append(row)
    kept = [_spread(table, np.array(rows), key[2], key[3]) for key, rows in groups.items()]
    return np.sort(np.concatenate(kept)) if kept else np.array([], dtype=np.intp)


def _spread(
    table: OperatorTable, rows: NDArray[np.intp], op: str, direction: str
) -> NDArray[np.intp]:
    keep = _KEEP.get(op, len(rows))
    if len(rows) <= keep or direction != "fwd":
        return rows
    order = np.lexsort((table.id[rows], table.bytes[rows], table.flops[rows]))
    steps = np.linspace(0, len(rows) - 1, keep).round().astype(np.intp)
    chosen: NDArray[np.intp] = rows[order[steps]]
    return chosen


def sort_collectives(rows: Sequence[Row]) -> Sorted:
    """Validate collective rows."""
    numbers = ("gpus", "nodes", "gpus_per_node", "bytes", "time_us")
    words = [common_fault(row) or number_fault(row, numbers) for row in rows]
    readable = [row for row, fault in zip(rows, words, strict=True) if fault is None]
    cells = [collective_cells(row, row["source_repo"]) for row in readable]
    columns = _by_column(COLLECTIVE_COLUMNS, cells)
    table = collective_table([r["gpu"] for r in readable], columns)
    alone = (
        "GPUs of one node without peer access" if far else None for far in without_peers(table)
    )
    physics = (fault or far for fault, far in zip(collective_faults(table), alone, strict=True))
    return _sorted(rows, [fault or next(physics) for fault in words])


def _sorted(rows: Sequence[Row], faults: Sequence[str | None]) -> Sorted:
    """Split by fault, and quarantine ids that occur twice and rows that repeat another."""
    kept: list[Row] = []
    bad: list[tuple[Row, str]] = []
    ids: set[str] = set()
    seen: dict[tuple[str, ...], str] = {}
    for row, fault in zip(rows, faults, strict=True):
        facts = tuple(value for name, value in row.items() if name not in _NOT_COMPARED)
        if fault is None and row["id"] in ids:
            fault = "its id is used twice"
        if fault is None and facts in seen:
            fault = f"the same measurement as {seen[facts]}"
        if fault is not None:
            bad.append((row, fault))
            continue
        ids.add(row["id"])
        seen[facts] = row["id"]
        kept.append(row)
    return Sorted(kept, bad)


def _operator_table(rows: Sequence[Row]) -> OperatorTable:
    cells = [operator_cells(row, row["source_repo"]) for row in rows]
    return operator_table([row["gpu"] for row in rows], _by_column(OPERATOR_COLUMNS, cells))


def _by_column(names: Sequence[str], cells: Iterable[Cells]) -> Mapping[str, Sequence[str]]:
    columns = list(zip(*cells, strict=True)) or [()] * len(names)
    return dict(zip(names, columns, strict=True))


def _read(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        rows: list[Row] = [
            {name: value or "" for name, value in row.items() if name}
            for row in csv.DictReader(file)
        ]
    return sorted(rows, key=lambda row: _natural(row.get("id", "")))


def _natural(text: str) -> tuple[str, int, str]:
    """Sort key that puts ``ns9`` before ``ns10``; ids without a number sort as text."""
    found = re.fullmatch(r"([a-z]+)(\d+)", text)
    return (found[1], int(found[2]), text) if found else (text, 0, text)


def _files(done: Mapping[str, Sorted], book: Book) -> Mapping[str, Packed]:
    """Every CSV file to write, by its path: tables by GPU, measured runs by repository."""
    rows: dict[tuple[str, str], list[Cells]] = {}
    for name, table in done.items():
        for row in table.kept:
            cells = _CELLS[name](row, book.key(row))
            of = row["source_repo"].rpartition("/")[2] if name == "measurements" else row["gpu"]
            rows.setdefault((name, re.sub(r"[^a-z0-9.]+", "-", of.lower())), []).append(cells)
    files = {f"{name}/{file}.csv": Packed(_COLUMNS[name], r) for (name, file), r in rows.items()}
    for name, table in done.items():
        files[f"quarantine/{name}.csv"] = _refused(table, book)
    return files


def _refused(table: Sorted, book: Book) -> Packed:
    """A quarantine file: the raw columns, the source as its key."""
    if not table.quarantined:
        return Packed(QUARANTINE_COLUMNS, [])
    hidden = {"id", "source_repo", "source_commit", "license"}
    rest = [name for name in table.quarantined[0][0] if name not in hidden]
    rows = [
        (row["id"], book.key(row), reason, *(row.get(name, "") for name in rest))
        for row, reason in table.quarantined
    ]
    return Packed((*QUARANTINE_COLUMNS, *rest), rows)


def _write_sources(root: Path, known: Mapping[str, Source]) -> None:
    """``sources.yaml``, and SOURCES.md: one line a repository and licence, its commits below."""
    entries = {key: asdict(source) for key, source in known.items()}
    for entry in entries.values():
        del entry["key"]
    text = yaml.safe_dump(entries, sort_keys=True, allow_unicode=True, width=1000)
    (root / "sources.yaml").write_text(text, encoding="utf-8")
    columns = [
        Counter(row[1] for path in (root / folder).glob("*.csv") for row in _stored(path))
        for folder in (*TABLES, "quarantine")
    ]
    grouped: dict[tuple[str, str], list[Source]] = {}
    for _, source in sorted(known.items()):
        name = source.repository.removeprefix("github:")
        grouped.setdefault((name, source.license), []).append(source)
    rows, commits = [], []
    for (name, license_), members in sorted(grouped.items()):
        counts = [sum(column[source.key] for source in members) for column in columns]
        cells = [name, license_, len(members), *counts]
        rows.append("| " + " | ".join(str(cell) for cell in cells) + " |")
        listed = ", ".join(f"`{source.commit}`" for source in members)
        commits.append(f"- {name} ({license_}): {listed}")
    totals = " | ".join(str(column.total()) for column in columns)
    lines = [_HEAD, *rows, f"| all | | | {totals} |", "", "## Commits", "", *commits]
    (root / "SOURCES.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


_SORT = {
    "measurements": sort_measurements,
    "operators": sort_operators,
    "collectives": sort_collectives,
}


def main(arguments: Sequence[str]) -> int:
    """Import one directory and print what became of its rows."""
    *option, directory = arguments or [""]
    if option not in ([], ["--add"]) or not Path(directory).is_dir():
        print("usage: python tools/import_profiles.py [--add] DIR", file=sys.stderr)
        return 2
    take = add_directory if option else import_directory
    for name, table in take(Path(directory)).items():
        counts = f"{len(table.kept)} kept, {table.thinned} thinned"
        print(f"{name}: {counts}, {len(table.quarantined)} quarantined")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
