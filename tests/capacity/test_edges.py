"""Odd histories make a whole report in every form: right, or set aside with the reason."""

from __future__ import annotations

import csv
import json
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from capacity_jobs import DAY_S, START_S, frame, job
from jsonschema import Draft202012Validator
from prometheus_client.parser import text_string_to_metric_families

from predictor.estimate.fitting import Fitted
from predictor.estimate.store import load_predictor
from predictor.site.capacity.jobs import JobSource
from predictor.site.capacity.render.files import prometheus_text, render_json, write_csvs
from predictor.site.capacity.render.mail import render_markdown
from predictor.site.capacity.render.page import render_html
from predictor.site.capacity.render.words import read
from predictor.site.capacity.report import Wanted, make_report
from predictor.site.capacity.report_data import CapacityReport, Dimension
from predictor.site.capacity.whatif import ClusterChange
from predictor.site.history.ingest import Period
from predictor.site.replay import Pool

PERIOD = Period(since_s=START_S, until_s=START_S + 7 * DAY_S)
V100 = Pool(name="v100-sxm2-16gb", gpus=4)
ASKED = "model=resnet50 precision=fp32 batch_size=64 steps=1000"
NAMES = (
    "<script>x()</script>",
    '"onload="x',
    "=1+1",
    "+1",
    "-1",
    "@x",
    "\t=1",
    "\n=1",
    "\r=1",
    "＝1",
    "a|b\nc",
    "[x](javascript:x)",
    "{{ 7*7 }}",
    "\u202eexe",
    "\x00",
    "é" * 999,
)


class Scripts(HTMLParser):
    """What could run in a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [name for name, _ in attrs if name.startswith("on")]
        self.found += [tag] if tag in ("script", "iframe", "object", "img", "embed") else []


def report_of(
    fitted: Fitted, *jobs: dict[str, Any], plan: ClusterChange | None = None
) -> CapacityReport:
    source = JobSource(frame=frame(jobs), kind="file", name="jobs.csv")
    return make_report(source, PERIOD, fitted.predictor, Wanted(pools=(V100,), plan=plan))


def in_every_form(report: CapacityReport, folder: Path) -> str:
    """The page, once every form was made and read back."""
    Draft202012Validator(json.loads(read("report.schema.json"))).validate(
        json.loads(render_json(report))
    )
    assert list(text_string_to_metric_families(prometheus_text(report)))
    assert render_markdown(report)
    for path in write_csvs(report, folder):
        with path.open(encoding="utf-8", newline="") as lines:
            assert len({len(row) for row in csv.reader(lines)}) == 1
    return render_html(report)


def test_an_empty_history_is_a_report_that_says_so(fitted: Fitted, tmp_path: Path) -> None:
    found = report_of(fitted)
    assert (found.hours.allocated, found.queue, found.opportunities) == (0, (), ())
    page = in_every_form(found, tmp_path)
    assert "No forecast: there is no whole week of history." in page
    idle = found.splits[Dimension.GPU_TYPE][0]
    assert (idle.key, idle.idle_gpu_hours) == (V100.name, pytest.approx(4 * 7 * 24))


def test_one_job_is_a_report(fitted: Fitted, tmp_path: Path) -> None:
    more = ClusterChange(add=(Pool(name=V100.name, gpus=4),))
    found = report_of(fitted, job(asked=ASKED), plan=more)
    in_every_form(found, tmp_path)
    assert found.hours.completed == pytest.approx(1)
    assert [wait.jobs for wait in found.waits] == [1]
    assert found.whatif is not None
    assert found.whatif.changed.jobs == 1


def test_jobs_whose_clock_jumped_are_told_and_count_nowhere(fitted: Fitted, tmp_path: Path) -> None:
    back = job(job_id="back", start_s=START_S + 9, end_s=START_S + 5)
    early = job(job_id="early", start_s=START_S - 5)
    future = job(
        job_id="later",
        submit_s=PERIOD.until_s + 5,
        start_s=PERIOD.until_s + 9,
        end_s=PERIOD.until_s + 99,
    )
    found = report_of(fitted, back, early, future, job())
    assert found.hours.allocated == pytest.approx(1)
    assert sorted(each.example for each in found.origin.set_aside) == ["back", "early"]
    assert found.queue == ()
    page = in_every_form(found, tmp_path)
    assert "a clock jumped" in page
    assert sum(week.measured or 0 for one in found.forecasts for week in one.weeks) == 0


def test_the_local_time_of_the_machine_changes_nothing(
    fitted: Fitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 30 March 2025, 01:00 UTC: an hour is left out in Berlin.
    across_s = 1_743_296_400.0
    row = job(submit_s=across_s - 1800, start_s=across_s - 1800, end_s=across_s + 1800)
    period = Period(since_s=across_s - DAY_S, until_s=across_s + DAY_S)
    pages = []
    for zone in ("UTC", "Europe/Berlin"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        source = JobSource(frame=frame([row]), kind="file", name="jobs.csv")
        found = make_report(source, period, load_predictor())
        assert found.hours.completed == pytest.approx(1)
        pages.append(render_markdown(found).replace(str(found.made_s), ""))
    monkeypatch.undo()
    time.tzset()
    made = [[line for line in page.splitlines() if "Made" not in line] for page in pages]
    assert made[0] == made[1]


def test_types_that_nobody_knows_count_and_are_not_predicted(
    fitted: Fitted, tmp_path: Path
) -> None:
    found = report_of(
        fitted,
        job(job_id="1", gpu_type="homemade-9000", asked=ASKED),
        job(job_id="2", gpu_type=None, asked=ASKED),
        job(job_id="3", gpu_type=""),
        plan=ClusterChange(mixed=True),
    )
    in_every_form(found, tmp_path)
    types = {share.key: share.jobs for share in found.splits[Dimension.GPU_TYPE]}
    assert types == {"homemade-9000": 1, "unknown": 2, V100.name: 0}
    assert found.opportunities == ()
    assert found.idle is None
    assert "homemade-9000" in found.notes[0]


def test_jobs_without_a_limit_are_told_in_no_sum_of_limits(fitted: Fitted, tmp_path: Path) -> None:
    waits = job(job_id="2", limit_s=None, state="pending", start_s=None, end_s=None)
    found = report_of(fitted, job(limit_s=None, asked=ASKED), waits, plan=ClusterChange(mixed=True))
    in_every_form(found, tmp_path)
    [limits] = found.limits
    assert (limits.accuracy, limits.requested_hours, limits.unused_gpu_hours) == (None, 0, 0)
    assert found.wall_time_accuracy is None
    assert [one.job_id for one in found.queue] == ["2"]
    assert found.queue[0].ends_s.high < 30 * DAY_S


def test_no_name_means_anything_in_any_form(fitted: Fitted, tmp_path: Path) -> None:
    rows = [
        job(
            job_id=name,
            name=name,
            user=name,
            account=name,
            partition=name,
            gpu_type=name,
            model=name,
            precision=name,
            asked=name,
            state=state,
            end_s=end_s,
            start_s=None if end_s is None else START_S,
        )
        for name in NAMES
        for state, end_s in (("completed", START_S + 60), ("pending", None))
    ]
    found = report_of(fitted, *rows)
    page = in_every_form(found, tmp_path)
    assert Scripts(page).found == ["script"]
    for path in tmp_path.glob("*.csv"):
        with path.open(encoding="utf-8", newline="") as lines:
            for row in list(csv.reader(lines))[1:]:
                assert not any(cell.startswith(tuple("=+@\t\r\n＝＋＠")) for cell in row)
                assert not any(cell.startswith("-") and not _number(cell) for cell in row)
    text = render_markdown(found)
    assert not re.search(r"(?<!\\)\]\(", text)
    tables = [line for line in text.splitlines() if line.startswith("| ")]
    assert all(line.endswith(" |") for line in tables)


def _number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
