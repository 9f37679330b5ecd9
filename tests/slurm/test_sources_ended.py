"""Ended jobs: each run a record, streamed day by day."""

from __future__ import annotations

from pathlib import Path

import pytest
import replay

from predictor.site.history.ingest import Unread
from predictor.site.history.run import EndedJob, JobState
from slurm_plugin.errors import SourceError
from slurm_plugin.sources import accounting
from slurm_plugin.sources.commands import Commands

VERSIONS = ("2205", "2511", "2605")
SINCE_S, UNTIL_S = 1795219000.0 - 86400, 1795219000.0 + 86400


@pytest.fixture(params=VERSIONS)
def jobs(request: pytest.FixtureRequest, tmp_path: Path) -> list[EndedJob]:
    commands = Commands(replay.commands(tmp_path, replay.PAYLOADS / request.param))
    return read(commands, SINCE_S, UNTIL_S)


def read(commands: Commands, since_s: float, until_s: float) -> list[EndedJob]:
    found = accounting.streamed(commands, since_s, until_s)
    return [row for row in found if isinstance(row, EndedJob)]


def one(jobs: list[EndedJob], job_id: str) -> EndedJob:
    (job,) = [job for job in jobs if job.job_id == job_id]
    return job


def test_all_jobs_of_the_period_come(jobs: list[EndedJob]) -> None:
    assert len(jobs) >= 25
    assert all(SINCE_S <= job.end_s < UNTIL_S for job in jobs)


def test_an_ended_job_tells_what_it_ran_on_and_what_was_said_of_it(jobs: list[EndedJob]) -> None:
    job = one(jobs, "1")
    assert (job.scheduler, job.cluster, job.name, job.user) == ("slurm", "bench", "done0", "root")
    assert (job.state, job.gpus, job.gpu_type) == (JobState.COMPLETED, 2, "a100")
    assert (job.nodes, job.node_names, job.limit_s) == (1, ("a1",), 300.0)
    assert job.stated == "model=resnet50 precision=amp"
    assert job.submit_line.startswith("sbatch --parsable")
    assert job.start_s is not None
    assert job.submit_s <= job.start_s <= job.end_s
    assert job.energy_j is None
    assert (job.cpus, job.memory_bytes) == (1, round(62.5 * 2**30))


def test_states_are_distinguished(jobs: list[EndedJob]) -> None:
    assert one(jobs, "2").state is JobState.FAILED
    assert one(jobs, "3").state is JobState.TIMEOUT
    assert one(jobs, "18").state is JobState.CANCELLED


def test_a_job_that_never_started_has_no_start_and_the_gpus_it_asked_for(
    jobs: list[EndedJob],
) -> None:
    job = one(jobs, "9")
    assert (job.start_s, job.node_names, job.gpus, job.gpu_type) == (None, (), 8, None)


def test_each_run_of_a_requeued_job_is_a_record(jobs: list[EndedJob]) -> None:
    runs = [job for job in jobs if job.job_id == "7_0"]
    assert {run.state for run in runs} == {JobState.NODE_FAIL, JobState.CANCELLED}
    assert {(run.gpus, run.gpu_type) for run in runs} == {(1, "v100")}


def test_awkward_names_shift_nothing(jobs: list[EndedJob]) -> None:
    job = one(jobs, "5")
    # slurmdbd stores a quote in a name as a backtick, and letters as its database knows them
    assert job.name.startswith("we|rd\x1f`na\nme JobState=FAKE é")
    assert job.stated == "a|b\x1f\nc,d \"q\" \\ 's' Partition=forged"
    assert (job.partition, job.gpus, job.limit_s) == ("gpu", 4, 86400.0)
    assert one(jobs, "4").decision == "pt:1 a=b|c"


def test_a_limit_of_unlimited_is_none(jobs: list[EndedJob]) -> None:
    assert one(jobs, "8").limit_s is None


def test_only_the_period_asked_for_is_given(tmp_path: Path) -> None:
    commands = Commands(replay.commands(tmp_path, replay.PAYLOADS / "2205"))
    every = sorted(job.end_s for job in read(commands, SINCE_S, UNTIL_S))
    middle = sorted(set(every))[len(set(every)) // 2]
    first, second = read(commands, SINCE_S, middle), read(commands, middle, UNTIL_S)
    assert sorted(job.end_s for job in first) == [end for end in every if end < middle]
    assert sorted(job.end_s for job in second) == [end for end in every if end >= middle]


def test_a_row_that_breaks_off_is_an_error(tmp_path: Path) -> None:
    payload = (replay.PAYLOADS / "2205" / "ended.txt").read_bytes()
    (tmp_path / "payloads").mkdir()
    (tmp_path / "payloads" / "ended.txt").write_bytes(payload[:-100])
    commands = Commands(replay.commands(tmp_path, tmp_path / "payloads"))
    with pytest.raises(SourceError, match="a row ends after"):
        read(commands, SINCE_S, UNTIL_S)


def test_one_slice_asks_sacct_for_its_days_in_utc(tmp_path: Path) -> None:
    argv, program = tmp_path / "argv", tmp_path / "sacct"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" "$TZ" >> {argv}\n')
    program.chmod(0o755)
    assert read(Commands(tmp_path), 1_000_000_000, 1_000_086_400) == []
    words = argv.read_text().splitlines()
    assert "--starttime=2001-09-09T01:46:40" in words
    assert "--endtime=2001-09-10T01:46:41" in words
    assert words[-1] == "UTC"


def test_a_row_without_submission_has_its_start_for_it_or_is_reported(tmp_path: Path) -> None:
    """Accounting that lost it tells 0, which is no day of 1970."""
    program, fields = tmp_path / "sacct", accounting.FIELDS.split(",")
    day = {"Start": "1000000100", "End": "1000000200", "State": "COMPLETED", "NodeList": "a1"}
    rows = [
        {"JobID": "1", "Submit": "0", **day},
        {"JobID": "2", "Submit": "Unknown", **day},
        {"JobID": "3", "Submit": "0", **day, "Start": "Unknown"},
    ]
    lines = ["@".join(row.get(name, "") for name in fields) + "@" for row in rows]
    (tmp_path / "rows").write_text("\n".join(lines) + "\n")
    program.write_text(
        "#!/bin/sh\nfor word; do case $word in --delimiter=*) mark=${word#*=};; esac; done\n"
        f'sed "s/@/$mark/g" {tmp_path / "rows"}\n'
    )
    program.chmod(0o755)
    found = list(accounting.streamed(Commands(tmp_path), 1_000_000_000, 1_000_000_300))
    ended = {row.job_id: row.submit_s for row in found if isinstance(row, EndedJob)}
    assert ended == {"1": 1_000_000_100.0, "2": 1_000_000_100.0}
    assert Unread("job 3", "no submit time") in found
