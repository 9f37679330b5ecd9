"""Late is not lost: what was not decided at submit is made good while the job is pending."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from predictor.estimate.fitting import Fitted
from slurm_plugin.daemon.reconcile import PendingJob, clear_order, in_turns
from slurm_plugin.mark import parse_mark
from slurm_plugin.order import BASE, SINCE_S
from slurm_plugin.sources.commands import Commands

from .cluster import SlurmCluster
from .daemon import PATIENT, DecisionDaemon, install_hook
from .installation import Installation
from .tables import Bench

MODEL = "model=resnet50 precision=amp epochs=3 samples=1281167 batch=256"
DEFAULT = "1-00:00:00"
WITHIN_S = 30.0
SLEEPS = "#!/bin/sh\nsleep 600\n"
ORDER = {"mode": "apply", "weight": 5, "longest_delay": "4h"}

pytestmark = pytest.mark.usefixtures("fitted")


@pytest.fixture
def daemon(bench: SlurmCluster, fitted: Fitted, session_home: Path) -> Iterator[DecisionDaemon]:
    """A daemon that is not started yet, and a hook that asks it."""
    daemon = DecisionDaemon(bench, session_home)
    install_hook(bench, daemon.socket, cache_s=0.0)
    yield daemon
    daemon.stop()


def test_jobs_submitted_while_the_daemon_was_dead_are_made_good(
    bench: SlurmCluster, daemon: DecisionDaemon, user: str | None
) -> None:
    described = bench.submit("--hold", "--gres=gpu:a100:1", f"--comment={MODEL}", user=user)
    scripted = bench.submit(
        "--hold", "--gres=gpu:1", user=user, script=f"#!/bin/sh\n#PT {MODEL}\npython t.py\n"
    )
    own = bench.submit("--hold", "--gres=gpu:a100:1", f"--comment={MODEL}", "--time=900", user=user)
    array = bench.submit("--hold", "--gres=gpu:1", f"--comment={MODEL}", "--array=0-3", user=user)
    cpu = bench.submit("--hold", "--partition=cpu", user=user)
    assert bench.job(described.job_id)["AdminComment"] == "precision-time v=1 later=hook own=none"
    assert bench.job(own.job_id)["AdminComment"] == "precision-time v=1 later=hook own=900"
    daemon.start()
    bench.wait_until(lambda: _decided(bench, described, scripted, own, array), WITHIN_S)
    for job in (described, scripted, array):
        found = bench.job(job.job_id)
        mark = parse_mark(found["AdminComment"])
        assert mark is not None
        assert mark.limit is not None
        assert found["TimeLimit"] != DEFAULT
        assert (found["Features"] == "tensorcore") == (job is not described)
    assert bench.job(own.job_id)["TimeLimit"] == "15:00:00"
    assert "AdminComment" not in bench.job(cpu.job_id)


def test_a_late_job_is_placed_as_the_hook_would_have_and_by_the_nodes_it_names(
    bench: SlurmCluster, daemon: DecisionDaemon, user: str | None
) -> None:
    """A job that may run on nothing else must not wait for tensor cores for ever."""
    ask = ("--hold", "--gres=gpu:1", f"--comment={MODEL}")
    free, named, left, typed = (
        bench.submit(*ask, *more, user=user)
        for more in ((), ("--nodelist=p1",), ("--exclude=a[1-2],v[1-2]",), ("--prefer=gpu",))
    )
    daemon._write({"placement": {"method": "prefer"}})
    daemon.start()
    bench.wait_until(lambda: _decided(bench, free, named, left, typed), WITHIN_S)
    found = [bench.job(job.job_id) for job in (free, named, left, typed)]
    assert [job["Features"] for job in found] == ["(null)"] * 4
    assert [job.get("Prefer") for job in found] == ["tensorcore", None, None, "gpu"]
    assert all(job["TimeLimit"] != DEFAULT for job in found)


def test_each_component_of_a_het_job_gets_its_own_limit(
    bench: SlurmCluster, daemon: DecisionDaemon, user: str | None
) -> None:
    ask, long = ("--gres=gpu:a100:1", f"--comment={MODEL}"), MODEL.replace("epochs=3", "epochs=30")
    het = bench.submit(
        "--hold", *ask, ":", "--gres=gpu:a100:1", f"--comment={long}", ":", "-pcpu", user=user
    )
    daemon.start()

    def limits() -> list[str]:
        return [job["TimeLimit"] for job in bench.jobs(het.job_id)]

    bench.wait_until(lambda: DEFAULT not in limits(), WITHIN_S)
    short, longer, cpu = limits()
    assert short < longer
    assert cpu == "01:00:00"  # of its partition


def test_where_slurm_gives_a_pending_job_no_gpu_type_it_keeps_its_limit(
    bench: SlurmCluster, daemon: DecisionDaemon, user: str | None
) -> None:
    ask = ("--hold", f"--comment={MODEL}")
    missed = bench.submit(*ask, "--gres=gpu:1", user=user)
    typed = bench.submit(*ask, "--gres=gpu:v100:1", user=user)
    daemon._write({"placement": {"method": "gres"}})
    daemon.start()
    bench.wait_until(lambda: _decided(bench, typed), WITHIN_S)
    assert bench.job(typed.job_id)["TimeLimit"] != DEFAULT
    assert bench.job(missed.job_id)["TimeLimit"] == DEFAULT
    assert bench.job(missed.job_id)["TresPerNode"].endswith("gpu:1")


def test_of_an_array_the_tasks_that_run_keep_what_they_have(
    bench: SlurmCluster, daemon: DecisionDaemon, user: str | None
) -> None:
    ask = ("--gres=gpu:a100:1", f"--comment={MODEL}", "--array=0-5%2")
    array = bench.submit(*ask, user=user, script="#!/bin/sh\nsleep 300\n")
    tasks = [f"{array.job_id}_{n}" for n in range(6)]

    def shown(task: str) -> Mapping[str, str]:
        text = bench.run("scontrol", "-o", "show", "job", task).stdout
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    bench.wait_until(lambda: all(shown(t)["JobState"] == "RUNNING" for t in tasks[:2]))
    daemon.start()
    bench.wait_until(lambda: shown(tasks[5])["TimeLimit"] != DEFAULT, WITHIN_S)
    assert {shown(task)["TimeLimit"] for task in tasks[:2]} == {DEFAULT}
    assert len({shown(task)["TimeLimit"] for task in tasks[2:]}) == 1


def test_a_new_network_costs_its_submit_no_prediction_and_is_made_good(
    bench: SlurmCluster, daemon: DecisionDaemon, user: str | None
) -> None:
    daemon._write({"daemon": {"prediction_ms": 0.0, "deadline_ms": 40.0}})
    daemon.start()
    ask = ("--hold", "--gres=gpu:a100:1", f"--comment={MODEL}")
    queued = bench.submit(*ask, user=user)
    assert any("the time of resnet50 follows" in text for text in queued.messages)
    bench.wait_until(lambda: _decided(bench, queued), WITHIN_S)
    assert bench.job(queued.job_id)["TimeLimit"] != DEFAULT

    def answered_at_once() -> bool:  # one in time: a busy machine may miss 40 ms
        again = bench.submit(*ask, user=user)
        return any("time limit set to" in text for text in again.messages)

    bench.wait_until(answered_at_once, WITHIN_S)


def test_a_limit_of_ours_follows_a_changed_job_and_no_other_does(
    bench: SlurmCluster, daemon: DecisionDaemon, user: str | None
) -> None:
    daemon.start()
    ask = ("--hold", "--gres=gpu:a100:1", f"--comment={MODEL}")
    ours, own, raised = (bench.submit(*ask, *more, user=user) for more in ((), ("-t900",), ()))
    bench.wait_until(lambda: _decided(bench, ours, own, raised), WITHIN_S)
    before = bench.job(ours.job_id)["TimeLimit"]
    bench.run("scontrol", "update", f"JobId={raised.job_id}", "TimeLimit=1000")
    for job in (ours, own, raised):
        shorter = MODEL.replace("epochs=3", "epochs=90")
        bench.run("scontrol", "update", f"JobId={job.job_id}", f"Comment={shorter}")
    bench.wait_until(lambda: bench.job(ours.job_id)["TimeLimit"] != before, WITHIN_S)
    mark = parse_mark(bench.job(ours.job_id)["AdminComment"])
    assert mark is not None
    assert "epochs=90" in mark.job
    assert bench.job(own.job_id)["TimeLimit"] == "15:00:00"
    assert bench.job(raised.job_id)["TimeLimit"] == "16:40:00"


def test_what_users_wrote_moves_nothing_else(
    bench: SlurmCluster, daemon: DecisionDaemon, user: str | None
) -> None:
    odd = f'{MODEL} variant="a;b\'c" Priority=9 \\ TimeLimit=1'
    queued = bench.submit("--hold", "--gres=gpu:1", f"--comment={odd}", user=user)
    before = bench.job(queued.job_id)
    daemon.start()
    bench.wait_until(lambda: _decided(bench, queued), WITHIN_S)
    after = bench.job(queued.job_id)
    same = {"Priority", "Partition", "UserId", "Comment", "JobName", "Nice"}
    assert {k: after[k] for k in same} == {k: before[k] for k in same}


@pytest.fixture
def ordered(
    installation: Installation, fitted: Fitted, session_home: Path
) -> Iterator[tuple[SlurmCluster, DecisionDaemon]]:
    """A cluster without accounting whose scheduler heeds SiteFactor, its daemon not started."""
    with SlurmCluster(installation, Bench(accounting=False, priority="multifactor")) as cluster:
        daemon = DecisionDaemon(cluster, session_home)
        install_hook(cluster, daemon.socket, cache_s=0.0)
        yield cluster, daemon
        daemon.stop()


def test_the_order_is_written_at_submit_and_made_good_and_taken_back(
    ordered: tuple[SlurmCluster, DecisionDaemon], user: str | None
) -> None:
    bench, daemon = ordered
    waits = ("--nodelist=a1", "--exclusive")  # sprio lists jobs that could start but for room
    first = bench.submit(*waits, "--time=60", user=user, script="#!/bin/sh\nsleep 300\n")
    bench.wait(first.job_id, ["RUNNING"])
    late = bench.submit(*waits, "--gres=gpu:1", "--time=600", user=user)
    daemon._write({"order": ORDER, "limits": {"mode": "off"}})
    daemon.start()
    bench.wait_until(lambda: late.job_id in _site_factors(bench), WITHIN_S)
    short = bench.submit(*waits, "--gres=gpu:1", "--time=10", user=user)
    long = bench.submit(*waits, "--gres=gpu:1", "--time=2000", user=user)
    cpu = bench.submit(*waits, user=user)
    daemon.kill()
    missed = bench.submit(*waits, "--gres=gpu:1", "--time=10", user=user)
    daemon.start()
    queued = {late.job_id, short.job_id, missed.job_id, long.job_id, cpu.job_id}
    places: dict[int, int] = {}

    def all_placed() -> bool:
        places.update(_site_factors(bench))
        return queued <= places.keys()

    bench.wait_until(all_placed, WITHIN_S)
    # of the missed one the hook knew no more than of the job without GPUs
    bench.wait_until(
        lambda: all_placed() and abs(places[missed.job_id] - places[short.job_id]) < 60, WITHIN_S
    )
    # the one of 2,000 minutes and jobs without an estimate stand back as far as is allowed
    assert places[short.job_id] > places[cpu.job_id]
    assert places[cpu.job_id] == pytest.approx(places[long.job_id], abs=60)  # moments later
    assert places[short.job_id] - places[long.job_id] < 4 * 3600
    assert abs(places[late.job_id] - places[long.job_id]) < 4 * 3600
    bench.run("scontrol", "hold", str(short.job_id))  # sprio does not list it any more
    daemon.set_policy(order={"mode": "off"})
    bench.wait_until(lambda: not _site_factors(bench), WITHIN_S)
    daemon.stop()
    clear_order(_commands(bench))
    assert bench.job(short.job_id)["Priority"] == "0"
    bench.run("scontrol", "release", str(short.job_id))
    bench.wait_until(lambda: short.job_id in _site_factors(bench, least=0), WITHIN_S)
    assert _site_factors(bench) == {}


SECONDS = {"PriorityWeightAge": 31_536_000, "PriorityMaxAge": "365-0"}  # one point is a second
WEIGHTS = {"PriorityWeightFairshare": 100_000, "PriorityWeightQOS": 7200, "PriorityCalcPeriod": 1}


def test_the_order_adds_to_fair_share_and_qos_in_seconds(
    installation: Installation, fitted: Fitted, session_home: Path, user: str | None
) -> None:
    if user is None:
        pytest.skip("root alone can submit as two users")
    lines = tuple(f"{name}={value}" for name, value in (SECONDS | WEIGHTS).items())
    with SlurmCluster(installation, Bench(priority="multifactor", lines=lines)) as bench:
        bench.run("sacctmgr", "-i", "add", "qos", "high", "priority=100")
        for name, shares in ((user, 9), ("games", 1)):
            given = (f"name={name}", "account=research", f"fairshare={shares}", "qos=normal,high")
            bench.run("sacctmgr", "-i", "add", "user", *given)
        waits = ("--nodelist=a1", "--exclusive", "--gres=gpu:1")
        first = bench.submit(*waits, user="games", script="#!/bin/sh\nsleep 600\n")
        bench.wait(first.job_id, ["RUNNING"])
        with DecisionDaemon(bench, session_home, order=ORDER, limits={"mode": "off"}) as daemon:
            install_hook(bench, daemon.socket, **PATIENT)
            asked = ((user, 10), (user, 600), ("games", 10), ("games", 10))
            short, long, poor, high = (
                bench.submit(*waits, f"--time={t}", *more, user=who, script=SLEEPS).job_id
                for (who, t), more in zip(asked, ((), (), (), ("--qos=high",)), strict=True)
            )
            terms: dict[int, dict[str, int]] = {}

            def weighed() -> bool:  # fair share is counted once a minute
                terms.update(_terms(bench))
                return {short, long, poor, high} <= terms.keys() and terms[short]["fs"] > 0

            bench.wait_until(weighed, 150.0)
            for each in terms.values():
                parts = each["site"] + each["age"] + each["fs"] + each["qos"]
                assert each["all"] == pytest.approx(parts, abs=3)
            told = [int(delay) for delay in re.findall(r"delay_s=(\d+)", bench.log())]
            assert [BASE - terms[job]["site"] for job in (short, long, poor, high)] == told
            assert told[0] < told[1] <= 4 * 3600
            assert terms[high]["qos"] - terms[poor]["qos"] == 7200
            # whose share is larger comes first, however long: by more seconds than the bound
            order = sorted(terms, key=lambda job: -terms[job]["all"])
            assert order == [short, long, high, poor]
            bench.run("scancel", str(first.job_id))
            bench.wait(short, ["RUNNING"])
            assert bench.job(long)["JobState"] == "PENDING"


def test_the_order_by_nice_adds_to_the_users_own_and_is_taken_back(
    bench: SlurmCluster, daemon: DecisionDaemon, user: str | None
) -> None:
    """Where priority is basic: there a changed nice would release a job that is held."""
    ask = ("--begin=now+1hour", "--gres=gpu:1")
    polite = bench.submit(*ask, "--time=10", "--nice=100", user=user)
    jobs = [polite, *(bench.submit(*ask, f"--time={m}", user=user) for m in (10, 1000, 10))]
    held = bench.submit("--hold", "--gres=gpu:1", user=user)
    daemon._write({"order": ORDER, "limits": {"mode": "off"}})
    daemon.start()

    def nice() -> list[int]:
        return [int(bench.job(job.job_id)["Nice"]) for job in jobs]

    bench.wait_until(lambda: min(nice()) > SINCE_S / 100, WITHIN_S)
    own, short, long, last = nice()
    assert own == pytest.approx(short + 100, abs=30)  # moments apart
    assert 0 < long - short <= 4 * 3600
    bench.run("scontrol", "hold", str(jobs[-1].job_id))
    daemon.stop()
    assert clear_order(_commands(bench)) == (3, str(jobs[-1].job_id))
    assert nice() == [0, 0, 0, last]
    for job in (held, jobs[-1]):
        assert bench.job(job.job_id)["Priority"] == "0"


def test_no_thousands_of_one_user_keep_up_another() -> None:
    rows = [{"UserID": user, "JobID": str(n)} for n, user in enumerate("aaaabab")]
    jobs = in_turns(PendingJob(row, None, None) for row in rows)
    assert [job.row["JobID"] for job in jobs] == ["0", "4", "1", "6", "2", "3", "5"]


def test_many_jobs_are_made_good_in_one_pass(
    bench: SlurmCluster, daemon: DecisionDaemon, user: str | None
) -> None:
    for n in range(40):  # distinct ones: an array is one record
        bench.submit("--hold", "--gres=gpu:1", f"--job-name=many{n}", user=user)
    daemon.start()

    def all_done() -> bool:
        text = bench.run("squeue", "-h", "-O", "admin_comment:200").stdout
        return text.count("expected_s=") >= 40 and "later=" not in text

    bench.wait_until(all_done, WITHIN_S)


def _decided(bench: SlurmCluster, *jobs: object) -> bool:
    marks = [parse_mark(bench.job(job.job_id)["AdminComment"]) for job in jobs]  # type: ignore[attr-defined]
    return all(mark is not None and mark.later is None for mark in marks)


def _commands(bench: SlurmCluster) -> Commands:
    programs = Path(bench.installation.program("scontrol")).parent
    return Commands(programs, conf=bench.places.etc / "slurm.conf")


def _terms(bench: SlurmCluster) -> dict[int, dict[str, int]]:
    """Of the pending jobs the terms of their priority."""
    lines = bench.run("sprio", "-h", "-o", "%i %Y %S %A %F %Q", check=False).stdout.splitlines()
    names = ("all", "site", "age", "fs", "qos")
    numbers = (list(map(int, line.split())) for line in lines)
    return {job: dict(zip(names, of, strict=True)) for job, *of in numbers}


def _site_factors(bench: SlurmCluster, least: int = 1) -> dict[int, int]:
    """Of the pending jobs that have one."""
    lines = bench.run("sprio", "-h", "-o", "%i %S", check=False).stdout.splitlines()
    pairs = (text.split() for text in lines)
    found = {int(job): int(value) for job, value in pairs if job.isdecimal()}
    return {job: value for job, value in found.items() if value >= least}
