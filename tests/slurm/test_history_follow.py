"""Live ingest from Slurm: reports of running jobs meet their end, whatever is away meanwhile."""

from __future__ import annotations

import os
import pwd
import time
from dataclasses import replace
from pathlib import Path

import pytest
import replay
from click.testing import CliRunner

from predictor.cli.main import main
from predictor.errors import HistoryError
from predictor.site.history.run import EndedJob, JobState
from predictor.site.history.store import Cursor, History
from predictor.site.step_rate import StepReport, report_paths, write_report
from slurm_plugin.cli.watch import HistoryChild
from slurm_plugin.cluster import SlurmJob
from slurm_plugin.config import Slurm, SlurmPolicy
from slurm_plugin.errors import SourceError
from slurm_plugin.history import ingest as module
from slurm_plugin.history.ingest import Reports, SlurmFollower, cursor_of

ME = pwd.getpwuid(os.geteuid())
NAME = cursor_of("bench")
EVERY = 1795219000.0 - 86400  # before the first captured job


@pytest.fixture
def slurm(tmp_path: Path) -> Path:
    """The commands of a Slurm 25.11, whose jobs all ended in the future of its cursor."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return replay.commands(folder, replay.PAYLOADS / "2511")


@pytest.fixture
def policy(slurm: Path) -> SlurmPolicy:
    return SlurmPolicy(slurm=Slurm(bin_dir=slurm, source="text"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the day after the captured jobs ended."""
    monkeypatch.setattr("slurm_plugin.history.ingest.time.time", lambda: EVERY + 2 * 86400)


def follower(path: Path, since_s: float | None = None) -> SlurmFollower:
    return SlurmFollower(lambda: History.open(str(path)), since_s=since_s)


def runs(path: Path) -> int:
    with History.open(str(path)) as store:
        return store.count()


@pytest.mark.usefixtures("clock")
def test_the_second_look_adds_nothing_and_the_cursor_moves(policy: SlurmPolicy, path: Path) -> None:
    live = follower(path, EVERY)
    first = live.look(policy)
    assert first.added.new == runs(path) > 15
    again = live.look(policy)
    assert (again.added.new, again.added.changed) == (0, 0)
    with History.open(str(path)) as store:
        assert store.cursor(NAME) == EVERY + 2 * 86400


@pytest.mark.usefixtures("clock")
def test_a_database_that_is_away_loses_nothing(policy: SlurmPolicy, path: Path) -> None:
    live = follower(path, EVERY)
    path.mkdir()  # where the file should be
    for _ in range(2):
        with pytest.raises(HistoryError):
            live.look(policy)
    path.rmdir()
    assert live.look(policy).added.new == runs(path) > 15


@pytest.mark.usefixtures("clock")
def test_an_accounting_that_is_away_loses_nothing(
    policy: SlurmPolicy, path: Path, slurm: Path
) -> None:
    with History.open(str(path)) as store:
        store.add([], cursor=Cursor(NAME, EVERY))
    live, sacct = follower(path), slurm / "sacct"
    working = sacct.read_text()
    sacct.write_text("#!/bin/sh\necho 'slurmdbd is down' >&2; exit 1\n")
    with pytest.raises(SourceError, match="slurmdbd is down"):
        live.look(policy)
    with History.open(str(path)) as store:
        assert store.cursor(NAME) == EVERY
    sacct.write_text(working)
    assert live.look(policy).added.new == runs(path) > 15


@pytest.fixture
def job(tmp_path: Path) -> SlurmJob:
    """Two hours into its run."""
    return SlurmJob(
        job_id=123,
        label="120_3",
        user=ME.pw_name,
        name="train",
        state="RUNNING",
        gpus=8,
        partitions=("gpu",),
        account="lab",
        qos="normal",
        submit_s=time.time() - 8000,
        start_s=time.time() - 7200,
        limit_min=240,
        work_dir=str(tmp_path),
    )


def report(job: SlurmJob, **changes: float) -> None:
    assert job.start_s is not None
    now_s = time.time()
    said = StepReport(
        step=5000,
        total_steps=9000,
        step_s=0.5,
        job_id="123",
        first_step=1000,
        started_s=job.start_s + 90,
        written_s=now_s,
        paused_s=40.0,
    )
    path, _ = report_paths(Path(job.work_dir), SlurmPolicy().watch.rate_file, "123")
    write_report(path, replace(said, **changes))  # type: ignore[arg-type]


def ended(job: SlurmJob, job_id: str) -> EndedJob:
    return EndedJob(
        scheduler="slurm",
        cluster="bench",
        job_id=job_id,
        name="train",
        user=job.user,
        account="lab",
        partition="gpu",
        qos="normal",
        state=JobState.COMPLETED,
        submit_s=float(int(job.submit_s)),
        start_s=job.start_s,
        end_s=time.time(),
        limit_s=None,
        gpus=8,
        gpu_type=None,
        nodes=1,
        node_names=("a1",),
    )


def test_the_last_report_of_a_job_is_joined_by_any_of_its_ids(job: SlurmJob) -> None:
    kept = Reports()
    for step_s in (0.6, 0.5):
        report(job, step_s=step_s)
        kept.look([job], SlurmPolicy())
    kept.look([], SlurmPolicy())  # it has ended
    for name in ("120_3", "123"):
        found = kept.of(ended(job, name))
        assert found is not None
        assert (found.step_s, found.steps, found.total_steps) == (0.5, 4000, 9000)
        assert (round(found.startup_s or 0), found.paused_s) == (90, 40.0)
    assert kept.of(ended(job, "124")) is None
    assert kept.of(replace(ended(job, "123"), submit_s=7.0)) is None  # an earlier run of it


@pytest.mark.parametrize(
    "claim", [{"written_s": 1000.0}, {"first_step": 4999}, {"step_s": 80_000.0}]
)
def test_a_report_that_cannot_be_of_this_run_is_not_taken(
    job: SlurmJob, claim: dict[str, float]
) -> None:
    report(job, **claim)
    kept = Reports()
    kept.look([job], SlurmPolicy())
    assert kept.of(ended(job, "123")) is None


def test_without_a_report_what_the_output_prints_is_kept(job: SlurmJob) -> None:
    output = Path(job.work_dir) / "slurm-123.out"
    lines = (f"step {n}/100 loss 2.{n} time 60.0s\n" for n in range(1, 10))
    output.write_text("".join(lines))
    kept = Reports()
    kept.look([replace(job, stdout=str(output))], SlurmPolicy())
    found = kept.printed(ended(job, "123"))
    assert found is not None
    assert (found.at, found.total, found.seconds_per_unit) == (9, 100, 60.0)


def test_reports_are_bounded(job: SlurmJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT", 4)
    kept = Reports()
    jobs = [replace(job, submit_s=job.submit_s + second) for second in range(5)]
    for one in jobs:
        report(one)
        kept.look([one], SlurmPolicy())
    known = [kept.of(ended(one, "123")) is not None for one in jobs]
    assert known == [False, False, False, True, True]  # each by two ids


def test_the_command_goes_on_after_an_error_and_ends_when_asked(
    policy: SlurmPolicy, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "slurm.yaml"
    config.write_text(
        f"slurm: {{source: text, bin_dir: {policy.slurm.bin_dir}}}\nhistory: {{url: {path}}}\n"
    )
    path.mkdir()
    looks = iter(range(10))

    def wait(stop: object, _: float) -> None:
        look = next(looks)
        if look == 1:
            path.rmdir()
        if look == 3:
            stop.set()  # type: ignore[attr-defined]

    monkeypatch.setattr("threading.Event.wait", wait)
    monkeypatch.setattr("slurm_plugin.history.ingest.time.time", lambda: EVERY + 2 * 86400)
    words = ("history", "ingest", "slurm", "--follow", "--since", "2026-11-20")
    done = CliRunner().invoke(main, [*words, "--config", str(config)])
    assert done.exit_code == 0, done.output
    assert done.stderr.count("warning:") == 1
    assert f"{runs(path)} new" in done.stdout


def test_the_one_shot_command_tells_what_it_found(policy: SlurmPolicy, path: Path) -> None:
    words = ["history", "ingest", "slurm", "--since", "2026-11-20", "--until", "2026-11-22"]
    assert policy.slurm.bin_dir is not None
    config = path.with_suffix(".yaml")
    config.write_text(f"slurm: {{bin_dir: {policy.slurm.bin_dir}}}\n")
    more = ["--history", str(path), "--config", str(config)]
    done = CliRunner().invoke(main, [*words, *more])
    assert done.exit_code == 0, done.output
    assert f"{runs(path)} runs read" in done.stdout
    assert "left out, without GPUs" in done.stdout
    assert "complete until 2026-11-22" in done.stdout


def test_the_child_of_watch_is_started_again_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = HistoryChild(tmp_path / "p.yaml")
    monkeypatch.setattr(child, "_command", ("sleep", "600"))
    child.keep(False)
    assert child._process is None
    child.keep(True)
    first = child._process
    assert first is not None
    child.keep(True)
    assert child._process is first
    first.kill()
    first.wait()
    child.keep(True)
    second = child._process
    assert second is not None
    assert second is not first
    child.keep(False)
    assert second.returncode is not None
    child.close()
