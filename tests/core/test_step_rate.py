"""Reports of running jobs: what is written is read back, and nothing a user writes does harm."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predictor.errors import StepReportError
from predictor.site.step_rate import (
    FILE_NAME,
    MAX_FILE_BYTES,
    TAIL_BYTES,
    StepReport,
    last_report,
    parse_line,
    read_report,
    report_paths,
    write_report,
)

SAID: dict[str, Any] = {
    "v": 1,
    "job_id": "123",
    "step": 1200,
    "total_steps": 56302,
    "step_s": 0.118,
}
seconds = st.floats(0, 1e9)


@st.composite
def reports(draw: st.DrawFn) -> StepReport:
    first, step, total = sorted(draw(st.lists(st.integers(0, 10**12), min_size=3, max_size=3)))
    return StepReport(
        step=step,
        total_steps=total,
        first_step=first,
        step_s=draw(st.floats(0, 86400, exclude_min=True)),
        job_id=draw(st.text("0123456789_+abc-", max_size=20)),
        step_s_spread=draw(st.none() | st.floats(0, 100)),
        started_s=draw(st.none() | seconds),
        written_s=draw(seconds),
        paused_s=draw(seconds),
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def test_a_written_report_is_read_back(tmp_path: Path) -> None:
    @given(reports())
    @settings(max_examples=60)
    def same(report: StepReport) -> None:
        write_report(tmp_path / FILE_NAME, report)
        assert read_report(tmp_path / FILE_NAME) == report

    same()


@given(reports())
def test_a_line_says_the_same_as_the_report(report: StepReport) -> None:
    assert parse_line(f"0: {report.line()}\n") == report


def test_the_line_of_the_manual_is_understood() -> None:
    report = parse_line("precision-time: step=1200 total_steps=56302 step_s=0.118")
    assert report == StepReport(step=1200, total_steps=56302, step_s=0.118)


@given(st.text() | st.text().map(lambda t: "precision-time: step=1 total_steps=9 step_s=" + t))
def test_no_line_of_output_raises(text: str) -> None:
    report = parse_line(text)
    assert report is None or report.step_s > 0


@pytest.mark.parametrize(
    "line",
    [
        "precision-time: step=9 total_steps=5 step_s=1",
        "precision-time: step=1 total_steps=5 step_s=-1",
        "precision-time: step=1 total_steps=5 step_s=nan",
        "precision-time: step=1 total_steps=5 step_s=inf",
        "precision-time: step=1 total_steps=1e99 step_s=1",
        "precision-time: step=1 total_steps=" + "9" * 5000 + " step_s=1",
        "precision-time: resnet50, fp32: 3 h",
    ],
)
def test_a_line_that_cannot_be_true_is_no_report(line: str) -> None:
    assert parse_line(line) is None


def test_without_a_file_there_is_no_report(tmp_path: Path) -> None:
    assert read_report(tmp_path / FILE_NAME) is None
    assert last_report(tmp_path / "out.txt") is None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"v": 2}, '"v": 1'),
        ({"step": 60000}, "step=60000"),
        ({"step": -1}, "step=-1"),
        ({"step": True}, "step=True"),
        ({"step": 1.5}, "step=1.5"),
        ({"step": [1]}, "step="),
        ({"total_steps": 10**13}, "total_steps="),
        ({"step_s": 0}, "step_s=0"),
        ({"step_s": 1e9}, "step_s="),
        ({"step_s": "0.1"}, "step_s='0.1'"),
        ({"job_id": "1 2\n"}, "job_id="),
        ({"job_id": None}, "job_id="),
        ({"first_step": 1300}, "first_step=1300"),
        ({"written_s": 1e300}, "written_s="),
    ],
)
def test_a_value_that_cannot_be_is_named(
    change: dict[str, Any], named: str, tmp_path: Path
) -> None:
    path = tmp_path / FILE_NAME
    path.write_text(json.dumps(SAID | change))
    with pytest.raises(StepReportError) as caught:
        read_report(path)
    assert named in str(caught.value)


def test_a_missing_value_is_named(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_text('{"v": 1, "step": 3}')
    with pytest.raises(StepReportError, match="total_steps, step_s missing"):
        read_report(path)


def test_every_half_written_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    whole = json.dumps(SAID)
    for length in range(len(whole)):
        path.write_text(whole[:length])
        with pytest.raises(StepReportError):
            read_report(path)


def test_no_content_of_a_file_raises_anything_else(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    keys = st.sampled_from([*StepReport.__dataclass_fields__, "v", "other"])
    objects = st.dictionaries(keys, json_values).map(lambda d: json.dumps(SAID | d).encode())

    @given(st.binary(max_size=200) | json_values.map(lambda v: json.dumps(v).encode()) | objects)
    def harmless(raw: bytes) -> None:
        path.write_bytes(raw)
        try:
            report = read_report(path)
        except StepReportError:
            return
        assert report is not None
        assert 0 <= report.step <= report.total_steps
        assert report.step_s > 0

    harmless()


@pytest.mark.parametrize(
    "raw",
    [
        b'{"v":1,"step":1,"total_steps":2,"step_s":NaN}',
        b'{"v":1,"step":1,"total_steps":2,"step_s":1e999}',
        b"[" * 60_000,
        b'{"v":1,"step":' + b"9" * 5000 + b"}",
        b'{"v":1}' + b" " * MAX_FILE_BYTES,
    ],
)
def test_files_made_to_hurt_are_refused(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(raw)
    with pytest.raises(StepReportError):
        read_report(path)


def test_a_link_a_pipe_and_a_directory_are_refused_at_once(tmp_path: Path) -> None:
    real = tmp_path / "real.json"
    real.write_text(json.dumps(SAID))
    (tmp_path / "link").symlink_to(real)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("link", "pipe", "folder", "no\0name"):
        with pytest.raises(StepReportError):
            read_report(tmp_path / name)


def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_text(json.dumps(SAID))
    assert read_report(path, owner=path.stat().st_uid) is not None
    with pytest.raises(StepReportError, match="belongs to user"):
        read_report(path, owner=path.stat().st_uid + 1)


def test_the_time_of_the_file_stands_in_for_a_missing_one(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_text(json.dumps(SAID))
    os.utime(path, (5000.0, 5000.0))
    report = read_report(path)
    assert report is not None
    assert report.written_s == 5000.0


def test_a_failed_write_leaves_the_report_before_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.mkdir()
    with pytest.raises(OSError, match=FILE_NAME):
        write_report(path, StepReport(step=1, total_steps=2, step_s=1.0))
    assert [p.name for p in tmp_path.iterdir()] == [FILE_NAME]


def test_others_may_read_what_is_written(tmp_path: Path) -> None:
    write_report(tmp_path / FILE_NAME, StepReport(step=1, total_steps=2, step_s=1.0))
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o644


def test_the_newest_whole_line_of_the_output_counts(tmp_path: Path) -> None:
    output = tmp_path / "slurm-1.out"
    lines = [StepReport(step=n, total_steps=90, step_s=0.5).line() for n in (10, 20, 30)]
    output.write_text(f"epoch 0\n{lines[0]}\r{lines[1]}\nprecision-time: step=9e9\n{lines[2]}")
    report = last_report(output)
    assert report is not None
    assert report.step == 20  # the line of step 30 has no end yet
    assert report.written_s == output.stat().st_mtime


def test_only_the_end_of_a_long_output_is_read(tmp_path: Path) -> None:
    output = tmp_path / "slurm-1.out"
    line = StepReport(step=10, total_steps=90, step_s=0.5).line()
    output.write_text(f"{line}\n" + "x" * (TAIL_BYTES - 100) + "\n")
    assert last_report(output) is not None
    output.write_text(f"{line}\n" + "x" * TAIL_BYTES + "\n")
    assert last_report(output) is None


def test_jobs_that_share_a_directory_have_files_of_their_own() -> None:
    alone, shared = report_paths(Path("/data"), FILE_NAME, "123")
    assert (alone.name, shared.name) == ("precision-time-steps.123.json", FILE_NAME)
    assert report_paths(Path("/data"), "steps", "7")[0].name == "steps.7"
