"""Promises of the whole backtest: where it runs makes no difference, and what it writes."""

from __future__ import annotations

import csv
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner, Result
from sample_cluster.generate import generate

from predictor.cli.main import main
from predictor.errors import TraceError
from predictor.site.backtest.past import workload_of_runs
from predictor.site.backtest.plots import write_plots
from predictor.site.backtest.policies import policies_of
from predictor.site.backtest.run import Backtest, Workers, backtest
from predictor.site.backtest.tables import write_tables
from predictor.site.backtest.workload import LimitBounds, Workload
from predictor.site.ended_job import JobState
from predictor.site.history.run import LimitBy, Run
from predictor.site.replay import Policy, Pool

if TYPE_CHECKING:
    pass

POLICIES = policies_of(["users", "default", "ours@0.9", "oracle"])
HERE = Workers(jobs=1)
POOLS = (Pool(name="a100-sxm4-80gb", gpus=16, gpus_per_node=8),)
START_TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def found(work: Workload) -> Backtest:
    return backtest(work, POLICIES, workers=HERE)


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return list(generate(seed=5, days=2, pools=POOLS))


def figures(found: Backtest) -> list[dict[str, object]]:
    return [each.figures.as_dict() for each in found.replayed]


# --- what it finds ------------------------------------------------------------------------------


def test_every_policy_is_replayed_in_order(found: Backtest) -> None:
    assert [each.figures.policy for each in found.replayed] == [p.name for p in POLICIES]
    assert {each.figures.jobs for each in found.replayed} == {len(found.work)}


def test_used_hours_of_the_schedule_are_those_of_the_figures(found: Backtest) -> None:
    for each in found.replayed:
        out = each.schedule
        held = (out.end_s - out.start_s + out.lost_s) * found.work.gpus
        assert each.figures.limits.used_gpu_hours == pytest.approx(float(held.sum()) / 3600)


def test_fifo_waits_at_least_as_long_as_backfill(work: Workload, found: Backtest) -> None:
    fifo = backtest(work, policies_of(["oracle"]), queue=Policy.FIFO, workers=HERE)
    easy = next(each for each in found.replayed if each.policy.name == "oracle")
    assert fifo.replayed[0].figures.wait_mean_s >= easy.figures.wait_mean_s


def test_without_predictions_a_policy_that_predicts_is_refused(work: Workload) -> None:
    silent = replace(work, predictions=(None,) * len(work))
    with pytest.raises(TraceError, match=r"ours@0\.9"):
        backtest(silent, POLICIES, workers=HERE)


# --- a history ----------------------------------------------------------------------------------


def test_a_history_replayed_under_its_own_limits_waits_as_it_did(runs: list[Run]) -> None:
    """The sample was scheduled by the same simulator, so it comes out as it went in."""
    work = workload_of_runs(runs, pools=POOLS, bounds=LimitBounds())
    out = backtest(work, policies_of(["users"]), workers=HERE).replayed[0].schedule
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


def test_processes_here_change_nothing(work: Workload, found: Backtest) -> None:
    assert figures(backtest(work, POLICIES, workers=Workers(jobs=2))) == figures(found)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture(scope="module")
def dask_scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Dask scheduler and two worker processes on loopback."""
    pytest.importorskip("distributed")
    folder, port = tmp_path_factory.mktemp("dask"), free_port()
    address = f"tcp://127.0.0.1:{port}"
    dask = [sys.executable, "-m", "distributed.cli"]
    scheduler = [
        f"{dask[2]}.dask_scheduler",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--no-dashboard",
    ]
    worker = [
        f"{dask[2]}.dask_worker",
        address,
        "--nthreads",
        "1",
        "--no-dashboard",
        "--local-directory",
        str(folder),
    ]
    processes = []
    with (folder / "log").open("wb") as log:
        for arguments in (scheduler, worker, worker):
            processes.append(
                subprocess.Popen([*dask[:2], *arguments], stdout=log, stderr=log, cwd=folder)
            )
        try:
            wait_for_workers(address, 2, folder / "log")
            yield address
        finally:
            for process in reversed(processes):
                process.terminate()
            for process in processes:
                process.wait(timeout=30)


def wait_for_workers(address: str, count: int, log: Path) -> None:
    from distributed import Client

    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            with Client(address, timeout=5) as client:
                client.wait_for_workers(count, timeout=START_TIMEOUT_S)
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(log.read_text(errors="replace"))


def test_a_dask_cluster_gives_the_same_figures(
    work: Workload, found: Backtest, dask_scheduler: str
) -> None:
    workers = Workers(backend="dask", scheduler=dask_scheduler)
    assert figures(backtest(work, POLICIES, workers=workers)) == figures(found)


def test_a_scheduler_that_does_not_answer_is_named(
    work: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("predictor.site.backtest.run.CONNECT_S", 0.5)
    address = f"tcp://127.0.0.1:{free_port()}"
    with pytest.raises(TraceError, match=address):
        backtest(work, POLICIES, workers=Workers(backend="dask", scheduler=address))


@pytest.mark.parametrize("workers", [{"backend": "dask"}, {"scheduler": "tcp://127.0.0.1:1"}])
def test_a_backend_and_a_scheduler_belong_together(workers: dict[str, str]) -> None:
    with pytest.raises(TraceError, match="needs the address"):
        Workers(**workers)  # type: ignore[arg-type]


# --- what it writes -----------------------------------------------------------------------------


def test_every_plot_has_its_table(found: Backtest, tmp_path: Path) -> None:
    tables, plots = write_tables(found, tmp_path), write_plots(found, tmp_path)
    assert {p.stem for p in plots} == {"waits", "tradeoff", "queue"}
    assert {p.stem for p in tables} == {"waits", "tradeoff", "queue", "figures"}
    for plot in plots:
        assert ElementTree.parse(plot).getroot().tag.endswith("svg")
    for table in tables:
        head, *rows = csv.reader(table.read_text().splitlines())
        assert rows
        assert {len(row) for row in rows} == {len(head)}


# --- the command --------------------------------------------------------------------------------

SWF = "; MaxProcs: 8\n" + "\n".join(
    f"{i} {60 * i} 0 600 4 -1 -1 4 3600 -1 1 1 1 1 0 1 -1 -1" for i in range(20)
)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["backtest", *arguments])


def test_an_swf_file_by_command(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(SWF)
    result = run("--swf", str(path), "--jobs", "1", "--output", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    assert "20 jobs" in result.stdout
    assert "order@0.5" in result.stdout
    assert (tmp_path / "out" / "waits.svg").is_file()
    as_json = run("--swf", str(path), "--jobs", "1", "--format", "json", "--policy", "users,oracle")
    said = json.loads(as_json.stdout)
    assert [row["policy"] for row in said["policies"]] == ["users", "oracle"]
    assert said["policies"][0]["unused_gpu_hours"] == pytest.approx(20 * 4 * 3000 / 3600)
    assert {"wait_p95_s", "wait_max_s", "extra_kills"} <= set(said["policies"][0])
    assert said["warnings"] == []


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
        "users,fill@0.9,oracle",
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
        ((), "give one of"),
        (("--history", "x", "--swf", "x"), "give one of"),
        (("--swf", "x", "--policy", "best"), "policy='best'"),
        (("--swf", "none.swf"), "none.swf"),
        (("--swf", "x", "--pool", "a100"), "pool='a100'"),
        (("--swf", "x", "--backend", "dask"), "needs the address"),
    ],
)
def test_wrong_arguments_end_with_one_line(arguments: tuple[str, ...], named: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert re.search(named, result.stderr)
    assert result.stdout == ""
