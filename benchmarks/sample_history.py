"""Writes the sample history that ships: generated jobs, marked as a sample in every row.

Run as ``python benchmarks/sample_history.py``; the same file comes out each time.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sample_cluster.generate import generate

from predictor.site.capacity.jobs import COLUMNS
from predictor.site.history import tables
from predictor.site.history.rows import row_of
from predictor.site.history.run import Run
from predictor.site.replay import Pool

SEED, DAYS, JOBS_PER_DAY = 7, 56.0, 145.0
POOLS = tuple(
    Pool(name=name, gpus=24, gpus_per_node=8)
    for name in ("v100-sxm2-16gb", "a100-sxm4-80gb", "h100-sxm5-80gb")
)
FILE = Path(__file__).resolve().parents[1] / "profiles" / "samples" / "history.csv.gz"


def main() -> None:
    """Write the file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for run in generate(seed=SEED, days=DAYS, pools=POOLS, jobs_per_day=JOBS_PER_DAY):
        writer.writerow(_cells(run))
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_bytes(gzip.compress(text.getvalue().encode(), 9, mtime=0))
    print(f"wrote {FILE.name}: {FILE.stat().st_size:,} bytes")


def _cells(run: Run) -> list[object]:
    """Times in whole seconds, as schedulers tell them."""
    row: Mapping[str, object] = dict(zip(tables.COLUMNS, row_of(run, 0.0), strict=True))
    return [round(cell) if isinstance(cell, float) else cell for cell in map(row.get, COLUMNS)]


if __name__ == "__main__":
    main()
