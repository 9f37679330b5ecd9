"""What is published: wheel, source archive, one version, the workflow and the Ansible role."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from predictor.cli.main import main

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
ROLE = ROOT / "ansible/roles/precision_time"
ROOMS = ("precision_time", "predictor", "profiles", "slurm_plugin", "k8s_extender")
SOURCES = ("LICENSE", "README.md", "pyproject.toml", *ROOMS)
MOST_BYTES = 15 * 10**6
# An extra of which pip would have to bring more than these is no small one.
LARGE = {"torch", "timm", "torchvision", "lightning", "transformers"}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def test_the_version_stands_in_one_place() -> None:
    chart = read(ROOT / "charts/precision-time/Chart.yaml")
    assert chart["version"] == chart["appVersion"] == PROJECT["version"]
    stated = re.escape(f'"{PROJECT["version"]}"')
    code = (p for room in ROOMS for p in (ROOT / room).rglob("*.py"))
    named = [p for p in code if re.search(rf"version\w* = {stated}", p.read_text("utf-8"))]
    assert named == []


def test_only_extras_about_torch_bring_torch() -> None:
    extras = {n: e for n, e in PROJECT["optional-dependencies"].items() if n != "dev"}
    large = {n for n, e in extras.items() if any(re.split(r"\W", r)[0] in LARGE for r in e)}
    assert large == {"trace", "graphs", "profile"}
    assert all(len(e) <= 8 for e in extras.values())


def test_the_release_tests_before_it_builds_and_builds_before_it_publishes() -> None:
    workflow = read(ROOT / ".github/workflows/release.yml")
    jobs = workflow["jobs"]
    assert jobs["build"]["needs"] == "test"
    assert {jobs[name]["needs"] for name in ("pypi", "registry")} == {"build"}
    assert jobs["pypi"]["permissions"] == {"id-token": "write"}  # trusted publishing, no secret
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    called = [step["run"] for step in jobs["test"]["steps"] if "run" in step]
    assert called
    assert {command.removeprefix("make ") for command in called} <= targets
    assert "secrets.PYPI" not in (ROOT / ".github/workflows/release.yml").read_text("utf-8")


def test_the_role_calls_commands_that_exist() -> None:
    tasks = read(ROLE / "tasks/main.yml")
    defaults = read(ROLE / "defaults/main.yml")
    used = set(re.findall(r"precision_time_\w+", (ROLE / "tasks/main.yml").read_text("utf-8")))
    registered = {task["register"] for task in tasks if "register" in task}
    assert used == set(defaults) | registered
    context = click.Context(main)
    slurm = main.get_command(context, "slurm")
    assert isinstance(slurm, click.Group)
    for word in ("install", "check"):
        command = slurm.get_command(context, word)
        assert command is not None
        assert f"slurm{', ' if word == 'check' else chr(39) + ', ' + chr(39)}{word}" in (
            ROLE / "tasks/main.yml"
        ).read_text("utf-8")
    install = slurm.get_command(context, "install")
    assert install is not None
    assert "--dry-run" in {name for param in install.params for name in param.opts}
    source = (ROOT / "slurm_plugin/install/install.py").read_text("utf-8")
    assert "nothing to change" in source  # what tells the role that nothing was


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment in which nothing is installed but pip."""
    place = tmp_path_factory.mktemp("empty")
    subprocess.run((sys.executable, "-m", "venv", str(place / "venv")), check=True)
    return place


def installed(place: Path, *requirements: str) -> None:
    """Install with what pip is told where to look; skips where it finds no index."""
    words = (str(place / "venv/bin/python"), "-m", "pip", "install", "--quiet", *requirements)
    done = subprocess.run(words, capture_output=True, text=True, env=environment(place))
    if "No matching distribution" in done.stderr or "ConnectionError" in done.stderr:
        pytest.skip(f"pip finds no index here: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


def environment(place: Path) -> dict[str, str]:
    """Nothing of this test run, and a home of its own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PRECISION_TIME"))}
    path = f"{place / 'venv/bin'}:{os.environ['PATH']}"
    return kept | {"PRECISION_TIME_HOME": str(place / "home"), "PATH": path}


@pytest.fixture(scope="module")
def wheel(empty: Path) -> Path:
    """The wheel, built from the source archive, outside the repository."""
    source = empty / "source"
    source.mkdir()
    for name in SOURCES:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, source)
    installed(empty, "build")
    words = (str(empty / "venv/bin/python"), "-m", "build", "--outdir", empty / "dist", source)
    done = subprocess.run(words, capture_output=True, text=True, env=environment(empty))
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list((empty / "dist").glob("*.tar.gz"))) == 1
    (found,) = (empty / "dist").glob("*.whl")
    return found


def said(place: Path, command: str) -> str:
    """What a command of the README prints in the empty environment, in a folder of its own."""
    work = place / "work"
    if not work.exists():
        (work / "profiles").mkdir(parents=True)
        (work / "profiles/samples").symlink_to(ROOT / "profiles/samples")  # as in a checkout
    done = subprocess.run(
        shlex.split(command), capture_output=True, text=True, cwd=work, env=environment(place)
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def readme(language: str) -> list[str]:
    """The blocks of the README in a language."""
    text = (ROOT / "README.md").read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_wheel_is_small_and_does_what_the_readme_says(empty: Path, wheel: Path) -> None:
    assert wheel.stat().st_size < MOST_BYTES
    installed(empty, str(wheel))
    assert said(empty, "precision-time --version").split()[-1] == PROJECT["version"]
    consoles = readme("console")
    assert len(consoles) >= 2
    for block in consoles:
        command, expected = block.split("\n")[:2]
        assert said(empty, command.removeprefix("$ ")).startswith(expected)
    (program,) = readme("python")
    assert "step" in said(empty, f"python -c {shlex.quote(program)}")
    script = empty / "work/job.sh"
    script.write_text(
        "#!/bin/bash\n#SBATCH --gres=gpu:a100:4\ntorchrun train.py --model resnet50\n"
    )
    assert said(empty, "precision-time estimate job.sh --user ada --gpus 4")


@pytest.mark.slow
def test_the_wheel_with_its_extra_learns_from_a_log_and_reports(empty: Path, wheel: Path) -> None:
    """The commands under "On your cluster", on a log in the place of sacct."""
    installed(empty, f"{wheel}[report]")
    log = ROOT / "profiles/samples/graham.csv.gz"
    cluster = next(block for block in readme("sh") if "history ingest" in block)
    commands = [line.partition("#")[0].strip() for line in cluster.splitlines()]
    for command in commands:
        if "ingest" in command:
            command = f"precision-time history ingest csv {log}"
        elif "report" in command:
            command = command.replace("--since 30d", "--since 2000-01-01")
        said(empty, command)
    assert (empty / "work/report.html").stat().st_size > 10**4
