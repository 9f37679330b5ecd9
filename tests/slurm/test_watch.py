"""A pass of `watch` over running jobs: real files of theirs, and a program in place of scontrol."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner

from predictor.errors import StepReportError
from predictor.site.history.run import EndedJob
from predictor.site.step_rate import StepReport, write_report
from slurm_plugin.cli.watch import watch
from slurm_plugin.cluster import Association, Partition, Settings, SlurmJob, SlurmNode, WallLimits
from slurm_plugin.config import Exclude, Slurm, SlurmPolicy, Watch
from slurm_plugin.mark import JobMark, parse_mark
from slurm_plugin.watch.reports import acting_as, find_report, progress_of
from slurm_plugin.watch.revision import Watcher

ME = pwd.getpwuid(os.geteuid())
MARK = JobMark(limit=240, p50_s=9000.0, job="model=x comment='a b'")
FILE = Watch().rate_file


@dataclass
class Queue:
    """A source whose queue the test writes."""

    jobs: list[SlurmJob]
    parts: tuple[Partition, ...] = (Partition(name="gpu"),)
    walls: WallLimits = field(default_factory=WallLimits)
    name: str = "test"
    later: list[SlurmJob] | None = None
    reads: int = field(default=0)

    def settings(self) -> Settings:
        return Settings()

    def nodes(self) -> tuple[SlurmNode, ...]:
        return ()

    def partitions(self) -> tuple[Partition, ...]:
        return self.parts

    def queue(self) -> tuple[SlurmJob, ...]:
        self.reads += 1
        return tuple(self.later if self.later is not None and self.reads > 1 else self.jobs)

    def wall_limits(self) -> WallLimits:
        return self.walls

    def ended(self, since_s: float, until_s: float | None = None) -> Iterator[EndedJob]:
        return iter(())


@pytest.fixture
def job(tmp_path: Path) -> SlurmJob:
    """Two hours into a limit of four."""
    (tmp_path / "work").mkdir()
    return SlurmJob(
        job_id=123,
        label="123",
        user=ME.pw_name,
        name="train",
        state="RUNNING",
        partitions=("gpu",),
        account="lab",
        qos="normal",
        start_s=time.time() - 7200,
        limit_min=240,
        admin_comment=MARK.text(),
        work_dir=str(tmp_path / "work"),
        stdout=str(tmp_path / "work" / "slurm-123.out"),
    )


@pytest.fixture
def bin_dir(tmp_path: Path) -> Path:
    """A folder with an scontrol that notes its arguments; `refuse` in it makes it fail."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "scontrol"
    program.write_text(
        "#!/bin/sh\n"
        'for word in "$@"; do printf "%s\\n" "$word"; done >> "${0%/*}/calls"\n'
        'if [ -e "${0%/*}/refuse" ]; then echo "slurm_update error: no" >&2; exit 1; fi\n'
    )
    program.chmod(0o755)
    return folder


def calls(bin_dir: Path) -> list[str]:
    noted = bin_dir / "calls"
    return noted.read_text().splitlines() if noted.exists() else []


def policy(bin_dir: Path, **changes: object) -> SlurmPolicy:
    return SlurmPolicy(
        slurm=Slurm(bin_dir=bin_dir), watch=Watch.model_validate({"mode": "apply", **changes})
    )


def late(job_id: int = 123) -> StepReport:
    """Five hours of steps to come."""
    return StepReport(
        step=5000, total_steps=15000, step_s=1.8, job_id=str(job_id), written_s=time.time()
    )


def report(job: SlurmJob, said: StepReport) -> None:
    write_report(Path(job.work_dir) / FILE, said)


def test_a_late_job_is_extended_by_one_update_that_also_marks_it(
    job: SlurmJob, bin_dir: Path
) -> None:
    said: list[str] = []
    report(job, late())
    (found,) = Watcher(Queue([job]), said.append).watch(policy(bin_dir))
    assert found.limit_min == 360
    update, target, limit, comment = calls(bin_dir)
    assert (update, target, limit) == ("update", "jobid=123", "timelimit=360")
    written = parse_mark(comment.removeprefix("admincomment="))
    assert written == replace(MARK, limit=360, first=240)
    assert said == [
        f"precision-time watch: job 123 of {ME.pw_name}: extend 4:00:00 -> 6:00:00, "
        f"needs {found.needed_min:.0f} min, more than is allowed"
    ]


def test_the_next_pass_finds_its_own_limit_and_does_nothing_more(
    job: SlurmJob, bin_dir: Path
) -> None:
    report(job, late())
    (found,) = Watcher(Queue([job]), print).watch(policy(bin_dir))
    after = replace(job, limit_min=360, admin_comment=found.mark.text())
    assert Watcher(Queue([after]), print).watch(policy(bin_dir)) == ()
    assert len(calls(bin_dir)) == 4


def test_advice_and_a_dry_run_change_nothing_and_say_it_once(job: SlurmJob, bin_dir: Path) -> None:
    report(job, late())
    for watcher_policy, dry in ((policy(bin_dir, mode="advise"), False), (policy(bin_dir), True)):
        said: list[str] = []
        watcher = Watcher(Queue([job]), said.append, dry)
        assert len(watcher.watch(watcher_policy)) == 1
        assert len(watcher.watch(watcher_policy)) == 1
        assert len(said) == 1
        assert "advice: extend 4:00:00 -> 6:00:00" in said[0]
    assert calls(bin_dir) == []


def test_switched_off_it_does_not_even_ask_slurm(job: SlurmJob, bin_dir: Path) -> None:
    queue = Queue([job])
    assert Watcher(queue, print).watch(policy(bin_dir, mode="off")) == ()
    assert queue.reads == 0


@pytest.mark.parametrize(
    "change",
    [
        {"admin_comment": ""},
        {"admin_comment": "ticket 4711"},
        {"limit_min": 300},
        {"state": "PENDING"},
        {"admin_comment": JobMark(p50_s=9000.0).text()},
    ],
)
def test_jobs_whose_limit_is_not_ours_are_left_alone(
    change: dict[str, object], job: SlurmJob, bin_dir: Path
) -> None:
    report(job, late())
    other = replace(job, **change)  # type: ignore[arg-type]
    assert Watcher(Queue([other]), print).watch(policy(bin_dir)) == ()
    assert calls(bin_dir) == []


def test_excluded_jobs_are_left_alone(job: SlurmJob, bin_dir: Path) -> None:
    report(job, late())
    for exclude in (
        {"users": [ME.pw_name]},
        {"accounts": ["lab"]},
        {"qos": ["normal"]},
        {"partitions": ["gpu"]},
    ):
        whole = policy(bin_dir).model_copy(update={"exclude": Exclude.model_validate(exclude)})
        assert Watcher(Queue([job]), print).watch(whole) == ()


def test_a_job_that_changed_meanwhile_is_left_alone(job: SlurmJob, bin_dir: Path) -> None:
    report(job, late())
    for now in ([], [replace(job, limit_min=500)], [replace(job, state="COMPLETING")]):
        assert Watcher(Queue([job], later=now), print).watch(policy(bin_dir)) == ()
    assert calls(bin_dir) == []


def test_the_longest_time_of_partition_and_account_bounds_an_extension(
    job: SlurmJob, bin_dir: Path
) -> None:
    report(job, late())
    part = (Partition(name="gpu", max_min=300),)
    lab = WallLimits(associations=(Association(account="lab", max_wall_min=270),))
    for queue, most in (
        (Queue([job], part), 300),
        (Queue([job], walls=lab), 270),
        (Queue([job], walls=WallLimits(qos={"normal": 280})), 280),
    ):
        (found,) = Watcher(queue, print, dry_run=True).watch(policy(bin_dir))
        assert found.limit_min == most


def test_one_task_of_an_array_is_named_alone(job: SlurmJob, bin_dir: Path) -> None:
    """The number of the last task is that of the array: alone it would mean every task."""
    report(job, late())
    task = replace(job, label="123_7")
    assert len(Watcher(Queue([task]), print).watch(policy(bin_dir))) == 1
    assert calls(bin_dir)[1] == "jobid=123_7"


def test_a_refused_update_puts_the_mark_back_and_is_said_once(job: SlurmJob, bin_dir: Path) -> None:
    said: list[str] = []
    report(job, late())
    (bin_dir / "refuse").touch()
    watcher = Watcher(Queue([job]), said.append)
    assert watcher.watch(policy(bin_dir)) == ()
    assert calls(bin_dir)[-1] == f"admincomment={job.admin_comment}"
    assert watcher.watch(policy(bin_dir)) == ()
    assert len(said) == 1
    assert "failed: " in said[0]
    assert "slurm_update error: no" in said[0]


def test_a_missing_scontrol_is_said_and_ends_nothing(job: SlurmJob, tmp_path: Path) -> None:
    said: list[str] = []
    report(job, late())
    assert Watcher(Queue([job]), said.append).watch(policy(tmp_path / "nowhere")) == ()
    assert "scontrol is not in slurm.bin_dir" in said[0]


def test_absurd_claims_are_said_in_one_line_and_change_nothing(
    job: SlurmJob, bin_dir: Path
) -> None:
    said: list[str] = []
    (Path(job.work_dir) / FILE).write_text('{"v":1,"step":1,"total_steps":1e40,"step_s":1}')
    watcher = Watcher(Queue([replace(job, name="a\nb", user=ME.pw_name)]), said.append)
    assert watcher.watch(policy(bin_dir)) == ()
    assert watcher.watch(policy(bin_dir)) == ()
    assert len(said) == 1
    assert "ignored: invalid total_steps=" in said[0]
    assert said[0].isprintable()


def test_one_bad_report_does_not_keep_the_others_from_being_read(
    job: SlurmJob, bin_dir: Path, tmp_path: Path
) -> None:
    other = replace(job, job_id=124, label="124", work_dir=str(tmp_path / "two"))
    Path(other.work_dir).mkdir()
    report(other, late(124))
    (Path(job.work_dir) / FILE).write_text("{")
    stranger = replace(job, job_id=125, label="125", user="no-such-user")
    found = Watcher(Queue([stranger, job, other]), print).watch(policy(bin_dir))
    assert [r.job.job_id for r in found] == [124]


def test_jobs_in_one_directory_are_told_apart(job: SlurmJob) -> None:
    report(job, late(999))
    write_report(Path(job.work_dir) / "precision-time-steps.123.json", late(123))
    found = find_report(job, FILE)
    assert found is not None
    assert found.job_id == "123"


def test_a_line_in_the_output_will_do(job: SlurmJob) -> None:
    Path(job.stdout).write_text("precision-time: step=1200 total_steps=56302 step_s=0.118\n")
    found = find_report(job, FILE)
    assert found is not None
    assert (found.job_id, found.step) == ("123", 1200)
    report(job, late(999))  # of another job in the same directory
    found = find_report(job, FILE)
    assert found is not None
    assert found.step == 1200


def test_a_job_without_directory_or_output_has_no_report(job: SlurmJob) -> None:
    assert find_report(replace(job, work_dir="", stdout=""), FILE) is None
    assert find_report(replace(job, work_dir="relative", stdout="slurm.out"), FILE) is None


def progress(job: SlurmJob, *, steps: int = 1000, asked: str = "", silent_s: float = 0.0) -> float:
    """Seconds left of a job of two hours that prints 5 s a step, 5,000 s left by that."""
    lines = (f"step {n}/2000 loss 0.5 step_time 5.0s" for n in range(steps - 50, steps + 1))
    path, written_s = Path(job.stdout), time.time() - silent_s
    path.write_text("\n".join(lines).replace("/2000", "" if asked else "/2000") + "\n")
    os.utime(path, (written_s, written_s))
    left_s = progress_of(job, asked).remaining_s
    assert left_s is not None
    return left_s


def test_what_is_left_grows_by_pauses_that_the_printed_rate_leaves_out(job: SlurmJob) -> None:
    running = replace(job, start_s=time.time() - 5000)
    assert progress(running) == pytest.approx(5000, rel=0.01)
    assert progress(replace(job, start_s=time.time() - 5250)) == pytest.approx(5250, rel=0.01)
    assert progress(job) == pytest.approx(5500, rel=0.01)  # the rest of two hours was the start
    resumed = replace(job, start_s=time.time() - 300)
    assert progress(resumed) == pytest.approx(5000, rel=0.01)


def test_what_is_left_shrinks_while_nothing_is_printed_by_half_at_most(job: SlurmJob) -> None:
    running = replace(job, start_s=time.time() - 6000)
    assert progress(running, silent_s=1000.0) == pytest.approx(4000, rel=0.01)
    hangs = replace(job, start_s=time.time() - 25_000)
    assert progress(hangs, silent_s=20_000.0) == pytest.approx(2500, rel=0.01)


def test_a_stated_length_makes_a_counter_without_total_tell_what_is_left(job: SlurmJob) -> None:
    running = replace(job, start_s=time.time() - 5000)
    assert progress(running, asked="model=gpt2 steps=2000") == pytest.approx(5000, rel=0.01)


@pytest.fixture
def shared_directory() -> Iterator[Path]:
    """A directory that every user may enter, which those of pytest are not."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.skipif(ME.pw_uid != 0, reason="only root can act as another user")
def test_root_reads_a_report_with_the_rights_of_its_user(
    job: SlurmJob, shared_directory: Path
) -> None:
    nobody = pwd.getpwnam("nobody")
    theirs = replace(job, user="nobody", work_dir=str(shared_directory), stdout="")
    report(theirs, late())
    with pytest.raises(StepReportError, match="belongs to user 0"):
        find_report(theirs, FILE)
    os.chown(shared_directory / FILE, nobody.pw_uid, nobody.pw_gid)
    assert find_report(theirs, FILE) is not None
    shared_directory.chmod(0o700)  # root could still read it, nobody cannot
    with pytest.raises(StepReportError, match="Permission denied"):
        find_report(theirs, FILE)
    with acting_as("nobody"):
        assert os.geteuid() == nobody.pw_uid
        assert 0 not in os.getgroups()
    assert (os.geteuid(), os.getegid()) == (0, ME.pw_gid)


def test_the_command_says_that_it_is_off_by_default(tmp_path: Path) -> None:
    config = tmp_path / "slurm.yaml"
    config.write_text("")
    done = CliRunner().invoke(watch, ["--config", str(config)])
    assert done.exit_code == 0
    assert "watch.mode is off" in done.output
