"""`precision-time estimate` and what `calibrate` learns for it from a history without networks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from site_runs import run_of

from predictor.cli.main import main
from predictor.site.history.run import Run
from predictor.site.history.settings import HistorySettings
from predictor.site.history.store import History

SILENT = {"asked": "", "submit_line": "", "gpu_type": None}


def command(*words: str) -> Result:
    return CliRunner().invoke(main, list(words), catch_exceptions=False)


def history(path: Path, runs: list[Run], settings: HistorySettings | None = None) -> str:
    url = str(path / "history.sqlite")
    with History.open(url, settings=settings or HistorySettings()) as store:
        store.add(runs)
    return url


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "job.sh"
    path.write_text("#!/bin/bash\npython train.py --epochs 30\n")
    return path


def test_any_job_is_estimated_before_anything_was_learned(home: Path, script: Path) -> None:
    found = command("estimate", str(script), "--user", "ada", "--limit", "10:00:00")
    assert found.exit_code == 0
    assert found.stdout.startswith(
        "expected  not known yet: anything up to the limit of 10 h 00 min"
    )
    assert "nothing is known of this site" in found.stdout


def test_without_a_history_and_a_limit_it_says_what_would_help(home: Path, script: Path) -> None:
    found = command("estimate", str(script), "--user", "ada")
    assert "not known yet" in found.stdout
    assert "precision-time history ingest" in found.stdout


def test_what_calibrate_learned_is_what_estimate_says(
    home: Path, tmp_path: Path, script: Path
) -> None:
    runs = [run_of(n, elapsed_s=7200.0, user="ada", name="nightly", **SILENT) for n in range(40)]
    learned = command("calibrate", "--history", history(tmp_path, runs), "--format", "json")
    assert learned.exit_code == 0
    told = json.loads(learned.stdout)
    assert told["run_times"]["runs"] == 40
    assert (told["measurements"], told["version"]) == (0, None)
    found = command(
        "estimate", "--user", "ada", "--gpus", "4", "--format", "json", "--", "python", "x"
    )
    said = json.loads(found.stdout)
    assert said["quantiles_s"]["0.5"] == pytest.approx(7200.0)
    assert "40 runs of the same user" in said["evidence"][0]


def test_calibrate_says_what_fills_an_empty_history(home: Path, tmp_path: Path) -> None:
    said = command("calibrate", "--history", history(tmp_path, [])).stdout
    assert "history ingest" in said
    assert " - " not in said


@pytest.mark.parametrize(("seen", "told"), [(1, "one run"), (2, "2 runs")])
def test_few_runs_are_not_told_to_differ(home: Path, tmp_path: Path, seen: int, told: str) -> None:
    alike = {"elapsed_s": 7200.0, "user": "ada", "name": "nightly", **SILENT}
    runs = [run_of(number, **alike) for number in range(1, 1 + seen)]
    assert command("calibrate", "--history", history(tmp_path, runs)).exit_code == 0
    said = command("estimate", "--user", "ada", "--", "python", "x").stdout
    assert f"why so wide: only {told} of the same user" in said
    assert "differ" not in said


def test_calibrate_learns_from_jobs_without_user_or_name(home: Path, tmp_path: Path) -> None:
    nobody = {"user": "", "account": "", "name": "", "partition": "", "limit_s": None}
    runs = [run_of(n, **SILENT | nobody) for n in range(30)]
    found = command("calibrate", "--history", history(tmp_path, runs))
    assert found.exit_code == 0
    assert "none tells a step time" in found.stdout
    assert "30 runs of 0 users" in found.stdout


def test_calibrate_has_nothing_to_learn_from_an_empty_history(home: Path, tmp_path: Path) -> None:
    assert command("calibrate", "--history", history(tmp_path, [])).exit_code == 0


def test_similar_runs_are_found_by_hashes(home: Path, tmp_path: Path) -> None:
    key = tmp_path / "site.key"
    key.write_text("0123456789abcdef0123")
    key.chmod(0o600)
    (home / "history.yaml").parent.mkdir(parents=True, exist_ok=True)
    (home / "history.yaml").write_text(f"anonymise: users-and-names\nsite_key: {key}\n")
    settings = HistorySettings(anonymise="users-and-names", site_key=key)
    runs = [run_of(n, elapsed_s=7200.0, user="ada", name="nightly", **SILENT) for n in range(40)]
    url = history(tmp_path, runs, settings)
    assert command("calibrate", "--history", url).exit_code == 0
    said = json.loads(
        command("estimate", "--user", "ada", "--format", "json", "--", "python", "x").stdout
    )
    assert "40 runs of the same user" in said["evidence"][0]


@pytest.mark.parametrize("limit", ["soon", "1:2:3:4", ""])
def test_a_limit_that_is_none_is_named(limit: str) -> None:
    found = command("estimate", "--limit", limit, "--", "python", "x")
    assert found.exit_code == 2
    assert "expected [DAYS-]HOURS:MINUTES" in found.stderr


def test_the_script_s_own_directives_count_where_no_option_says_otherwise(
    home: Path, tmp_path: Path
) -> None:
    asked = {"gpus": 8, "limit_s": 86_400.0, "partition": "big", "user": "ada"}
    runs = [run_of(n, elapsed_s=7200.0, **asked, **SILENT) for n in range(40)]
    others = [run_of(100 + n, elapsed_s=60.0, **asked | {"gpus": 1}, **SILENT) for n in range(40)]
    assert command("calibrate", "--history", history(tmp_path, runs + others)).exit_code == 0
    script = tmp_path / "job.sh"
    script.write_text(
        "#!/bin/bash\n#SBATCH -N 2 --gres=gpu:4  # nodes\n#SBATCH --time=1-00:00:00\n"
        "#SBATCH --partition=big --odd\n#SBATCH 'unfinished\n./train\n#SBATCH --partition=late\n"
    )
    for options, found_median in (((), "median 2 h 00 min"), (("--gpus", "1"), "median 1 min")):
        found = command("estimate", str(script), "--user", "ada", "--format", "json", *options)
        told = json.loads(found.stdout)
        assert found_median in told["evidence"][0]
        assert told["limit_s"] == 86_400.0


def test_it_needs_no_extra_where_no_history_is_kept_here(home: Path) -> None:
    """A plain `pip install precision-time` has neither SQLAlchemy nor pydantic."""
    program = (
        "import sys\n"
        "sys.modules |= dict.fromkeys(('sqlalchemy', 'pydantic', 'polars', 'alembic'))\n"
        "from predictor.cli.main import main\n"
        "main(['estimate', '--limit', '1:00:00', '--', 'python', 'x.py'])\n"
    )
    words = [sys.executable, "-c", program]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "expected" in ran.stdout


def test_a_number_of_gpus_that_nobody_stated_is_told(home: Path, tmp_path: Path) -> None:
    silent = command("estimate", "--", "python", "x.py")
    assert "1 GPU is taken" in silent.stdout
    told = json.loads(command("estimate", "--format", "json", "--", "python", "x.py").stdout)
    assert any("1 GPU is taken" in line for line in told["assumptions"])
    assert "1 GPU is taken" not in command("estimate", "--gpus", "1", "--", "python", "x.py").stdout
    launched = ("torchrun", "--nproc_per_node=4", "x.py")
    assert "1 GPU is taken" not in command("estimate", "--", *launched).stdout


def test_processes_that_the_gpus_asked_for_do_not_fit_are_told(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "eight.sh"
    path.write_text("#!/bin/bash\ntorchrun --nproc_per_node 8 train.py\n")
    said = "its launchers start 8 processes, not one for each of its GPUs"
    assert said in command("estimate", "--gpus", "4", str(path)).stdout
    assert said not in command("estimate", str(path)).stdout


def test_of_several_gpus_one_process_is_timed_on_one_and_it_is_told(home: Path) -> None:
    """As `identify` says, and as Slurm and Kubernetes price it."""
    train = [
        "train.py",
        "--model",
        "resnet50",
        "--batch-size",
        "64",
        "--epochs",
        "3",
        "--data",
        "imagenet",
        "--amp",
    ]
    words = ("estimate", "--gpu", "a100-sxm4-80gb", "--limit", "1-0", "--gpus")
    alone = command(*words, "2", "--", "python", *train).stdout
    assert "on 1 a100-sxm4-80gb" in alone
    assert "assumed   one process, which nothing starts for each GPU" in alone
    assert "assumed   start-up, validation and checkpoints take no time" in alone
    assert "one process" not in command(*words, "1", "--", "python", *train).stdout
    launched = command(*words, "2", "--", "torchrun", "--nproc_per_node=2", *train).stdout
    assert "on 2 a100-sxm4-80gb" in launched


def test_of_a_range_of_nodes_the_least_counts(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n#SBATCH -N 2-4 --gres=gpu:4 --time=30\npython x.py\n")
    runs = [
        run_of(n, elapsed_s=900.0, gpus=8, limit_s=1800.0, partition="", user="ada", **SILENT)
        for n in range(9)
    ]
    assert command("calibrate", "--history", history(tmp_path, runs)).exit_code == 0
    said = command("estimate", str(script), "--user", "ada").stdout
    assert "9 runs of the same user and request" in said


def test_the_commonest_command_gets_a_time_from_the_default_of_its_trainer(
    home: Path, tmp_path: Path
) -> None:
    script = tmp_path / "job.sh"
    script.write_text(
        "#!/bin/bash\n#SBATCH --gres=gpu:a100:1\npython run_glue.py --task_name mnli "
        "--model_name_or_path bert-large-uncased --num_train_epochs 3 --max_seq_length 128 "
        "--per_device_train_batch_size 32\n"
    )
    lines = command("estimate", str(script)).stdout.splitlines()
    assert lines[0].startswith("expected")
    assert lines[0].index("50 %") < lines[0].index("95 %")
    assert "not stated: precision" in lines[2]
    assert lines[3] == "narrower by: state precision"
    told = [line for line in lines if line.startswith("assumed") and "precision: fp32" in line]
    assert "Trainer of Transformers" in told[0]


@pytest.mark.parametrize(
    ("constraint", "gpu"), [("a100&ib", "a100-sxm4-80gb"), ("h100", "h100-sxm5-80gb")]
)
def test_a_gpu_that_the_constraint_names_is_asked_for(
    home: Path, tmp_path: Path, constraint: str, gpu: str
) -> None:
    script = tmp_path / "job.sh"
    script.write_text(
        f"#!/bin/bash\n#SBATCH --gres=gpu:1\n#SBATCH --constraint={constraint}\n"
        "python train.py --model resnet50 --batch-size 64 --epochs 1 --dataset imagenet --amp\n"
    )
    assert f"on 1 {gpu}" in command("estimate", str(script)).stdout


@pytest.mark.parametrize(("limit", "told"), [("0:10:00", True), ("24:00:00", False)])
def test_a_limit_below_what_the_job_needs_is_told(home: Path, limit: str, told: bool) -> None:
    job = "model=bert-large precision=bf16 batch=32 seq_len=512 steps=20000"
    words = ("--gpu", "a100-sxm4-80gb", "--comment", job, "--limit", limit, "--", "python", "a.py")
    shown = command("estimate", *words).stdout
    assert ("10 min 00 s: more likely than not it ends the job" in shown) is told
    assert ("mean      10 min 00 s" in shown) is told, "no mean beyond the limit"


def test_what_it_says_would_narrow_the_answer_does(home: Path, tmp_path: Path) -> None:
    """A statement that lacks, then a run of the script."""
    words = "python train.py --model resnet50 --epochs 9 --batch-size 64 --data-path /d/imagenet"
    options = ("--gpu", "a100-sxm4-80gb", "--user", "ada", "--gpus", "1", "--format", "json")

    def spread(*more: str) -> float:
        found = command("estimate", *options, "--", *words.split(), *more)
        quantiles = json.loads(found.stdout)["quantiles_s"]
        return float(quantiles["0.975"] / quantiles["0.025"])

    said = command("estimate", *options[:-2], "--", *words.split()).stdout
    assert "narrower by: state precision" in said
    unstated, stated = spread(), spread("--amp")
    assert stated < unstated


def test_a_gpu_type_that_nobody_stated_is_told_and_widens(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    train = "python train.py --model vit_base_patch16_224 -b 64 --amp --epochs 300"
    path.write_text(f"#!/bin/bash\n#SBATCH --gpus=1\n{train} --data-dir /datasets/imagenet\n")
    any_gpu = json.loads(command("estimate", str(path), "--format", "json").stdout)
    card, name = (
        json.loads(command("estimate", str(path), "--gpu", gpu, "--format", "json").stdout)
        for gpu in ("a100-sxm4-80gb", "a100")
    )
    (told,) = [line for line in any_gpu["assumptions"] if line.startswith("gpu: ")]
    assert told.startswith("gpu: a100-sxm4-80gb is assumed (no GPU type is stated")
    assert not [line for line in card["assumptions"] if line.startswith("gpu: ")]
    wide, narrow = any_gpu["quantiles_s"], card["quantiles_s"]
    assert wide["0.05"] < narrow["0.05"]
    assert wide["0.95"] > narrow["0.95"]
    # a name of several cards is no less open here than where a job is predicted
    path.write_text(path.read_text().replace("--gpus=1", "--gres=gpu:a100:1"))
    assert json.loads(command("estimate", str(path), "--format", "json").stdout) == name
    (told,) = [line for line in name["assumptions"] if line.startswith("gpu: ")]
    assert "it could be a100-sxm4-40gb or" in told
    assert name["expected_s"] > card["expected_s"]


def test_a_gpu_type_without_data_sheet_is_told(home: Path, script: Path) -> None:
    assert (
        "h1000 stays what it is called here"
        in command("estimate", str(script), "--gpu", "h1000").stdout
    )
    assert "stays what" not in command("estimate", str(script), "--gpu", "H100").stdout


def test_what_keeps_physics_silent_is_what_would_narrow(home: Path) -> None:
    words = "tune run full_finetune_distributed --config qwen3/8B_full batch_size=2 epochs=1"
    found = command("estimate", "--gpus", "8", "--", *words.split())
    assert "narrower by: how many micro-steps are in a step is not stated" in found.stdout


def test_a_job_without_gpus_has_no_time_of_a_network(home: Path) -> None:
    words = ["train.py", "--model", "resnet50", "--batch-size", "32", "--max-steps", "9", "--fp16"]
    assert "physics" in command("estimate", "--gpus", "1", "--", "torchrun", *words).stdout
    assert "physics" not in command("estimate", "--gpus", "0", "--", "torchrun", *words).stdout


def test_what_physics_refuses_and_the_nodes_it_takes_are_told(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    head = "#!/bin/bash\n#SBATCH --nodes=2-4 --gres=gpu:a100:4\n"
    job = "srun python train.py --model resnet50 --global-batch-size 250 --epochs 3 --amp\n"
    script.write_text(head + job)
    said = command("estimate", str(script)).stdout
    assert "of --nodes 2-4, 2 are taken" in said
    assert "narrower by: a job that physics can price: invalid global_batch_size=250; must" in said
