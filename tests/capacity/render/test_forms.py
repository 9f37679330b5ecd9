"""The other forms of a report: Markdown, JSON, CSV, Prometheus, mail, and names hashed."""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import sample_report
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from prometheus_client.parser import text_string_to_metric_families
from pydantic import TypeAdapter

from predictor.errors import HistoryError, JobError, NotInstalledError, ReportError
from predictor.site.capacity.render import mail
from predictor.site.capacity.render.files import prometheus_text, render_json, write_csvs
from predictor.site.capacity.render.mail import render_markdown
from predictor.site.capacity.render.page import render_html
from predictor.site.capacity.render.words import findings, headlines, read, said, savings, shown
from predictor.site.capacity.report import anonymised
from predictor.site.capacity.report_data import CapacityReport

EVERY = (sample_report.full, sample_report.empty, sample_report.hostile)
every_report = pytest.mark.parametrize("make", EVERY, ids=lambda make: make.__name__)
KEY = "0123456789abcdef0123456789abcdef"


class References(HTMLParser):
    """What a page would fetch or lead to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = ("src", "href", "action", "data", "srcset")
        self.found += [value or "" for name, value in attrs if name in names]


def test_the_page_needs_nothing_beside_it() -> None:
    page = render_html(sample_report.full())
    assert {reference[:1] for reference in References(page).found} == {"#", "d"}
    assert "default-src 'none'" in page
    assert not re.search(r"@import|url\((?!#)|https?://", page)


def test_generated_jobs_are_marked_and_others_are_not() -> None:
    sample = sample_report.full()
    real = replace(sample, origin=replace(sample.origin, sample=False))
    for render in (render_html, render_markdown):
        assert "Sample data" in render(sample)
        assert "Sample data" not in render(real)


def test_no_form_for_people_tells_the_password_of_a_history() -> None:
    base = sample_report.full()
    name = "postgresql://ada:secret@db/history"
    report = replace(base, origin=replace(base.origin, name=name))
    for render in (render_html, render_markdown):
        assert "secret" not in render(report)
        assert "postgresql://db/history" in render(report)


@every_report
def test_json_keeps_to_the_schema(make: sample_report.Make) -> None:
    Draft202012Validator(json.loads(read("report.schema.json"))).validate(
        json.loads(render_json(make()))
    )


def generated_schema() -> dict[str, Any]:
    """The schema as it follows from the types."""
    found: dict[str, Any] = TypeAdapter(CapacityReport).json_schema(mode="serialization")
    for part in (found, *found["$defs"].values()):
        if "properties" in part:
            part["additionalProperties"] = False
            part["required"] = list(part["properties"])
    found["properties"] |= {
        "v": {"const": 1, "title": "Version of this schema"},
        "idle": {"anyOf": [{"type": "number"}, {"type": "null"}], "title": "GPU-hours nobody had"},
    }
    found["required"] += ["v", "idle"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


def test_the_shipped_schema_is_that_of_the_types() -> None:
    Draft202012Validator.check_schema(json.loads(read("report.schema.json")))
    assert json.loads(read("report.schema.json")) == generated_schema()


def test_json_of_what_is_not_finite_is_null() -> None:
    report = replace(sample_report.full(), capacity=math.inf)
    assert json.loads(render_json(report))["capacity"] is None


@every_report
def test_csv_files_read_back_square(make: sample_report.Make, tmp_path: Path) -> None:
    written = write_csvs(make(), tmp_path / "csv")
    for path in written:
        with path.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.reader(lines))
        assert len({len(row) for row in rows}) == 1
        assert len(rows) > 1
    assert bool(written) == (make is not sample_report.empty)


def test_csv_holds_exact_sums_and_no_formulas(tmp_path: Path) -> None:
    report = sample_report.full()
    write_csvs(report, tmp_path)
    with (tmp_path / "by-account.csv").open(encoding="utf-8", newline="") as lines:
        total = math.fsum(float(row["gpu_hours"]) for row in csv.DictReader(lines))
    assert total == pytest.approx(report.hours.allocated)
    write_csvs(sample_report.hostile(), tmp_path)
    with (tmp_path / "queue.csv").open(encoding="utf-8", newline="") as lines:
        assert not any(cell.startswith("=") for row in csv.reader(lines) for cell in row)


@every_report
def test_prometheus_can_read_the_gauges(make: sample_report.Make) -> None:
    families = list(text_string_to_metric_families(prometheus_text(make())))
    names = [family.name for family in families]
    assert len(names) == len(set(names)) >= 6
    for family in families:
        assert family.type == "gauge"
        assert not {"user", "account", "job", "model"} & {
            k for s in family.samples for k in s.labels
        }


def test_prometheus_labels_are_bounded_and_lose_no_hour() -> None:
    base = sample_report.full()
    many = sample_report.shares(tuple(f"p{i}" for i in range(500)), 100.0)
    report = replace(base, splits=dict.fromkeys(base.splits, many))
    families = text_string_to_metric_families(prometheus_text(report))
    samples = next(f for f in families if f.name.endswith("_partition_gpu_seconds")).samples
    assert len(samples) == 51 * 6
    assert sum(s.value for s in samples) == pytest.approx(
        3600 * sum(s.hours.allocated for s in many)
    )


@every_report
def test_markdown_says_the_summary_first_and_lets_no_html_through(make: sample_report.Make) -> None:
    text = render_markdown(make())
    first = text.index("**GPU time in use:")
    assert first < (text.index("\n## ") if "\n## " in text else len(text))
    code_free = re.sub(r"^ {4,}.*$", "", text, flags=re.MULTILINE)
    assert not re.search(r"(?<!\\)<", code_free)
    assert "\u202e" not in text


def test_the_summary_holds_five_figures_with_definition_and_evidence() -> None:
    for make in EVERY:
        found = headlines(make())
        assert len(found) == 5
        assert all(h.value and h.detail and h.definition for h in found)
        assert {h.evidence for h in found} == {"measured", "predicted"}


def test_what_to_do_first_is_the_largest() -> None:
    found = findings(sample_report.full())
    assert [a.gpu_hours for a in found] == sorted((a.gpu_hours for a in found), reverse=True)
    assert findings(sample_report.empty()) == ()
    rich = replace(sample_report.full().opportunities[0], saved_gpu_hours=sample_report.wide(1e6))
    first = findings(replace(sample_report.full(), opportunities=(rich,)))[0]
    assert first.command == rich.command


@pytest.mark.parametrize(("gpu_hours", "little"), [(9.0, True), (400.0, False)])
def test_hours_of_a_few_long_jobs_are_not_called_little(gpu_hours: float, little: bool) -> None:
    report = sample_report.full()
    short = replace(report.losses[0], jobs=10, median_run_s=300.0, gpu_hours=gpu_hours)
    told = {
        state: said("losses", 0, replace(short, state=state), report)
        for state in ("cancelled", "failed", "timeout")
    }
    assert ("little was lost" in told["cancelled"]) is little
    assert ("Most fail in the first minutes" in told["failed"]) is little
    assert "estimate" not in told["timeout"]  # runs that were cut off teach it too short a time


def test_findings_of_one_kind_are_added_up_and_no_row_twice() -> None:
    base = sample_report.full()
    row = base.opportunities[0]
    [saving] = savings(replace(base, opportunities=(row, row)))
    assert saving.saved.median == pytest.approx(2 * row.saved_gpu_hours.median)
    assert (saving.rows, saving.first) == (2, row)


def test_what_nobody_knows_has_no_column_on_the_page_and_one_in_the_csv(tmp_path: Path) -> None:
    base = sample_report.full()
    rows = tuple(replace(each, saved_cost=None) for each in base.opportunities)
    report = replace(base, opportunities=rows)
    assert "Saved, EUR" in render_html(base)
    assert "Saved, EUR" not in render_html(report)
    write_csvs(report, tmp_path)
    assert "saved_cost_median" in (tmp_path / "opportunities.csv").read_text("utf-8")


def test_a_name_with_line_ends_stays_in_its_row(tmp_path: Path) -> None:
    base = sample_report.full()
    job = replace(base.queue[0], name="a\r\n=1,2", user="b\rc")
    write_csvs(replace(base, queue=(job,)), tmp_path)
    lines = (tmp_path / "queue.csv").read_bytes().split(b"\n")
    assert len(lines) == 3
    assert b"\r" not in lines[1]


@given(st.text())
def test_a_shown_name_is_short_and_holds_nothing_unseen(name: str) -> None:
    text = shown(name)
    assert len(text) <= 80
    text.encode("utf-8")
    assert not re.search("[\x00-\x1f\x7f\u202a-\u202e\u2066-\u2069]", text)


def test_a_mail_holds_the_text_and_the_page() -> None:
    found = mail.message(sample_report.full(), "hpc@example.org", ["a@example.org", "root"])
    text, page = found.iter_parts()
    assert found["To"] == "a@example.org, root"
    assert text.get_content_type() == "text/plain"
    assert page.get_content_type() == "text/html"
    assert page.get_filename() == "capacity-2024-10-18.html"
    assert page.get_content().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("address", ["-oQ/tmp", "a@b\nBcc: c@d", "a@b, c@d", "", "a b@c"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(JobError, match="email"):
        mail.message(sample_report.empty(), "hpc@example.org", [address])


def test_a_hostile_title_adds_no_header() -> None:
    report = replace(sample_report.empty(), title="x\r\nBcc: evil@example.org")
    found = mail.message(report, "hpc@example.org", ["root"])
    assert "Bcc" not in found


def test_sendmail_gets_the_mail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_sendmail(tmp_path, 'echo "$@" > "$(dirname "$0")/args"; cat > "$(dirname "$0")/mail"')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    mail.send(mail.message(sample_report.empty(), "hpc@example.org", ["root"]))
    assert (tmp_path / "args").read_text() == "-t -i\n"
    assert b"To: root" in (tmp_path / "mail").read_bytes()


def test_a_refusal_of_sendmail_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_sendmail(tmp_path, "cat > /dev/null; echo 'no such user' >&2; exit 67")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(ReportError, match="no such user"):
        mail.send(mail.message(sample_report.empty(), "hpc@example.org", ["root"]))


def test_without_sendmail_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail.shutil, "which", lambda *_, **__: None)
    with pytest.raises(NotInstalledError, match="sendmail"):
        mail.sendmail()


def fake_sendmail(folder: Path, script: str) -> None:
    program = folder / "sendmail"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_hashed_names_leave_no_clear_one_in_any_form(tmp_path: Path) -> None:
    key = tmp_path / "site.key"
    key.write_text(KEY)
    key.chmod(0o600)
    report = anonymised(sample_report.full(), key)
    for text in (render_html(report), render_markdown(report), render_json(report)):
        assert not re.search(r"\b(edsger|grace|lab\d\d|train-\d+)\b", text)
    assert anonymised(report, key) == report


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    key = tmp_path / "site.key"
    key.write_text(KEY)
    key.chmod(0o644)
    with pytest.raises(HistoryError, match="chmod 600"):
        anonymised(sample_report.full(), key)


def test_sums_of_the_sample_agree() -> None:
    report: CapacityReport = sample_report.full()
    assert sum(u.hours.allocated for u in report.use) == pytest.approx(report.hours.allocated)
