"""`precision-time evaluate`: every row is scored, or counted under its reason."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from predictor.estimate.fitting import Fitted
from predictor.estimate.measurement import shipped

from .conftest import write_csv

Run = Callable[..., Result]
RunJson = Callable[..., Any]
Rows = tuple[Mapping[str, str], ...]

KEYS = {
    "rows",
    "predicted",
    "skipped",
    "mape_mean",
    "mape_median",
    "p90",
    "coverage_95",
    "half_width_95_median",
    "by",
    "method",
}
UNKNOWN = "model 'no-such-net' is not in the catalog"
TIMELESS = "no throughput, iteration_s, or total_s with steps"

pytestmark = pytest.mark.usefixtures("fitted")


def written(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_row_is_predicted_or_has_a_reason(run_json: RunJson, file: Path) -> None:
    found = run_json("evaluate", str(file))
    assert found.keys() == KEYS
    assert (found["rows"], found["predicted"], found["method"]) == (14, 12, "full")
    assert found["skipped"] == {UNKNOWN: 1, TIMELESS: 1}
    assert 0 < found["mape_median"] <= found["p90"]


def test_predictions_file_has_a_line_a_row_that_gives_the_score(
    run_json: RunJson, file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.csv"
    found = run_json("evaluate", str(file), "--predictions", str(out))
    lines = written(out)
    assert [line["id"] for line in lines] == [row["id"] for row in written(file)]
    errors = [float(line["ape"]) for line in lines if line["ape"]]
    assert sum(errors) / len(errors) == pytest.approx(found["mape_mean"], rel=1e-4)
    assert {line["id"]: line["reason"] for line in lines if line["reason"]} == {
        "unknown": UNKNOWN,
        "timeless": TIMELESS,
    }


def test_groups_hold_all_rows_between_them(run_json: RunJson, file: Path) -> None:
    found = run_json("evaluate", str(file), "--by", "model,tier")
    assert found["by"].keys() == {"model", "tier"}
    assert sum(s["rows"] for s in found["by"]["model"].values()) == 14
    assert found["by"]["model"]["no-such-net"]["predicted"] == 0


def test_calibration_rows_are_not_scored(
    run_json: RunJson, file: Path, rows: Rows, no_refit: list[Any]
) -> None:
    found = run_json(
        "evaluate",
        str(file),
        "--method",
        "physical",
        "--calibrate",
        "2",
        "--calibrate-by",
        "source",
    )
    assert found["skipped"]["calibration"] == 2
    assert found["predicted"] == len(rows) - 2
    assert no_refit == [None]


def test_given_runs_need_a_fit_and_those_of_no_use_are_counted(
    run: Run, file: Path, rows: Rows, tmp_path: Path, no_refit: list[Any]
) -> None:
    given = tmp_path / "given.csv"
    write_csv(given, [rows[0], {**rows[1], "gpu": ""}])
    found = run("evaluate", str(file), "--method", "physical", "--given", str(given))
    assert "given.csv: 1 of 2 runs are not shown" in found.stderr
    assert "1  calibration" in found.stdout
    assert no_refit == [None]


def test_the_seed_draws_other_calibration_rows(run: Run, file: Path, tmp_path: Path) -> None:
    drawn = set()
    for seed in ("0", "1", "2"):
        out = tmp_path / f"{seed}.csv"
        words = ("--method", "paper", "--calibrate", "2", "--seed", seed, "--predictions", str(out))
        run("evaluate", str(file), *words)
        drawn.add(tuple(x["id"] for x in written(out) if x["reason"] == "calibration"))
    assert len(drawn) > 1


@pytest.mark.parametrize("listed", ["own-1,own-2", "own-1\nown-2\n", "note,id\nx,own-1\ny,own-2\n"])
def test_excluded_ids_are_not_scored(
    run_json: RunJson, file: Path, tmp_path: Path, listed: str
) -> None:
    words = listed
    if "\n" in listed:
        (tmp_path / "ids").write_text(listed)
        words = str(tmp_path / "ids")
    found = run_json("evaluate", str(file), "--method", "paper", "--exclude-ids", words)
    assert (found["skipped"]["excluded"], found["predicted"]) == (2, 10)


def test_all_methods_stand_side_by_side(
    run_json: RunJson,
    file: Path,
    tmp_path: Path,
    fitted: Fitted,
    no_refit: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("predictor.evaluation.evaluate.blind_of", lambda fitted: fitted)
    out = tmp_path / "out.csv"
    found = run_json("evaluate", str(file), "--method", "all", "--predictions", str(out))
    assert found.keys() == {"methods"}
    assert list(found["methods"]) == ["full", "physical", "paper", "blind"]
    assert all(scores.keys() == KEYS for scores in found["methods"].values())
    names = {p.name for p in tmp_path.glob("out*.csv")}
    assert names == {"out.csv", "out.physical.csv", "out.paper.csv", "out.blind.csv"}
    full = next(x for x in written(out) if x["predicted_s"])
    paper = next(x for x in written(tmp_path / "out.paper.csv") if x["predicted_s"])
    assert full["lower_95"]
    assert not paper["lower_95"]


def test_runs_that_taught_the_predictor_are_pointed_out(run: Run, tmp_path: Path) -> None:
    known = [m.row for m in shipped() if m.source == "gavel"][:3]
    path = write_csv(tmp_path / "known.csv", known)
    assert "3 of the runs are also in profiles/" in run("evaluate", str(path)).stderr


def test_trained_without_leaves_them_out_of_the_fit(
    run: Run, tmp_path: Path, no_refit: list[Any]
) -> None:
    held_out = [m for m in shipped() if m.source == "gavel"][:3]
    path = write_csv(tmp_path / "known.csv", [m.row for m in held_out])
    result = run("evaluate", str(path), "--trained-without", str(path))
    (fitted_on,) = no_refit
    ids = {m.id for m in fitted_on}
    assert ids.isdisjoint(m.id for m in held_out)
    assert {m.id for m in shipped()} - ids >= {m.id for m in held_out}
    assert "also in profiles/" not in result.stderr


def test_text_has_a_table_and_the_reasons(run: Run, file: Path) -> None:
    lines = run("evaluate", str(file), "--by", "gpu").stdout.splitlines()
    assert lines[0].split()[:4] == ["method", "rows", "predicted", "skipped"]
    assert lines[1].split()[:4] == ["full", "14", "12", "2"]
    assert f"     1  {UNKNOWN}" in lines
    assert "full by gpu" in lines


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no column model, gpu, gpus, precision"),
        ("id,model,gpu,gpus,precision\n", "holds no rows"),
        ("id,model,gpus,precision\nx,y,1,fp32\n", "no column gpu"),
    ],
)
def test_a_file_without_rows_is_an_error(run: Run, tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(content)
    result = run("evaluate", str(path), code=2)
    assert result.stderr.startswith("error: ")
    assert said in result.stderr


def test_a_file_that_cannot_be_read_is_an_error(run: Run, tmp_path: Path) -> None:
    binary = tmp_path / "binary.csv"
    binary.write_bytes(bytes(range(128, 256)))
    for path in (tmp_path, tmp_path / "missing.csv", binary):
        assert "cannot be read" in run("evaluate", str(path), code=2).stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--by", "model,colour"), ("by='colour'", "tier", "framework")),
        (("--method", "magic"), ("method='magic'", "physical")),
        (("--calibrate-by", "planet"), ("calibrate_by='planet'", "stack")),
        (("--predictions", "no/such/folder/out.csv"), ("predictions=", "folder that exists")),
        (("--method", "blind", "--version", "v1"), ("version='v1'", "--trained-without")),
    ],
)
def test_an_impossible_argument_is_named(
    run: Run, file: Path, words: tuple[str, ...], said: tuple[str, ...]
) -> None:
    error = run("evaluate", str(file), *words, code=2).stderr
    assert [part for part in said if part not in error] == []


def test_rows_without_an_id_are_named_for_their_line(
    run_json: RunJson, rows: Rows, tmp_path: Path
) -> None:
    path = write_csv(tmp_path / "nameless.csv", [{**row, "id": ""} for row in rows[:3]])
    out = tmp_path / "out.csv"
    words = ("--method", "paper", "--predictions", str(out))
    assert run_json("evaluate", str(path), *words)["predicted"] == 3
    assert [line["id"] for line in written(out)] == [f"nameless row {n}" for n in (1, 2, 3)]
