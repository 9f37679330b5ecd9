"""`precision-time evaluate` and `validate`: how wrong predictions of measured runs are."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import JobError, MeasurementError, reason_of
from ..units import percent
from .console import format_option, progress, show_json, show_table, warn
from .options import listed_options, predictor, refit

if TYPE_CHECKING:
    from ..estimate.fitting import Fitted
    from ..estimate.measurement import Row
    from ..evaluation.evaluate import MethodReport, Score
    from ..evaluation.validator import Figure, IntervalCoverage

MAIN = "full"
MOST_WORDS = 12  # shown one by one
COMPUTED = ("tier", "source", "stack")  # columns that an evaluation adds to those of the file
STAGES = 11  # that a validation tells of
# Methods that need no fitted row: `full` unless it is calibrated, `paper` always.
FROM_STORE = {"full", "paper"}
COLUMNS = ("rows", "predicted", "skipped", "mean", "median", "p90", "inside 95 %", "half width")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@listed_options("evaluate")
@format_option
def evaluate(
    file: Path,
    method: str,
    given: Path | None,
    by: str | None,
    exclude_ids: str | None,
    predictions: Path | None,
    trained_without: Path | None,
    version: str | None,
    form: str,
    **calibration: Any,
) -> None:
    """Predict every run of FILE, and score the predictions against what was measured.

    FILE is a CSV with the columns model, gpu, gpus, precision, batch_per_gpu (or batch_size) or
    global_batch, and throughput with its unit or iteration_s (step_s) in seconds; see the files of
    profiles/measurements for more. Errors are |predicted - measured| / measured of the step time.
    A row that cannot be predicted is counted under its reason.
    """
    from ..estimate.measurement import read_csv
    from ..evaluation.evaluate import all_methods, calibration_keys, leaked
    from ..evaluation.evaluate import evaluate as run

    methods = all_methods(method)
    calibration_keys(calibration["calibrate_by"])  # before minutes of fitting
    if predictions is not None and not predictions.absolute().parent.is_dir():
        raise JobError("predictions", str(predictions), "a file in a folder that exists")
    rows = read_csv(file)
    warn_of_unknown_words(rows)
    columns, excluded = _grouping(by, rows), _ids(exclude_ids)
    held_out = None if trained_without is None else read_csv(trained_without)
    shown = [] if given is None else _given(given)
    if held_out is None and (found := len(leaked(rows))):
        warn(
            f"{found} of the runs are also in profiles/, and taught the predictor: their errors "
            "are too small; --trained-without FILE leaves them out of the fit"
        )
    reports = run(
        rows,
        fitted_for(methods, calibration["calibrate"] + len(shown), held_out, version),
        methods=methods,
        by=columns,
        given=shown,
        exclude_ids=excluded,
        **calibration,
    )
    if predictions is not None:
        _write(predictions, reports)
    if form == "text":
        _show(reports)
    elif method == "all":
        show_json({"methods": {r.method: r.as_dict() for r in reports}})
    else:
        show_json(reports[0].as_dict())


def fitted_for(
    methods: Sequence[str], shown: int, held_out: Sequence[Row] | None, version: str | None
) -> Fitted:
    """The stored predictor where the methods need no fitted row, else a new fit.

    ``shown`` is zero where the methods are shown no run before they answer.
    """
    from ..estimate.fitting import Fitted
    from ..estimate.measurement import shipped
    from ..evaluation.evaluate import leaked

    calibrated = shown > 0 and MAIN in methods
    if held_out is None and not calibrated and FROM_STORE.issuperset(methods):
        return Fitted(predictor(version), ())
    if version is not None:
        raise JobError(
            "version",
            version,
            "a stored predictor serves --method full or paper without --calibrate, --given "
            "and --trained-without; leave --version out to fit one",
        )
    if held_out is None:
        return refit()
    known = {m.id for m in leaked(held_out)}
    return refit([m for m in shipped() if m.id not in known])


def warn_of_unknown_words(rows: Sequence[Row]) -> None:
    """Count on stderr the words of other people's tables that say nothing to us."""
    from ..estimate.measurement import unknown_words

    counts = Counter(word for row in rows for word in unknown_words(row))
    if counts:
        shown = ", ".join(f"{word} ({n})" for word, n in counts.most_common(MOST_WORDS))
        more = len(counts) - MOST_WORDS
        warn(f"unknown words are ignored: {shown}" + (f" and {more} others" if more > 0 else ""))


def _grouping(text: str | None, rows: Sequence[Row]) -> tuple[str, ...]:
    """The columns of ``--by``; raises JobError for one that the file does not have."""
    columns = tuple(c.strip() for c in (text or "").split(",") if c.strip())
    known = dict.fromkeys((*COMPUTED, *rows[0]))
    for column in columns:
        if column not in known:
            raise JobError("by", column, f"columns are {', '.join(known)}")
    return columns


def _ids(text: str | None) -> frozenset[str]:
    """Ids listed with commas, or those of a file: its column ``id``, else one a line.

    Raises MeasurementError where the file cannot be read.
    """
    if text is None:
        return frozenset()
    path = Path(text)
    try:
        if not path.is_file():
            return frozenset(part.strip() for part in text.split(",") if part.strip())
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise MeasurementError(f"{text} cannot be read: {reason_of(error)}") from error
    if lines and "id" in next(csv.reader(lines[:1])):
        return frozenset(row["id"] for row in csv.DictReader(lines))
    return frozenset(line.strip() for line in lines if line.strip())


def _given(path: Path) -> Sequence[Row]:
    """The rows of a file that are shown first; those that tell no step time are counted."""
    from ..estimate.measurement import Unreadable, parse, read_csv

    rows = read_csv(path)
    warn_of_unknown_words(rows)
    unreadable = [one for one in parse(rows) if isinstance(one, Unreadable)]
    if unreadable:
        first = unreadable[0]
        warn(
            f"{path.name}: {len(unreadable)} of {len(rows)} runs are not shown: {first.id}: "
            f"{first.reason}"
        )
    return rows


def _write(path: Path, reports: Sequence[MethodReport]) -> None:
    from ..evaluation.evaluate import write_predictions

    for report in reports:
        other = len(reports) > 1 and report.method != MAIN
        target = path.with_name(f"{path.stem}.{report.method}{path.suffix}") if other else path
        try:
            write_predictions(target, report.outcomes)
        except OSError as error:
            raise MeasurementError(f"{target} cannot be written: {reason_of(error)}") from error


def _show(reports: Sequence[MethodReport]) -> None:
    show_table(("method", *COLUMNS), [(r.method, *_cells(r.total)) for r in reports])
    # Why rows were skipped, most frequent first; once where all methods skipped the same.
    skipped = {r.method: r.total.skipped for r in reports}
    same = len({tuple(sorted(s.items())) for s in skipped.values()}) == 1
    for method, reasons in list(skipped.items())[: 1 if same else None]:
        if reasons:
            click.echo("\nskipped" if same else f"\nskipped by {method}")
        for text, number in sorted(reasons.items(), key=lambda item: -item[1]):
            click.echo(f"{number:6d}  {text}")
    for report in reports:
        for column, scores in report.by.items():
            click.echo(f"\n{report.method} by {column}")
            rows = [(value or "(empty)", *_cells(score)) for value, score in scores.items()]
            show_table((column, *COLUMNS), rows)


def _cells(score: Score) -> tuple[str, ...]:
    errors = (score.mape_mean, score.mape_median, score.p90, score.coverage_95)
    skipped = sum(score.skipped.values())
    counts = (score.rows, score.predicted, skipped)
    return (*map(str, counts), *map(percent, errors), percent(score.half_width_95_median))


@click.command()
@listed_options("validate")
@format_option
def validate(protocol: str, no_write: bool, docs: Path, form: str) -> None:
    """Cross-validate on the shipped measurements, from the easiest protocol to the hardest.

    Every figure is out of sample. Writes accuracy.md and plots unless told otherwise.
    """
    from ..evaluation.protocols import validate as run
    from ..evaluation.report import write

    fitted, numbers = refit(), count()
    with progress("validating") as bar:
        validation = run(fitted, lambda stage: bar(stage, next(numbers) / STAGES))
    figures = [
        f for f in validation.figures if protocol == "all" or f.protocol.startswith(protocol)
    ]
    if not figures:
        names = "; ".join(dict.fromkeys(f.protocol for f in validation.figures))
        raise JobError("protocol", protocol, f"a start of one of: {names}")
    if form == "json":
        coverages = [_plain(one) for one in validation.coverages]
        show_json({"figures": [_plain(one) for one in figures], "coverages": coverages})
    else:
        _show_validation(figures, validation.coverages if protocol == "all" else ())
    if not no_write:
        try:
            written = write(validation, docs)
        except OSError as error:
            raise JobError("docs", str(docs), f"cannot be written: {error.strerror}") from error
        click.echo(f"wrote {', '.join(map(str, written))}", err=True)


def _show_validation(figures: Sequence[Figure], coverages: Sequence[IntervalCoverage]) -> None:
    rows = [
        (f.protocol, f.method, *map(percent, (f.mean, f.median, f.p90)), str(f.n)) for f in figures
    ]
    show_table(("protocol", "method", "mean", "median", "p90", "n"), rows, left=2)
    if coverages:
        click.echo()
        rows = [
            (c.scope, *map(percent, (c.level, c.coverage, c.half_width)), str(c.n))
            for c in coverages
        ]
        show_table(("novelty", "interval", "inside", "half width", "n"), rows)


def _plain(row: Figure | IntervalCoverage) -> dict[str, object]:
    """Its fields; None for NaN, which JSON does not have."""
    return {name: None if value != value else value for name, value in asdict(row).items()}
