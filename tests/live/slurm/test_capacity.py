"""The capacity report of a real Slurm: its sums are those of sacct and sreport, to the second."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from windows import Window, iso

from .accounting_sums import HOUR_S, is_the_same, report, rows_of_sacct, seconds_of, split
from .cluster import SlurmCluster
from .test_history import ingest, stored

LONG = "#!/bin/sh\nsleep 600\n"
SHORT = "#!/bin/sh\nsleep 1\n"
# The numbers by which the database of accounting knows states.
TIMEOUT, PREEMPTED, NODE_FAIL = 6, 8, 7
# slurmctld tells accounting again of starts that have no number there yet, as often as this.
STARTS_AGAIN_S = 5


@pytest.fixture
def users(here: SlurmCluster, user: str | None) -> None:
    """Who submits is known to accounting in both accounts: sreport adds up by association."""
    for name in ("root", *([user] if user else [])):
        here.run("sacctmgr", "-i", "add", "account", "teaching", check=False)
        for account in ("research", "teaching"):
            here.run("sacctmgr", "-i", "add", "user", name, f"account={account}", check=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """Jobs of every shape that ended, some by name."""

    ids: tuple[int, ...]
    at_begin: int
    at_end: int
    others: tuple[int, int, int]


def every_shape(here: SlurmCluster, user: str | None) -> Sent:
    """Run them; returns when accounting has them all."""
    research, teaching = ("-A", "research"), ("-A", "teaching")
    whole = here.submit(*research, "--gres=gpu:v100:4", script=SHORT).job_id
    failed = here.submit(
        *teaching, "--gres=gpu:a100:1", script="#!/bin/sh\nexit 3\n", user=user
    ).job_id
    array = here.submit(*research, "--array=0-2", "--gpus=1", script=SHORT).job_id
    het = here.submit(*teaching, "--gres=gpu:a100:1", ":", "--gres=gpu:v100:2", script=SHORT).job_id
    others = tuple(
        here.submit(*research, "-p", "short", f"--gres=gpu:a100:{n}", script=SHORT).job_id
        for n in (1, 2, 3)
    )
    cpu = here.submit(*research, script=SHORT).job_id
    never = here.submit(*research, "-H", "--gres=gpu:1").job_id
    held = here.submit(*teaching, "--gres=gpu:p100:2", script=LONG, user=user).job_id
    again = here.submit(*teaching, "--gres=gpu:p100:4", "--requeue", script=LONG).job_id
    for job_id in (held, again):
        here.wait(job_id, ["RUNNING"])
    here.run("scontrol", "suspend", str(held))
    time.sleep(2.1)  # what sreport and sacct count apart
    here.run("scontrol", "resume", str(held))
    here.run("scontrol", "requeue", str(again))
    here.wait(again, ["PENDING"])
    here.run("scancel", str(held), str(again), str(never))
    records = {whole: 1, failed: 1, array: 3, het: 2, cpu: 1, never: 1, held: 1, again: 2}
    for job_id, count in {**records, **dict.fromkeys(others, 1)}.items():
        here.sacct(job_id, "state", records=count)
    here.wait_until(lambda: "DBD Agent queue size: 0" in here.run("sdiag").stdout)
    time.sleep(STARTS_AGAIN_S + 1)
    components = [int(job["JobId"]) for job in here.jobs(het)]
    tasks = [int(job["JobId"]) for job in here.jobs(array)]
    return Sent(
        ids=(*records, *others, *components, *tasks),
        at_begin=whole,
        at_end=failed,
        others=(others[0], others[1], others[2]),
    )


def sql(here: SlurmCluster, text: str) -> None:
    here.run(
        "mariadb",
        "--no-defaults",
        f"--socket={here.places.mariadb_socket}",
        "slurm_acct",
        input=text,
    )


def moved(here: SlurmCluster, sent: Sent, window: Window) -> None:
    """Put what ended just now into hours that are over, some of it across the edges.

    The jobs are longer there, and three of them ended as seldom happens within seconds.
    """
    since, until = window.since_s, window.until_s
    back = int(time.time()) - since - 600
    ids = ",".join(map(str, sent.ids))
    times = {
        sent.at_begin: (since - 600, since + 1234),
        sent.at_end: (until - 777, until + 500),
        sent.others[0]: (since - 100, until + 100),
        sent.others[1]: (since, since + 1),
        sent.others[2]: (until - 1, until),
    }
    ends = {sent.at_begin: NODE_FAIL, sent.others[1]: TIMEOUT, sent.others[2]: PREEMPTED}
    sql(
        here,
        f"""
        UPDATE bench_job_table SET time_submit = time_submit - {back},
            time_eligible = IF(time_eligible > {back}, time_eligible - {back}, 0),
            time_start = IF(time_start, time_start - {back}, 0),
            time_end = time_end - {back} + 60 * (id_job % 5) *
                (time_suspended = 0 AND tres_alloc != '')
            WHERE id_job IN ({ids});
        UPDATE bench_suspend_table SET time_start = time_start - {back},
            time_end = time_end - {back} WHERE job_db_inx IN
            (SELECT job_db_inx FROM bench_job_table WHERE id_job IN ({ids}));
        UPDATE bench_event_table SET time_start = {since - 2 * HOUR_S} WHERE node_name = '';
        DELETE FROM bench_last_ran_table;
        INSERT INTO bench_last_ran_table VALUES
            ({since - 2 * HOUR_S}, {since - 2 * HOUR_S}, {since - 2 * HOUR_S});
        """,
    )
    for job_id, (start, end) in times.items():
        sql(
            here,
            f"""UPDATE bench_job_table SET time_submit = {start - 5},
            time_eligible = {start}, time_start = {start}, time_end = {end}
            WHERE id_job = {job_id};""",
        )
    for job_id, state in ends.items():
        sql(here, f"UPDATE bench_job_table SET state = {state} WHERE id_job = {job_id};")


@pytest.fixture
def old_period(here: SlurmCluster, users: None, user: str | None) -> Iterator[Window]:
    """Two hours in the past with jobs of every shape, which are forgotten afterwards."""
    hour_s = int(time.time()) // HOUR_S * HOUR_S
    window = Window(since_s=hour_s - 6 * HOUR_S, until_s=hour_s - 4 * HOUR_S)
    sent = every_shape(here, user)
    moved(here, sent, window)
    yield window
    ids = ",".join(map(str, sent.ids))
    sql(here, f"DELETE FROM bench_job_table WHERE id_job IN ({ids});")


def sreport(here: SlurmCluster, window: Window, *what: str) -> list[list[str]]:
    text = here.run(
        "sreport",
        "-n",
        "-P",
        "-t",
        "Seconds",
        "--tres=gres/gpu",
        *what,
        f"start={iso(window.since_s):.19}",
        f"end={iso(window.until_s):.19}",
        env={"TZ": "UTC"},
    ).stdout
    return [line.split("|") for line in text.splitlines()]


def rolled_up(here: SlurmCluster, window: Window) -> None:
    """What slurmdbd does after every hour; the command is not in the help of sacctmgr."""
    here.run("sacctmgr", "-i", "rollup")
    here.wait_until(lambda: bool(sreport(here, window, "cluster", "AccountUtilizationByUser")))


def test_an_ingested_period_reconciles_with_sacct_and_sreport(
    here: SlurmCluster, tmp_path: Path, old_period: Window
) -> None:
    window = old_period
    rolled_up(here, window)
    path = str(tmp_path / "history.sqlite")
    told = ingest(here, path, "--since", "1d")
    found = report("--history", path, *window.words)
    rows = rows_of_sacct(here, window)
    # Twice among all live tests, never alone, no row was the cancelled one's.
    outcomes = {"completed", "failed", "timed_out", "preempted", "running"}
    assert outcomes <= {row.outcome for row in rows} <= {*outcomes, "cancelled"}, rows
    assert told["unread"] == 0
    is_the_same(found, rows)
    assert [aside["reason"] for aside in found["origin"]["set_aside"]] == ["it never started"]

    usage = sreport(here, window, "cluster", "AccountUtilizationByUser")
    by_user = {(account, login): int(used) for _, account, login, _, _, used in usage}
    assert by_user["root", ""] == seconds_of(found["hours"])
    for account, gpu_s in split(found, "account").items():
        assert by_user[account, ""] == gpu_s
    logins = Counter[str]()
    for (_, login), used in by_user.items():
        logins[login] += used
    assert {name: logins[name] for name in logins if name} == split(found, "user")

    # this one of sreport leaves out what was suspended, though the GPUs were held
    sizes = sreport(here, window, "job", "SizesByAccount", "FlatView")
    suspended = Counter[str]()
    for row in rows:
        suspended[row.account] += row.suspended_gpu_s
    assert sum(suspended.values()) >= 2
    # 26.05 adds a total to the five sizes
    assert {account: sum(map(int, used[:5])) for _, account, *used in sizes} == {
        account: gpu_s - suspended[account] for account, gpu_s in split(found, "account").items()
    }


def test_a_job_that_was_resized_counts_from_then_on(here: SlurmCluster, tmp_path: Path) -> None:
    job_id = here.submit("-N2", "--gres=gpu:p100:1", script=LONG).job_id
    here.wait(job_id, ["RUNNING"])
    time.sleep(1.1)
    here.run("scontrol", "update", f"jobid={job_id}", "NumNodes=1")
    time.sleep(1.1)
    here.run("scancel", str(job_id))
    here.sacct(job_id, "state", records=2)
    path = str(tmp_path / "history.sqlite")
    ingest(here, path, "--since", "1h", "--until", iso(int(time.time()) + 1))
    [job] = [run.ended for run in stored(path, job_id).values()]
    assert (job.gpus, job.start_s) == (1, job.submit_s)
    assert job.end_s - job.submit_s >= 1


def test_the_report_of_slurm_as_it_is_now_holds_what_runs(here: SlurmCluster) -> None:
    since_s = int(time.time())
    running = here.submit("-A", "research", "--gres=gpu:v100:3", script=LONG).job_id
    done = here.submit("-A", "research", "--gres=gpu:a100:2", script=SHORT).job_id
    waits = here.submit("-A", "research", "-H", "--gres=gpu:a100:2", script=SHORT).job_id
    here.wait(running, ["RUNNING"])
    here.sacct(done, "state")
    time.sleep(1.1)  # so that the period holds a second of it
    window = Window(since_s=since_s, until_s=int(time.time()))
    # slurmctld tells accounting of a start when it comes to it.
    here.wait_until(
        lambda: (
            Counter(row.outcome for row in rows_of_sacct(here, window))
            == {"running": 1, "completed": 1}
        )
    )
    rows = rows_of_sacct(here, window)
    found = report("--from", "slurm", *window.words)
    is_the_same(found, rows)
    assert found["hours"]["running"] > 0
    assert found["origin"]["kind"] == "slurm"
    assert found["gpus"] == {"a100-sxm4-80gb": 8, "p100-pcie-16gb": 8, "v100-sxm2-16gb": 8}
    assert here.job(waits)["JobState"] == "PENDING"
