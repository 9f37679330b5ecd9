"""How far the time laws are off on each GPU, fitted on all others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from predictor.evaluation.protocols import errors_on
from predictor.evaluation.validator import OperatorError
from predictor.physics.operator_time.samples import samples_of
from profiles.gpus import CPU, Gpu, gpus
from profiles.tables import OperatorTable, operators


def without_own_rows(
    table: OperatorTable, gpus: Mapping[str, Gpu], *, names: tuple[str, ...] = ()
) -> Iterator[OperatorError]:
    """Errors on every GPU of ``names`` (default: all with tables), fitted on all others."""
    samples = samples_of(table, {name: gpu for name, gpu in gpus.items() if gpu.kind != CPU})
    for name in names or tuple(str(gpu) for gpu in np.unique(samples.gpu)):
        yield from errors_on(name, samples, samples.gpu == name, gpus)


def main() -> None:
    """Print as Markdown the errors of each GPU left out: in all, by GPU, by operator, by both."""
    found = list(without_own_rows(operators(), gpus()))
    parts = {"all": found}
    for e in found:
        parts.setdefault(e.gpu, []).append(e)
        parts.setdefault(e.group.partition("/")[0], []).append(e)
    print("| GPU left out, or operator | rows | mean | median |\n|---|---|---|---|")
    for name, of in parts.items():
        rows = np.array([e.rows for e in of])
        mean = float(rows @ np.array([e.mean for e in of]) / rows.sum())
        middle = float(np.median(np.repeat([e.median for e in of], rows)))
        print(f"| {name} | {rows.sum()} | {mean:.1%} | {middle:.1%} |")
    print("\n| GPU left out | operator | rows | mean | median | bias |\n|---|---|---|---|---|---|")
    for e in found:
        print(f"| {e.gpu} | {e.group} | {e.rows} | {e.mean:.1%} | {e.median:.1%} | {e.bias:+.1%} |")


if __name__ == "__main__":
    main()
