"""Prints rows of ended jobs as sacct does: captured rows with other ids, times, users and words.

python sacct.py ENDED.txt ROWS DAYS FIRST_S [options of sacct]

Every job is one of its own: four of ten carry a decision of ours, three a comment, three neither.
Rows are spread evenly over the days, and only those that end in the period asked for are printed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

MARK = "@MARK@"
DAY_S = 86400
CHUNK = 2000  # rows of one write
MODELS = ("resnet50", "bert-large", "gpt2", "vit-b-16", "unet-medical")
# Places of the fields that differ, in the order of sources/accounting.py
ID, USER, SUBMIT, START, END, NAME, COMMENT, DECISION = 0, 2, 7, 8, 9, 17, 18, 19
ALLOCATED, NODES, WIDTH = 11, 14, 21  # as captured; the directory comes behind


def templates(path: Path) -> list[list[str]]:
    """The captured rows of jobs that ran, as fields: those with GPUs, and one without."""
    fields = path.read_text(errors="replace").replace("\n", "").split(MARK)[:-1]
    rows = [fields[i : i + WIDTH] for i in range(0, len(fields), WIDTH)]
    ran = [row for row in rows if row[START].isdigit() and row[NODES]]
    gpus = [row for row in ran if "gres/gpu" in row[ALLOCATED]]
    return [*gpus, next(row for row in ran if row not in gpus)]


def rows(
    found: list[list[str]], count: int, days: int, first_s: int, period_s: tuple[float, float]
) -> Iterator[list[str]]:
    """The rows of a period, the oldest end first."""
    step_s = days * DAY_S / count
    begin, end = (math.ceil((at_s - first_s) / step_s) for at_s in period_s)
    for i in range(max(0, begin), min(count, end)):
        row = found[i % len(found)].copy()
        end_s = int(first_s + i * step_s)
        run_s = 600 + i * 7919 % 80_000
        row[ID], row[USER], row[NAME] = str(100_000 + i), f"user{i % 997}", f"train-{i % 10_007}"
        row[SUBMIT], row[START], row[END] = str(end_s - run_s - 60), str(end_s - run_s), str(end_s)
        row[COMMENT], row[DECISION] = words(i, run_s)
        yield [*row, f"/home/user{i % 997}/work"]


def words(i: int, run_s: int) -> tuple[str, str]:
    """Comment and AdminComment of a job."""
    said = f"model={MODELS[i % 5]} precision=amp batch={16 << i % 5} epochs={i % 90 + 1}"
    if i % 10 < 4:
        return said, (
            f"precision-time v=1 limit={run_s // 60} p50_s={run_s * 0.8:g} hi_s={run_s:g} q=0.95 "
            f"step_s=0.{i % 899 + 100} gpu=a100-sxm4-80gb gpus={i % 8 + 1} tier=site "
            f"version=20250101T000000-0a1b2c3d job: {said}"
        )
    return (said, "") if i % 10 < 7 else ("", "")


def main(ended: str, count: str, days: str, first_s: str, *options: str) -> int:
    """Print the rows of the period that the options name."""
    given = dict(option.removeprefix("--").partition("=")[::2] for option in options)
    mark = given["delimiter"]
    period_s = _unix(given["starttime"]), _unix(given["endtime"])
    lines: list[str] = []
    found = templates(Path(ended))
    for row in rows(found, int(count), int(days), int(first_s), period_s):
        lines.append(mark.join(row) + mark + "\n")
        if len(lines) >= CHUNK:
            sys.stdout.write("".join(lines))
            lines.clear()
    sys.stdout.write("".join(lines))
    return 0


def _unix(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
