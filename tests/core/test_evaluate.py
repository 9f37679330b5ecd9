"""Evaluation of a file: every row is predicted or says why not, and none is scored on itself."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import profiles
from predictor.errors import JobError
from predictor.estimate.fitting import Fitted
from predictor.estimate.measurement import Measurement, Row, read_csv, shipped, source_of
from predictor.evaluation.evaluate import (
    CALIBRATION,
    COLUMNS,
    EXCLUDED,
    METHODS,
    MethodReport,
    all_methods,
    draw,
    evaluate,
    leaked,
    write_predictions,
)

NEW = {
    "id": "new",
    "source_repo": "example/new-site",
    "framework": "pytorch 21.06",
    "model": "resnet50",
    "gpu": "a100-sxm4-80gb",
    "gpus": "1",
    "precision": "mixed_fp16_fp32",
    "batch_per_gpu": "256",
    "throughput": "2600",
    "unit": "images/s",
}
BROKEN = (
    NEW | {"id": "no-gpu", "gpu": ""},
    NEW | {"id": "no-model", "model": "no-such-net"},
    NEW | {"id": "no-number", "throughput": "fast"},
)


@pytest.fixture(scope="module")
def file(unseen_runs: tuple[Measurement, ...]) -> list[Row]:
    """Sixty shipped runs that the predictor has not seen, between rows that nobody can read."""
    rows = [m.row for m in unseen_runs[:: len(unseen_runs) // 60]]
    return [*rows[:10], *BROKEN, *rows[10:]]


@pytest.fixture(scope="module")
def reports(file: list[Row], fitted: Fitted) -> list[MethodReport]:
    return evaluate(file, fitted, methods=("full", "physical", "paper"), by=("precision", "tier"))


SLOW_RUNS = tuple(
    NEW
    | {
        "id": f"{model}-{batch}",
        "model": model,
        "batch_per_gpu": str(batch),
        "throughput": "",
        "iteration_s": "60",
    }
    for model in ("resnet50", "vgg16", "bert-large")
    for batch in (8, 16, 32)
)


@pytest.fixture(scope="module")
def calibrated(fitted: Fitted) -> list[MethodReport]:
    return evaluate(SLOW_RUNS, fitted, methods=("full", "physical"), calibrate=2)


class TestEveryRow:
    def test_has_an_outcome_in_its_place(
        self, file: list[Row], reports: list[MethodReport]
    ) -> None:
        for report in reports:
            assert [o.id for o in report.outcomes] == [row["id"] for row in file]
            assert all(o.row is row for o, row in zip(report.outcomes, file, strict=True))

    def test_is_predicted_or_has_a_reason(self, reports: list[MethodReport]) -> None:
        for report in reports:
            for o in report.outcomes:
                assert o.predicted_s is not None or o.reason
                assert (o.ape is None) == bool(o.reason)
            total = report.total
            assert total.rows == total.predicted + sum(total.skipped.values())
            assert total.predicted >= 50

    def test_is_predicted_where_only_the_measured_time_is_missing(self, fitted: Fitted) -> None:
        total = {**SLOW_RUNS[0], "throughput": "", "iteration_s": "", "total_s": "52560"}
        no_batch = {**SLOW_RUNS[0], "batch_per_gpu": "", "global_batch": ""}
        for row in (total, no_batch):
            (outcome,) = evaluate([row], fitted)[0].outcomes
            assert outcome.predicted_s is not None
            assert outcome.reason
            assert outcome.measured_s is None
            assert outcome.ape is None

    def test_says_what_is_wrong_with_it(self, reports: list[MethodReport]) -> None:
        reasons = {o.id: o.reason for o in reports[0].outcomes}
        assert reasons["no-gpu"] == "gpu is empty"
        assert "no-such-net" in reasons["no-model"]
        assert "throughput='fast'" in reasons["no-number"]

    def test_is_in_one_group_of_each_column(self, reports: list[MethodReport]) -> None:
        for report in reports:
            for scores in report.by.values():
                assert sum(s.rows for s in scores.values()) == report.total.rows
                assert sum(s.predicted for s in scores.values()) == report.total.predicted

    def test_with_the_id_of_another_or_none_is_still_itself(self, fitted: Fitted) -> None:
        ids, batches = ("x", "x", "", ""), ("16", "256", "64", "128")
        rows = [NEW | {"id": i, "batch_per_gpu": b} for i, b in zip(ids, batches, strict=True)]
        alone = [evaluate([row], fitted)[0].outcomes[0].predicted_s for row in rows]
        together = [o.predicted_s for o in evaluate(rows, fitted)[0].outcomes]
        assert together == pytest.approx(alone)
        assert len(set(together)) == 4


class TestMethods:
    def test_full_beats_what_learns_nothing(self, reports: list[MethodReport]) -> None:
        full, physical, paper = (r.total.mape_median for r in reports)
        assert full is not None
        assert physical is not None
        assert paper is not None
        assert full < min(physical, paper)

    def test_only_full_has_intervals_and_they_hold_the_prediction(
        self, reports: list[MethodReport]
    ) -> None:
        full, *others = reports
        for o in full.outcomes:
            if o.predicted_s is not None:
                assert o.lower_95 is not None
                assert o.upper_95 is not None
                assert 0 < o.lower_95 < o.upper_95
        assert full.total.coverage_95 is not None
        assert full.total.coverage_95 > 0.8
        assert all(r.total.coverage_95 is None for r in others)

    def test_full_says_what_the_predictor_says(
        self, reports: list[MethodReport], unseen_runs: tuple[Measurement, ...], fitted: Fitted
    ) -> None:
        runs = {m.id: m for m in unseen_runs}
        for o in reports[0].outcomes:
            if o.ape is not None:
                run = runs[o.id]
                prediction = fitted.predictor.predict(run.job)
                assert o.predicted_s == pytest.approx(prediction.step_s)
                assert o.tier == prediction.tier.value


class TestCalibration:
    def test_its_rows_are_left_out_of_the_score(self, calibrated: list[MethodReport]) -> None:
        for report in calibrated:
            used = [o for o in report.outcomes if o.reason == CALIBRATION]
            assert len(used) == report.total.skipped[CALIBRATION] == 2
            assert all(o.predicted_s is None and o.measured_s == 60 for o in used)
            assert report.total.predicted == len(SLOW_RUNS) - 2

    def test_two_absurdly_slow_runs_of_a_site_slow_down_the_rest(
        self, calibrated: list[MethodReport], fitted: Fitted
    ) -> None:
        before = {o.id: o.predicted_s for o in evaluate(SLOW_RUNS, fitted)[0].outcomes}
        for o in calibrated[0].outcomes:
            if o.predicted_s is not None:
                assert o.predicted_s > 1.5 * (before[o.id] or 0)

    def test_the_predictor_itself_is_left_as_it_was(
        self, calibrated: list[MethodReport], fitted: Fitted
    ) -> None:
        assert "new-site" not in fitted.predictor.residual.vocabulary.sources

    @pytest.mark.parametrize(
        ("by", "groups"), [("stack", 2), ("source", 1), ("model", 6), ("model,stack", 6)]
    )
    def test_runs_are_drawn_from_each_group(self, by: str, groups: int, fitted: Fitted) -> None:
        rows = [*SLOW_RUNS, *({**r, "id": f"{r['id']}-v", "gpu": "v100"} for r in SLOW_RUNS)]
        if by == "model":
            rows = [*SLOW_RUNS, *({**r, "source_repo": "a/other"} for r in SLOW_RUNS)]
        report = evaluate(rows, fitted, methods=("physical",), calibrate=1, calibrate_by=by)[0]
        assert report.total.skipped == {CALIBRATION: groups}

    def test_a_draw_repeats_by_its_seed(self, unseen_runs: tuple[Measurement, ...]) -> None:
        drawn = [draw(unseen_runs[:300], 2, ("source",), seed) for seed in (1, 1, 2)]
        assert drawn[0] == drawn[1] != drawn[2]

    def test_runs_of_another_file_are_shown_and_not_scored(self, fitted: Fitted) -> None:
        given, asked = [SLOW_RUNS[0], SLOW_RUNS[3]], SLOW_RUNS[1:]
        shown = evaluate(asked, fitted, methods=("full", "physical"), given=given)
        alone = evaluate(asked, fitted, methods=("full", "physical"))
        for report, before in zip(shown, alone, strict=True):
            assert report.total.skipped == {CALIBRATION: 1}  # the run that both files hold
            for o, other in zip(report.outcomes, before.outcomes, strict=True):
                assert o.reason or o.predicted_s > 1.5 * (other.predicted_s or 0)

    def test_groups_that_do_not_exist_are_refused(self, fitted: Fitted) -> None:
        with pytest.raises(JobError, match=r"calibrate_by='gpu'.*stack, source, model"):
            evaluate([NEW], fitted, calibrate_by="gpu")


class TestLeaks:
    def test_excluded_rows_are_neither_scored_nor_calibrated_with(
        self, file: list[Row], fitted: Fitted
    ) -> None:
        out = {row["id"] for row in file[:20]}
        report = evaluate(
            file, fitted, methods=("physical",), exclude_ids=out, calibrate=1, calibrate_by="source"
        )[0]
        assert {o.id for o in report.outcomes if o.reason == EXCLUDED} == out
        assert report.total.skipped[EXCLUDED] == 20
        sources = {source_of(row) for row in file[20:]}
        assert report.total.skipped[CALIBRATION] == len(sources)
        assert all(o.predicted_s is None for o in report.outcomes if o.id in out)

    def test_a_shipped_row_is_known_by_id(self) -> None:
        runs = shipped()[::500]
        assert {m.id for m in leaked([{"id": m.id} for m in runs])} == {m.id for m in runs}

    def test_a_shipped_row_under_another_id_is_known_by_what_it_says(self) -> None:
        for m in shipped()[::500]:
            renamed = {
                k: f"{float(v):.1f}" if k in ("gpus", "batch_per_gpu") and v else v.upper()
                for k, v in m.row.items()
            }
            assert m.id in {found.id for found in leaked([renamed | {"id": "mine"}])}

    def test_another_run_of_the_same_job_is_no_leak(self) -> None:
        m = next(m for m in shipped() if m.row["throughput"])
        faster = str(1.07 * float(m.row["throughput"]))
        assert leaked([{**m.row, "id": "mine", "throughput": faster}]) == []
        assert leaked([NEW]) == []


class TestOutput:
    def test_predictions_are_one_line_a_row(
        self, file: list[Row], reports: list[MethodReport], tmp_path: Path
    ) -> None:
        path = tmp_path / "predictions.csv"
        write_predictions(path, reports[0].outcomes)
        with path.open(newline="") as text:
            lines = list(csv.DictReader(text))
        assert tuple(lines[0]) == COLUMNS
        for line, o in zip(lines, reports[0].outcomes, strict=True):
            assert line["id"] == o.id
            assert bool(line["ape"]) != bool(line["reason"])
            if o.predicted_s is not None:
                assert float(line["predicted_s"]) == pytest.approx(o.predicted_s, rel=1e-5)
            if o.ape is not None:
                assert float(line["ape"]) == pytest.approx(o.ape, rel=1e-5, abs=1e-9)

    def test_a_report_is_plain_json(self, reports: list[MethodReport]) -> None:
        for report in reports:
            again = json.loads(json.dumps(report.as_dict(), allow_nan=False))
            assert again["method"] == report.method
            assert again["rows"] == report.total.rows
            assert again["by"].keys() == {"precision", "tier"}

    def test_method_names(self) -> None:
        assert all_methods("all") == METHODS
        assert all_methods("paper") == ("paper",)
        with pytest.raises(JobError, match=r"method='magic'.*full.*all"):
            all_methods("magic")


def test_well_known_trainings_stand_beside_their_public_records(fitted: Fitted) -> None:
    rows = read_csv(Path(profiles.__file__).parent / "samples" / "best-known.csv")
    assert len(rows) == 12
    assert all("@" in row["record"] for row in rows)
    (report,) = evaluate(rows, fitted)
    assert report.total.predicted == len(rows)
    assert report.total.mape_median is not None
    assert report.total.mape_median < 0.25
