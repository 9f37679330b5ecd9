"""`precision-time slurm`: how its commands are found, and those that ask or run the daemon."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from daemon_process import DaemonProcess, running

from predictor.cli.main import main
from predictor.estimate.fitting import Fitted
from predictor.graphs.catalog import find_entry
from slurm_plugin.cli.decide import request_of
from slurm_plugin.daemon.decider_child import WARM_UP
from slurm_plugin.protocol import (
    HookAnswer,
    HookRequest,
    PartitionRequest,
    encode_request,
    parse_request,
)

COMMENT = "model=resnet50 precision=amp epochs=90 batch=256 dataset_size=1281167"
JOB = ("--gres", "gpu:a100:8", "--comment", COMMENT)
SCRIPT = """#!/bin/bash
#SBATCH --gres=gpu:a100:8  # eight of them
#SBATCH --comment "model=resnet50 precision=amp epochs=90 batch=256 dataset_size=1281167" --mem=64G
#SBATCH -t 1-00:00:00
srun python train.py
#SBATCH --partition=never-read
"""
# A program that finds no module of one name, as where an extra is not installed.
WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
from predictor.cli.main import main
main(sys.argv[2:])
"""
Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    def invoke(*words: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, words)
        assert result.exit_code == code, result.output
        return result

    return invoke


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A policy of a machine without Slurm."""
    path = tmp_path / "policy.yaml"
    path.write_text(
        f"daemon: {{socket: {tmp_path / 'run' / 'daemon.sock'}, metrics: null}}\n"
        f"slurm: {{bin_dir: {tmp_path}}}\n"
    )
    return path


@pytest.fixture(scope="module")
def real(fitted: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """The daemon of the command line, with the predictor of this test run."""
    tmp_path = tmp_path_factory.mktemp("real")
    slurm = {"bin_dir": str(tmp_path)}
    daemon = DaemonProcess(tmp_path / "run", slurm=slurm, daemon={"prediction_ms": 4000.0})
    program = Path(sys.executable).with_name("precision-time")
    daemon.command = (str(program), "slurm", "daemon", "--config", str(daemon.policy))
    try:
        yield daemon.start()
    finally:
        daemon.close()


def test_help_names_the_plug_in_without_importing_what_it_needs() -> None:
    program = (
        "import sys; from predictor.cli.main import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "print({'pydantic', 'numpy', 'prometheus_client', 'slurm_plugin.config'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "\n  slurm " in done.stdout
    assert done.stdout.splitlines()[-1] == "set()", done.stderr


@pytest.mark.parametrize("group", ["slurm", "k8s"])
def test_help_of_a_plug_in_needs_no_numerical_library(group: str) -> None:
    program = (
        "import sys; from predictor.cli.main import main\n"
        f"main(['{group}', '--help'], standalone_mode=False)\n"
        "print({'numpy', 'kubernetes', 'predictor.estimate.core'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "set()", done.stderr


def test_a_command_of_the_predictor_does_not_import_the_plug_in() -> None:
    program = (
        "import sys; from predictor.cli.main import main\n"
        "main(['gpus'], standalone_mode=False)\n"
        "print('slurm_plugin' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False", done.stderr


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("pydantic", ("slurm", "daemon")),
        ("prometheus_client", ("slurm", "daemon")),
        ("pydantic", ("slurm", "decide", *JOB)),
    ],
)
def test_a_missing_extra_is_named_in_one_line(missing: str, words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, missing, *words], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "pip install 'precision-time[slurm]'" in done.stderr


def test_an_error_of_our_own_code_is_not_taken_for_a_missing_extra() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, "slurm_plugin.daemon.service", "slurm", "daemon"],
        capture_output=True,
        text=True,
    )
    assert "pip install" not in done.stderr
    assert "Traceback" in done.stderr


def test_the_commands_of_the_group_are_listed(run: Run) -> None:
    text = run("slurm", "--help").stdout.partition("Commands:")[2]
    names = [
        line.split()[0] for line in text.splitlines() if line.startswith("  ") and line[2] != " "
    ]
    assert {"daemon", "decide", "eta"} <= set(names)


def test_an_unknown_command_is_refused(run: Run) -> None:
    assert "No such command" in run("slurm", "no-such-thing", code=2).stderr


def test_a_policy_is_checked_without_starting(run: Run, policy: Path) -> None:
    assert "can be used" in run("slurm", "daemon", "--config", str(policy), "--check-config").stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [("limits: {quantile: 7}", "limits.quantile=7"), ("rules: /no/such/rules.yaml", "rules.yaml")],
)
def test_a_wrong_policy_is_one_line_naming_what_is_wrong(
    run: Run, policy: Path, text: str, said: str
) -> None:
    policy.write_text(text)
    result = run("slurm", "daemon", "--config", str(policy), "--check-config", code=2)
    assert len(result.stderr.splitlines()) == 1
    assert said in result.stderr


def test_the_real_daemon_decides_a_job(real: DaemonProcess, run: Run) -> None:
    words = ("slurm", "decide", "--config", str(real.policy), *JOB, "--format", "json")
    answer = json.loads(run(*words).stdout)
    assert answer["time_limit"] >= 1
    assert "resnet50" in answer["message"]
    assert "model=resnet50" in answer["log"]
    event = real.wait_for_event(lambda e: e.get("model") == "resnet50")
    assert event["limit"] == str(answer["time_limit"])


def test_a_new_predictor_in_use_is_taken_at_a_reload(
    real: DaemonProcess, fitted: Fitted, run: Run
) -> None:
    from predictor.estimate import artifacts, store

    before = artifacts.current()
    assert before is not None
    stored = store.store(fitted.predictor, {"rows": 1.0})
    artifacts.use(stored.version)
    try:
        real.notified.seen.clear()
        real.process.send_signal(signal.SIGHUP)
        real.notified.wait_for("READY=1", real.process)
        real.wait_for_event(lambda e: e["event"] == f"reloaded, predictor {stored.version}")
    finally:
        artifacts.use(before)


def test_the_real_daemon_stops(real: DaemonProcess) -> None:
    assert real.end() == 0


def test_local_decisions_need_no_daemon(run: Run, fitted: Fitted, policy: Path) -> None:
    result = run("slurm", "decide", "--config", str(policy), "--local", *JOB)
    assert "resnet50" in result.stdout
    assert "time_limit" in result.stdout
    assert "without a view of Slurm" in result.stderr


def test_without_a_daemon_the_way_to_go_on_is_named(run: Run, policy: Path) -> None:
    result = run("slurm", "decide", "--config", str(policy), *JOB, code=2)
    assert "--local" in result.stderr


def test_a_script_is_read_as_sbatch_reads_it(tmp_path: Path, run: Run) -> None:
    script = tmp_path / "train.sh"
    script.write_text(SCRIPT)
    seen: list[HookRequest] = []
    with pytest.MonkeyPatch.context() as patch, running(tmp_path / "run") as daemon:
        from slurm_plugin.cli import decide as client

        real = client.ask

        def ask(path: Path, request: HookRequest) -> HookAnswer:
            seen.append(request)
            return real(path, request)

        patch.setattr(client, "ask", ask)
        config = ("--config", str(daemon.policy))
        run("slurm", "decide", *config, "--script", str(script), "-t", "30")
        run("slurm", "decide", *config, "--script", str(script))
    own, in_script = seen
    assert in_script.tres_per_node == "gres/gpu:a100:8"
    assert in_script.comment == COMMENT
    assert in_script.time_limit == 24 * 60
    assert in_script.partition is None
    assert in_script.script == SCRIPT
    assert own.time_limit == 30


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"gpus": "a100:2"}, "tres_per_job", "gres/gpu:a100:2"),
        ({"gpus_per_node": "2"}, "tres_per_node", "gres/gpu:2"),
        ({"gpus_per_task": "1"}, "tres_per_task", "gres/gpu:1"),
        ({"tres_per_node": "gpu:v100:2,shard:1"}, "tres_per_node", "gres/gpu:v100:2,gres/shard:1"),
        ({"nodes": "2-4"}, "min_nodes", 2),
        ({"nodes": "2-4"}, "max_nodes", 4),
        ({"nodes": "3"}, "max_nodes", 3),
        ({"ntasks_per_node": "4", "ntasks": "8"}, "ntasks_per_node", 4),
        ({"time": "UNLIMITED"}, "time_limit", float("inf")),
        ({"time": "90"}, "time_limit", 90),
        ({}, "time_limit", None),
    ],
)
def test_options_become_the_fields_of_slurm(
    options: dict[str, str], field: str, value: object
) -> None:
    assert getattr(request_of(options, "root", None, (), {}), field) == value


def test_only_our_variables_of_the_environment_are_sent() -> None:
    environment = {"PRECISION_TIME_MODEL": "bert", "PRECISION_TIME_HOME": "/x", "SECRET": "1"}
    request = request_of({}, "root", None, (), environment)
    assert dict(request.environment) == {"PRECISION_TIME_MODEL": "bert"}


def test_a_request_is_read_as_it_was_written() -> None:
    request = HookRequest(
        uid=7,
        user="ada",
        comment="a=b&c\n%41 ü",
        time_limit=float("inf"),
        min_nodes=2,
        argv=("train.sh", "--x=1 2"),
        environment={"PRECISION_TIME": "model=x"},
        partitions=(PartitionRequest("a", None, None), PartitionRequest("b:c", 5, 60)),
        usable_partitions=("a", "b:c"),
        admin_comment="x",
        within=30,
    )
    assert parse_request(encode_request(request)) == request


def test_the_jobs_of_the_warm_up_are_in_the_catalog_but_for_one() -> None:
    assert [find_entry(model) is None for model, _, _ in WARM_UP] == [False, False, False, True]


def test_what_takes_longer_than_a_script_may_is_made_before_the_first_job() -> None:
    """A reading of milliseconds never could, and would be given up each time."""
    program = """
import sys
from predictor.graphs import names
from slurm_plugin.daemon.decider_child import load_policy
load_policy(None, False)
print(names._by_pairs.cache_info().currsize, "predictor.graphs.families.voices" in sys.modules)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "True"]


def test_without_slurm_the_command_that_failed_is_named(run: Run, policy: Path) -> None:
    assert "scontrol" in run("slurm", "eta", "--config", str(policy), code=2).stderr
