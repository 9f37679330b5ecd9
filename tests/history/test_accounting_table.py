"""Plain accounting tables: CSV, sacct -P and SWF become runs, and messy rows are counted."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

import profiles
from predictor.cli.main import main
from predictor.errors import HistoryError
from predictor.site.history.accounting_table import AccountingTable, column_of
from predictor.site.history.cells import duration_s, moment_s
from predictor.site.history.ingest import LeftOut, Unread
from predictor.site.history.run import EndedJob, JobState, Run
from predictor.site.history.store import History
from predictor.site.history.swf import read_swf
from predictor.site.similar.request import JobRequest, TrainingLength, script_signature

SAMPLES = Path(profiles.__file__).parent / "samples"
HEADER = "job_id,user,name,queue,gpus,submit_s,start_s,end_s,limit_s,state,cpus,mem"
ROW = "7,ada,train,long,2,1619828287,1619830000,1619840000,25200,TIMEOUT,4,8192"
LIMITS = {"7h": 25200, "1d": 86400, "90min": 5400, "1h30m": 5400, "1 day 2 hours": 93600}
LIMITS |= dict.fromkeys(("7x", "2 weeks"))
TABLE: dict[str, Any] = {"scheduler": "table"}
SLURM: dict[str, Any] = {"scheduler": "slurm", "zone": UTC}


def items(path: Path, source: dict[str, Any] = TABLE) -> list[Any]:
    return list(AccountingTable(path, **source))


def table(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def jobs(path: Path, source: dict[str, Any] = TABLE) -> list[EndedJob]:
    return [item.ended for item in items(path, source) if isinstance(item, Run)]


def reasons(path: Path, source: dict[str, Any] = TABLE) -> Counter[str]:
    found = items(path, source)
    return Counter(item.reason for item in found if isinstance(item, Unread | LeftOut))


def ingest(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["history", "ingest", *words])
    assert result.exit_code == code, result.output
    return result


def test_a_row_is_a_run_with_all_it_says(tmp_path: Path) -> None:
    (job,) = jobs(table(tmp_path / "a.csv", HEADER, ROW))
    assert (job.job_id, job.user, job.name, job.partition) == ("7", "ada", "train", "long")
    assert (job.submit_s, job.start_s, job.end_s) == (1619828287.0, 1619830000.0, 1619840000.0)
    assert (job.gpus, job.limit_s, job.state) == (2, 25200.0, JobState.TIMEOUT)
    assert (job.cpus, job.memory_bytes) == (4, 8192 * 2**20)


def test_a_job_without_user_name_limit_and_state_is_a_job(tmp_path: Path) -> None:
    (job,) = jobs(table(tmp_path / "a.csv", "gpus,submit,start,end", "1,1000,1010,2000"))
    assert (job.user, job.name, job.limit_s, job.state) == ("", "", None, JobState.COMPLETED)


@pytest.mark.parametrize(
    "limit", ["", "UNLIMITED", "Partition_Limit", "-1", "0", "nan", "365-00:00:00", "31536000"]
)
def test_an_unknown_limit_is_unknown_and_never_a_year(tmp_path: Path, limit: str) -> None:
    (job,) = jobs(table(tmp_path / "a.csv", HEADER, ROW.replace("25200", limit)))
    assert job.limit_s is None


@pytest.mark.parametrize("delimiter", [",", "|", "\t", ";"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
def test_delimiters_encodings_and_gzip_read_alike(
    tmp_path: Path, delimiter: str, packed: bool, encoding: str
) -> None:
    text = f"{HEADER}\n{ROW}\n".replace(",", delimiter).encode(encoding)
    path = tmp_path / "a"
    path.write_bytes(gzip.compress(text) if packed else text)
    assert jobs(path) == jobs(table(tmp_path / "b.csv", HEADER, ROW))


@pytest.mark.parametrize(
    "text",
    [
        "1619828287",
        "1619828287.0",
        "1619828287000",
        "2021-05-01T00:18:07Z",
        "2021-05-01 00:18:07+00:00",
        "2021-05-01T02:18:07+02:00",
        "2021/05/01 00:18:07 UTC",
        "2021-04-30 08:18:07 PM",
        "Fri Apr 30 20:18:07 2021",
        "30-Apr-2021 20:18:07",
        "30.04.2021 20:18:07",
        "Apr 30 20:18:07 2021",
        "Apr 30 20:18:07 2021 L",
    ],
)
def test_times_of_every_kind_are_one_time(text: str) -> None:
    assert moment_s(text, ZoneInfo("America/Toronto")) == 1619828287.0


def test_a_date_that_can_be_read_in_two_ways_is_none() -> None:
    with pytest.raises(ValueError, match="2021"):
        moment_s("04/05/2021 10:00:00 AM", None)


@pytest.mark.parametrize(
    ("dates", "known"),
    [
        (("04/30/2021 9:18:07", "05/01/2021 9:18:07"), [1619774287, 1619860687]),
        (("30/04/2021 09:18", "01/05/2021 9:18:07"), [1619774280, 1619860687]),
        (("04/05/2021 9:18:07", "05/04/2021 9:18:07"), []),
        (("04/30/2021 9:18:07", "30/04/2021 9:18:07"), []),
    ],
)
def test_a_column_tells_whether_its_dates_begin_with_the_day(
    tmp_path: Path, dates: tuple[str, ...], known: list[int]
) -> None:
    rows = (f"{date},3600,1" for date in reversed(dates))
    path = table(tmp_path / "a.csv", "submit,elapsed,gpus", *rows)
    assert sorted(job.submit_s for job in jobs(path, {**TABLE, "zone": UTC})) == known
    if not known:
        assert reasons(path) == {"submit is a date that may begin with day or month": 2}


@given(
    moment=st.integers(10**6, 4 * 10**9),
    hours=st.integers(-12, 12),
    name=st.sampled_from(["UTC", "Asia/Kolkata", "America/Lima"]),
)
def test_a_time_is_the_same_in_every_zone(moment: int, hours: int, name: str) -> None:
    there = datetime.fromtimestamp(moment, timezone(timedelta(hours=hours)))
    assert moment_s(there.isoformat(), None) == moment
    zone = ZoneInfo(name)
    naive = datetime.fromtimestamp(moment, zone).replace(tzinfo=None)
    assert moment_s(str(naive), zone) == moment


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1:30", 90), ("02:00:05", 7205), ("1-00:00:05", 86405), ("1-02", 93600)],
)
def test_durations_of_slurm_and_pbs(text: str, seconds: float) -> None:
    assert duration_s(text, 1.0) == seconds


def test_messy_rows_are_counted_by_reason_and_the_rest_is_read(tmp_path: Path) -> None:
    changes = {
        "1619828287": "soon",  # the submission
        "1619840000": "1619829000",  # ends before it starts
        "1619830000": "1609830000",  # starts before it was submitted
        "TIMEOUT": "EXPLODED",
        ",2,": ",two,",
        "TIMEOUT,4": "TIMEOUT,",  # not messy: no number of CPUs is known
    }
    rows = [ROW.replace(old, new) for old, new in changes.items()]
    cut = ROW.rpartition(",")[0]
    path = table(
        tmp_path / "a.csv",
        HEADER,
        ROW,
        *rows,
        cut,
        ROW + ",more",
        HEADER,
        ROW.replace("TIMEOUT", "RUNNING"),
        ROW.replace(",2,", ",0,"),
        ROW.replace(",2,", ",1000000000,"),
        ROW.replace("1619840000", ""),
        ROW.replace("TIMEOUT", ""),
        ROW.replace("1619840000", "32503680000"),
        ROW.replace("1619840000", "1661619840"),
        ROW.replace("1619828287", "86400"),  # submitted in 1970
    )
    assert reasons(path) == {
        "no state": 1,
        "submit is no time": 1,
        "ends before it starts": 1,
        "starts before it was submitted": 1,
        "an unknown state": 1,
        "gpus is no number of GPUs": 2,
        "ends in the future": 1,
        "waits or runs for more than a year": 2,
        "another number of cells than the header": 2,
        "a repeated header": 1,
        "not ended": 1,
        "without GPUs": 1,
        "no end time": 1,
    }
    assert len(jobs(path)) == 2
    names = [item.name for item in items(path, TABLE) if isinstance(item, Unread)]
    assert {"row 6 'two'", "row 13 '1000000000'"} <= {*names}


def test_a_limit_that_cannot_be_read_is_unknown_and_told(tmp_path: Path) -> None:
    rows = [ROW.replace("25200", limit).replace("7,", f"{n},", 1) for n, limit in enumerate(LIMITS)]
    path = table(tmp_path / "a.csv", HEADER, *rows)
    assert [job.limit_s for job in jobs(path)] == [*LIMITS.values()]
    told = json.loads(
        ingest("csv", str(path), f"--history={tmp_path / 'h'}", "--format=json").stdout
    )
    assert [*told["noted"].values()] == [2]
    assert "row 6 '7x'" in told["reasons"][0]


def test_noise_and_huge_lines_are_messy_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    noise = [b"\0\xff\xfe\x80,,,", b'"' + b"x" * 3_000_000, b"y" * 3_000_000]
    path.write_bytes(b"\n".join([HEADER.encode(), ROW.encode(), *noise, b""]))
    assert len(jobs(path)) == 1
    assert sum(reasons(path).values()) >= 1


BATCH = "#!/bin/bash\n#SBATCH --gres=gpu:1\n\nsource env.sh\npython train.py --epochs 3\n"


@pytest.mark.parametrize(
    ("column", "told", "script"),
    [
        ("script", BATCH, BATCH),
        ("script", "python train.py --epochs 3", "python train.py --epochs 3"),
        ("submit_line", "python train.py --epochs 3", "python train.py --epochs 3"),
        (
            "SubmitLine",
            "sbatch -G 1 --wrap=python train.py --epochs 3",
            "python train.py --epochs 3",
        ),
        (
            "SubmitLine",
            "sbatch --wrap 'python train.py --epochs 3' -G1",
            "python train.py --epochs 3",
        ),
        ("SubmitLine", "sbatch -G 1 train.sh --epochs 3", ""),
        ("SubmitLine", "srun -G 1 python train.py --epochs 3", ""),
        ("script", "/home/ada/train.sh --epochs 3", ""),
    ],
)
def test_what_a_row_says_of_its_script_is_what_a_submission_says(
    tmp_path: Path, column: str, told: str, script: str
) -> None:
    cell = '"' + told.replace('"', '""') + '"'
    found = items(table(tmp_path / "a.csv", f"{HEADER},{column}", f"{ROW},{cell}"))
    (run,) = (item for item in found if isinstance(item, Run))
    assert JobRequest.of(run).length == TrainingLength("epochs", 3)
    assert run.ended.script == script_signature(script.replace("3", "300"))


def test_a_hash_of_a_script_stays_and_a_path_is_a_command(tmp_path: Path) -> None:
    rows = (f"{ROW},{cell}" for cell in ("5f1c99ab", "/home/ada/train.sh"))
    hashed, path = jobs(table(tmp_path / "a.csv", f"{HEADER},script", *rows))
    assert (hashed.script, path.script, path.submit_line) == ("5f1c99ab", "", "/home/ada/train.sh")


def test_a_job_that_never_started_has_no_start(tmp_path: Path) -> None:
    row = ROW.replace("1619830000", "Unknown").replace("TIMEOUT", "CANCELLED by 1000")
    (job,) = jobs(table(tmp_path / "a.csv", HEADER, row))
    assert (job.start_s, job.state) == (None, JobState.CANCELLED)


def test_a_table_without_starts_is_read_by_what_it_has(tmp_path: Path) -> None:
    """Submission and run time, as the public Philly logs; pods' moments, as Alibaba's."""
    bare = table(tmp_path / "bare.csv", "timestamp,duration,num_gpus", "2017-10-09 07:01:55,66,1")
    (job,) = jobs(bare, {**TABLE, "zone": UTC})
    assert (job.start_s, job.end_s - job.submit_s) == (job.submit_s, 66)
    told = "no column says when jobs started"
    history = f"--history={tmp_path / 'h.sqlite'}"
    assert told in ingest("csv", str(bare), "--zone=UTC", history, "--format=json").stderr
    known = table(tmp_path / "known.csv", "submit,end,elapsed,gpus", "1000,1900,300,2")
    assert [job.start_s for job in jobs(known)] == [1600]
    moments = "num_gpu,creation_time,scheduled_time,deletion_time"
    (pod,) = jobs(table(tmp_path / "pods.csv", moments, "4,100,250,900"))
    assert (pod.gpus, pod.submit_s, pod.start_s, pod.end_s) == (4, 100, 250, 900)
    assert told not in ingest("csv", str(tmp_path / "pods.csv"), history).stderr


@pytest.mark.parametrize("name", ["A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", "a100_sxm4_80gb"])
def test_names_of_a_gpu_are_one_type(tmp_path: Path, name: str) -> None:
    (job,) = jobs(table(tmp_path / "a.csv", HEADER + ",gpu_type", f"{ROW},{name}"))
    assert job.gpu_type == "a100-sxm4-80gb"


@pytest.mark.parametrize(
    ("header", "lacks"),
    [("user,start,end,gpus", "submit"), ("user,submit,start,end", "gpus"), ("a,b", "submit")],
)
def test_a_table_without_a_needed_column_says_which(
    tmp_path: Path, header: str, lacks: str
) -> None:
    with pytest.raises(HistoryError, match=f"no column for.*{lacks}"):
        items(table(tmp_path / "a.csv", header, "1,2,3,4"))


SACCT = (
    "JobIDRaw|JobID|Cluster|User|Account|Partition|QOS|JobName|State|Submit|Start|End|Timelimit"
    "|ReqTRES|NNodes|WorkDir|SubmitLine|"
)


def sacct(job_id: str, **changes: str) -> str:
    cells = {
        "raw": job_id.partition("_")[0],
        "id": job_id,
        "cluster": "north",
        "user": "ada",
        "account": "lab",
        "partition": "gpu",
        "qos": "normal",
        "name": "train it",
        "state": "COMPLETED",
        "submit": "2021-05-01T00:00:00",
        "start": "2021-05-01T01:00:00",
        "end": "2021-05-01T03:00:00",
        "limit": "1-00:00:00",
        "tres": "billing=4,cpu=16,gres/gpu:v100=2,gres/gpu=2,mem=64G,node=1",
        "nodes": "1",
        "directory": "/home/ada",
        "line": "sbatch train.sh",
    }
    return "|".join((cells | changes).values()) + "|"


def test_a_dump_of_sacct_is_read_without_its_steps(tmp_path: Path) -> None:
    path = table(
        tmp_path / "dump",
        SACCT,
        sacct("100_3"),
        sacct("100_3.batch", user="", partition=""),
        sacct("100_3.0", user="", partition=""),
        sacct("101", state="RUNNING", end="Unknown"),
        sacct("102", tres="billing=4,cpu=16,mem=64G"),
        sacct("103", name="a|b"),
    )
    (job,) = jobs(path, SLURM)
    assert (job.scheduler, job.cluster, job.job_id) == ("slurm", "north", "100_3")
    assert (job.gpus, job.gpu_type, job.cpus, job.memory_bytes) == (
        2,
        "v100-sxm2-16gb",
        16,
        64 * 2**30,
    )
    assert (job.start_s, job.end_s) == (1619830800.0, 1619838000.0)
    assert (job.limit_s, job.directory, job.submit_line) == (86400, "/home/ada", "sbatch train.sh")
    assert reasons(path, SLURM) == {
        "a step of a job": 2,
        "not ended": 1,
        "without GPUs": 1,
        "another number of cells than the header": 1,
    }


def test_steps_of_slurm_are_no_jobs_in_any_table(tmp_path: Path) -> None:
    step = ROW.replace("ada", "")
    rows = [ROW.replace("7", one, 1) for one in ("7", "9.1", "7.extern")]
    rows += [step.replace("7", one, 1) for one in ("7.batch", "7.0")]
    path = table(tmp_path / "a.csv", HEADER, *rows)
    assert [job.job_id for job in jobs(path)] == ["7", "9.1"]
    assert reasons(path) == {"a step of a job": 3}


def swf_line(fields: Sequence[object]) -> str:
    return " ".join(map(str, fields))


def test_swf_is_read_with_what_follows_its_fields(tmp_path: Path) -> None:
    first = (1, 10, 5, 60, 4, -1, -1, 4, 100, -1, 1, 3, 2, 9, 1, -1, -1, -1)
    path = table(
        tmp_path / "a.swf",
        "; UnixStartTime: 1000000",
        swf_line((*first, "v100", 0.5)),
        swf_line((2, *first[1:3], 100, *first[4:])),
        swf_line(first[:7]),
    )
    found = ingest("swf", str(path), "--history", str(tmp_path / "h"), "--format", "json")
    told = json.loads(found.stdout)
    assert (told["new"], told["unread_reasons"]) == (2, {"fewer than 18 fields": 1})
    with History.open(str(tmp_path / "h")) as store:
        one, two = (run.ended for run in store.runs())
    assert (one.submit_s, one.start_s, one.end_s) == (1000010.0, 1000015.0, 1000075.0)
    assert (one.user, one.account, one.name, one.partition) == (
        "user 3",
        "group 2",
        "program 9",
        "queue 1",
    )
    assert (one.state, two.state) == (JobState.COMPLETED, JobState.TIMEOUT)


def test_a_log_whose_submissions_are_unix_times_does_not_count_its_origin_twice(
    tmp_path: Path,
) -> None:
    fields = (1, 1676046384, 5, 60, 4, -1, -1, 4, 100, -1, 1, 3, 2, 9, 1, -1, -1, -1)
    path = table(tmp_path / "a.swf", "; UnixStartTime: 1668693697", swf_line(fields))
    (run,) = read_swf(path).items
    assert isinstance(run, Run)
    assert run.ended.submit_s == 1676046384.0


def test_the_command_tells_reasons_and_a_second_time_changes_nothing(tmp_path: Path) -> None:
    path, history = table(tmp_path / "a.csv", HEADER, ROW, "x" + ROW + ",y"), str(tmp_path / "h")
    first = ingest("csv", str(path), "--history", history, "--cluster", "north")
    assert "another number of cells than the header" in first.stdout
    assert "1 record cannot be read, such as row 2" in first.stderr
    second = ingest("csv", str(path), "--history", history, "--cluster", "north", "--format=json")
    told = json.loads(second.stdout)
    assert (told["new"], told["changed"], told["same"], told["unread"]) == (0, 0, 1, 1)
    with History.open(history) as store:
        assert [run.ended.cluster for run in store.runs()] == ["north"]


def test_the_real_log_that_ships_is_read_whole_and_brings_its_licence() -> None:
    path = SAMPLES / "graham.csv.gz"
    found = jobs(path)
    assert (len(found), sum(reasons(path).values())) == (12_591, 0)
    assert all(job.user and job.partition and job.gpus and job.limit_s for job in found)
    told = (SAMPLES / "README.md").read_text(encoding="utf-8")
    assert "mila-iqia/slurm-queue-time-pred" in told
    assert "Copyright (c) 2023 Mila" in told


def test_times_without_a_zone_are_in_the_zone_that_is_given(tmp_path: Path) -> None:
    path, history = table(tmp_path / "dump", SACCT, sacct("1")), str(tmp_path / "h")
    ingest("sacct", str(path), "--history", history, "--zone", "America/Toronto")
    with History.open(history) as store:
        assert [run.ended.submit_s for run in store.runs()] == [1619827200.0 + 4 * 3600]
    assert "expected a name such as UTC" in ingest("sacct", str(path), "--zone=M/s", code=2).stderr


@pytest.mark.parametrize(
    ("name", "field", "scale"),
    [
        ("Walltime Requested", "limit", 1.0),
        ("wallclock_req", "limit", 1.0),
        ("Resource_List.walltime", "limit", 1.0),
        ("limit (hours)", "limit", 3600.0),
        ("time_limit_h", "limit", 3600.0),
        ("TimelimitRaw", "limit", 60.0),
        ("resources_used.walltime", "elapsed", 1.0),
        ("duration_sec", "elapsed", 1.0),
        ("wait_min", "wait", 60.0),
        ("Submit Date", "submit", 1.0),
        ("end_ts", "end", 1.0),
        ("Number of GPUs", "gpus", 1.0),
        ("Resource_List.ngpus", "gpus", 1.0),
        ("mem_gb_requested", "memory", 2.0**30),
        ("processors_req", "cpus", 1.0),
        ("project_name", "account", 1.0),
        ("Exit_status", "exit", 1.0),
    ],
)
def test_a_name_is_known_beside_other_words(name: str, field: str, scale: float) -> None:
    found = column_of(name)
    assert found is not None
    assert (found[0], found[2]) == (field, scale)


@pytest.mark.parametrize(
    "name",
    [
        "cpu_time",
        "gpu_hours",
        "gpu_util",
        "gpu1",
        "start_count",
        "start_hour",
        "TotalCPU",
        "MaxRSS",
        "CPUTimeRAW",
        "resources_used.mem",
        "node_name",
        "NodeList",
        "Priority",
        "",
        "jobs",
        "name of",
    ],
)
def test_what_only_looks_like_a_name_is_none(name: str) -> None:
    found = column_of(name)
    assert found is None


def test_an_accounting_table_of_torque_is_read_and_says_what_is_not(tmp_path: Path) -> None:
    path = table(
        tmp_path / "pbs.csv",
        "Job_Id,Job_Name,User,queue,Resource_List.ngpus,Resource_List.walltime,qtime,start,end,"
        "Exit_status,session",
        "5.m1,blast,ann,batch,2,08:00:00,1506830419,1506830495,1506834095,0,17",
        "6.m1,blast,ann,batch,2,08:00:00,1506830419,1506830495,1506834095,271,17",
        "7.m1,blast,ann,batch,2,01:00:00,1506830419,1506830495,1506834095,-11,17",
        "8.m1,blast,ann,batch,2,08:00:00,1506830419,1506830495,1506834095,0.0,17",
    )
    assert [job.limit_s for job in jobs(path)] == [28800.0, 28800.0, 3600.0, 28800.0]
    ends = [JobState.COMPLETED, JobState.FAILED, JobState.TIMEOUT, JobState.COMPLETED]
    assert [job.state for job in jobs(path)] == ends
    history = str(tmp_path / "h.sqlite")
    assert "columns not read: session" in ingest("csv", str(path), "--history", history).output


def test_a_name_as_it_stands_comes_before_one_with_words_beside_it(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", "gpus_total,gpus,submit,start,end", "8,2,0,10,20")
    assert [job.gpus for job in jobs(path)] == [2]


def test_tasks_of_an_array_under_one_number_are_jobs_of_their_own(tmp_path: Path) -> None:
    tasks = [ROW.replace("1619840000", f"161984000{n}") for n in range(5)]
    path = table(tmp_path / "a.csv", HEADER, *tasks, tasks[2], ROW.replace("7,", "8,", 1))
    assert [job.job_id for job in jobs(path)] == ["7", "7_1", "7_2", "7_3", "7_4", "7_2", "8"]
    history = str(tmp_path / "h.sqlite")
    for same in (1, 6):  # the repeated row; all rows the second time, of which one is there twice
        found = ingest("csv", str(path), "--history", history, "--format", "json")
        assert json.loads(found.stdout)["same"] >= same
    with History.open(history) as store:
        assert store.count() == 6


def test_a_row_of_sacct_without_submission_has_its_start_for_it(tmp_path: Path) -> None:
    head = "JobID|User|State|Submit|Start|End|AllocTRES"
    rows = [
        f"{number}|ada|COMPLETED|{submit}|{start}|2026-01-01T02:00:00|gres/gpu=1"
        for number, submit, start in (
            (1, "Unknown", "2026-01-01T01:00:00"),
            (2, "1970-01-01T00:00:00", "2026-01-01T01:00:00"),
            (3, "1970-01-01T00:00:00", "Unknown"),
        )
    ]
    path = table(tmp_path / "dump", head, *rows)
    assert [job.submit_s == job.start_s for job in jobs(path, SLURM)] == [True, True]
    assert reasons(path, SLURM) == {"no submit time": 1}


def test_tasks_of_an_array_and_components_of_a_het_job_count_once_each(tmp_path: Path) -> None:
    """Not their steps, nor a whole job beside them; tasks that never ran are one record."""
    head = "JobID|User|State|Submit|Start|End|AllocTRES|ReqTRES"
    times = "2026-01-01T00:00:00|2026-01-01T01:00:00|2026-01-01T02:00:00"
    gpus = {"100+0": 2, "100+1": 4, "200_1": 1, "200_2": 1}
    rows = [f"{job}|ada|COMPLETED|{times}|gres/gpu={n}|gres/gpu={n}" for job, n in gpus.items()]
    rows += [
        f"{job}.{step}||COMPLETED|{times}|gres/gpu=1|" for job in gpus for step in ("0", "batch")
    ]
    never = times.replace("2026-01-01T01:00:00", "Unknown")
    rows.append(f"200_[3-9%2]|ada|CANCELLED by 1000|{never}||gres/gpu=1")
    found = jobs(table(tmp_path / "dump", head, *rows), SLURM)
    assert {job.job_id: job.gpus for job in found} == {**gpus, "200_[3-9%2]": 1}
    assert found[-1].start_s is None
