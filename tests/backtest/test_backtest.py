"""Promises of the whole backtest: where it runs makes no difference, and what it writes."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from sample_cluster.generate import generate

from predictor.cli.main import main
from predictor.estimate.fitting import Fitted
from predictor.site.backtest.policies import policies_of
from predictor.site.backtest.run import Backtest, backtest
from predictor.site.backtest.workload import LimitBounds, ReplayJobs, workload_of_runs
from predictor.site.history.run import JobState, LimitBy, Run
from predictor.site.replay import Policy, Pool
from predictor.site.similar.estimate import PhysicsView

POLICIES = policies_of(["users", "default", "order@0.5", "oracle"])
POOLS = (Pool(name="a100-sxm4-80gb", gpus=16, gpus_per_node=8),)


@pytest.fixture(scope="module")
def found(work: ReplayJobs) -> Backtest:
    return backtest(work, POLICIES, jobs=1)


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return list(generate(seed=5, days=2, pools=POOLS))


def figures(found: Backtest) -> list[dict[str, object]]:
    return [asdict(each.figures) for each in found.replayed]


# --- what it finds ------------------------------------------------------------------------------


def test_every_policy_is_replayed_in_order(found: Backtest) -> None:
    assert [each.figures.policy for each in found.replayed] == [p.name for p in POLICIES]
    assert {each.figures.jobs for each in found.replayed} == {len(found.work)}


def test_used_hours_of_the_schedule_are_those_of_the_figures(found: Backtest) -> None:
    for each in found.replayed:
        out = each.schedule
        held = (out.end_s - out.start_s + out.lost_s) * found.work.gpus
        assert each.figures.used_gpu_hours == pytest.approx(float(held.sum()) / 3600)


def test_fifo_waits_at_least_as_long_as_backfill(work: ReplayJobs, found: Backtest) -> None:
    fifo = backtest(work, policies_of(["oracle"]), queue=Policy.FIFO, jobs=1)
    easy = next(each for each in found.replayed if each.policy.name == "oracle")
    assert fifo.replayed[0].figures.wait_mean_s >= easy.figures.wait_mean_s


def test_what_jobs_name_of_their_network_changes_what_is_learned(
    work: ReplayJobs, found: Backtest, fitted: Fitted
) -> None:
    told = backtest(work, POLICIES, physics=PhysicsView(fitted.predictor), jobs=1)
    name = [policy.name for policy in POLICIES].index("order@0.5")
    assert figures(told)[name] != figures(found)[name]
    assert figures(told)[0] == figures(found)[0]


# --- a history ----------------------------------------------------------------------------------


def test_a_history_replayed_under_its_own_limits_waits_as_it_did(runs: list[Run]) -> None:
    """The sample was scheduled by the same simulator, so it comes out as it went in."""
    work = workload_of_runs(runs, pools=POOLS, bounds=LimitBounds())
    out = backtest(work, policies_of(["users"]), jobs=1).replayed[0].schedule
    assert out.start_s.tolist() == [run.ended.start_s for run in runs]


def test_a_timeout_is_a_lower_bound(runs: list[Run]) -> None:
    work = workload_of_runs(runs, pools=POOLS, bounds=LimitBounds())
    timeouts = [run.ended.state is JobState.TIMEOUT for run in runs]
    assert work.censored.tolist() == timeouts


def test_limits_that_users_did_not_set_count_as_not_stated(runs: list[Run]) -> None:
    work = workload_of_runs(runs, pools=POOLS, bounds=LimitBounds())
    stated = [run.limit_by is LimitBy.USER for run in runs]
    assert (~np.isnan(work.asked_s)).tolist() == stated


def test_a_pool_of_unknown_size_is_as_large_as_it_was_ever_used(runs: list[Run]) -> None:
    work = workload_of_runs(runs, bounds=LimitBounds())
    assert work.pools[0].name == POOLS[0].name
    assert 8 <= work.pools[0].gpus <= POOLS[0].gpus


# --- where it runs ------------------------------------------------------------------------------


def test_processes_here_change_nothing(work: ReplayJobs, found: Backtest) -> None:
    assert figures(backtest(work, POLICIES, jobs=2)) == figures(found)


# --- the command --------------------------------------------------------------------------------

SWF = "; MaxProcs: 8\n" + "\n".join(
    f"{i} {60 * i} 0 600 4 -1 -1 4 3600 -1 1 1 1 1 0 1 -1 -1" for i in range(20)
)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["backtest", *arguments])


def test_an_swf_file_by_command(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(SWF)
    result = run("--swf", str(path), "--jobs", "1")
    assert result.exit_code == 0, result.output
    assert "20 jobs, submitted within " in result.stdout
    assert "order@0.5" in result.stdout
    as_json = run("--swf", str(path), "--jobs", "1", "--format", "json", "--policy", "users,oracle")
    said = json.loads(as_json.stdout)
    assert [row["policy"] for row in said["policies"]] == ["users", "oracle"]
    assert said["policies"][0]["unused_gpu_hours"] == pytest.approx(20 * 4 * 3000 / 3600)
    assert {"wait_p95_s", "wait_max_s", "extra_kills"} <= set(said["policies"][0])
    assert said["warnings"] == []
    assert said["order"] == {}


def test_an_order_is_told_with_its_weight_and_bound(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(SWF)
    given = ("--swf", str(path), "--jobs", "1", "--policy", "users,order-users")
    given += ("--order-weight", "2", "--longest-delay-h", "12")
    assert "a job stands back 2 x its estimate, at most 12 h 00 min\n" in run(*given).stdout
    said = json.loads(run(*given, "--format", "json").stdout)
    assert said["order"] == {"weight": 2, "longest_delay_s": 12 * 3600}


def test_the_scheduler_is_chosen_and_told(tmp_path: Path) -> None:
    path, config = tmp_path / "log.swf", tmp_path / "config"
    path.write_text(SWF)
    config.write_text("SchedulerParameters = bf_interval=600\n")
    given = ("--swf", str(path), "--jobs", "1", "--policy", "users", "--pool", "cluster:8/4")
    slurm = ("--scheduler", "slurm", "--slurm-conf", str(config))
    found = json.loads(run(*given, *slurm, "--format", "json").stdout)
    assert found["scheduler"]["name"] == "slurm"
    assert found["scheduler"]["bf_interval_s"] == 600
    assert "simulated slurm (depth 500, bf_interval_s 600" in run(*given, *slurm).stdout
    assert "simulated fifo" in run(*given, "--scheduler", "fifo").stdout


@pytest.mark.usefixtures("fitted")
def test_a_history_by_command(runs: list[Run], tmp_path: Path) -> None:
    from predictor.site.history.store import History

    url = str(tmp_path / "history.sqlite")
    with History.open(url) as store:
        store.add(runs)
    result = run(
        "--history",
        url,
        "--pool",
        "a100-sxm4-80gb:16/8",
        "--jobs",
        "1",
        "--policy",
        "users,history@0.9,oracle",
        "--format",
        "json",
    )
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["jobs"] == len(runs)
    assert said["pools"] == [{"name": "a100-sxm4-80gb", "gpus": 16, "gpus_per_node": 8}]
    assert said["policies"][1]["predicted_share"] > 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "there is no file"),
        (("--history", "x", "--swf", "x"), "give one of"),
        (("--swf", "x", "--policy", "best"), "policy='best'"),
        (("--swf", "none.swf"), "none.swf"),
        (("--swf", "x", "--pool", "a100"), "pool='a100'"),
    ],
)
def test_wrong_arguments_end_with_one_line(arguments: tuple[str, ...], named: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert re.search(named, result.stderr)
    assert result.stdout == ""
