"""The image: what it is made of is there, and nothing else gets in."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

import pytest
from chart_files import ROOT
from chart_render import needs_helm, render

DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
IGNORED = (ROOT / ".dockerignore").read_text("utf-8").splitlines()


def copied() -> set[str]:
    """What comes from the repository: sources of COPY without --from."""
    lines = re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
    return {source for line in lines for source in line.split()[:-1]}


def test_everything_copied_exists() -> None:
    assert copied()
    for name in copied():
        assert (ROOT / name).exists(), name


def test_only_what_is_copied_is_sent_to_the_build() -> None:
    rules = [line for line in IGNORED if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert {line.removeprefix("!") for line in rules if line.startswith("!")} == copied()
    assert any(fnmatch("a/__pycache__", rule) for rule in rules[1:])


def test_the_packages_of_the_extender_are_copied() -> None:
    assert {"predictor", "profiles", "precision_time", "k8s_extender"} <= copied()


def test_nothing_to_build_or_install_with_is_added_to_the_base() -> None:
    final = DOCKERFILE.rpartition("\nFROM ")[2]
    assert "RUN" not in final
    assert re.findall(r"^COPY (?!--from=build )", final, re.MULTILINE) == []
    assert "venv --without-pip /opt/precision-time" in DOCKERFILE
    assert "pip --python /opt/precision-time/bin/python install" in DOCKERFILE
    assert "PIP_CONSTRAINT=/src/constraints.txt" in DOCKERFILE


def test_it_runs_as_an_ordinary_user() -> None:
    final = DOCKERFILE.rpartition("\nFROM ")[2]
    (user,) = re.findall(r"^USER (\d+):\d+$", final, re.MULTILINE)
    assert int(user) > 0


@pytest.mark.slow
def test_its_steps_make_a_command_that_reads_a_configuration(tmp_path: Path) -> None:
    """Replayed on this machine; what others publish comes from the environment of the tests."""
    src, made = tmp_path / "src", tmp_path / "opt"
    src.mkdir()
    beside = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    beside |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    beside["PYTHONPATH"] = sysconfig.get_path("purelib")
    run = partial(subprocess.run, env=beside, check=True, capture_output=True, text=True)
    steps, _, start = DOCKERFILE.partition("\nENTRYPOINT ")
    for word, _, rest in (line.partition(" ") for line in steps.splitlines()):
        if word == "COPY" and not rest.startswith("--from"):
            *sources, target = rest.split()
            run(["cp", "-r", *(ROOT / source for source in sources), src / target])
        elif word == "RUN":
            told = rest.replace("/opt/precision-time", str(made)).replace("${EXTRAS}", "kubernetes")
            told = told.replace(" install ", " install --no-deps --no-build-isolation ")
            run(["bash", "-euc", told], cwd=src)
    entry, command = map(json.loads, start.split("\nCMD "))
    config = tmp_path / "config.yaml"
    config.write_text("mode: observe")
    called = [made / "bin" / entry[0], command[0], "check", command[2], config]
    assert run(called, cwd=tmp_path).stdout == "ok      the configuration can be used\n"
    where = "import k8s_extender.server.service as it; print(it.__file__)"
    assert run([made / "bin/python", "-c", where], cwd=tmp_path).stdout.startswith(str(made))


@needs_helm
def test_chart_and_image_agree_on_user_home_and_ports() -> None:
    pod = render({"predictor": {"existingClaim": "own"}}).pod()["spec"]
    context, (container,) = pod["securityContext"], pod["containers"]
    assert f"USER {context['runAsUser']}:{context['runAsGroup']}\n" in DOCKERFILE
    (home,) = set(re.findall(r"PRECISION_TIME_HOME=(\S+)", DOCKERFILE))
    assert home in {mount["mountPath"] for mount in container["volumeMounts"]}
    ports = " ".join(str(port["containerPort"]) for port in container["ports"])
    assert f"EXPOSE {ports}\n" in DOCKERFILE
    assert '"' + '", "'.join(container["args"][:4]) + '"' in DOCKERFILE
