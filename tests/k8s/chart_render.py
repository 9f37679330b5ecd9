"""The chart as Helm renders it: by `helm` on the PATH, else by Helm's library for Python.

Without either the tests that need a rendering are skipped. The library is `helm-python-sdk`.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart_files import CHART

RELEASE, NAMESPACE = "pt", "gpu-scheduling"
LINT_WARNING = 2
WITH_EXTENDER = {"scheduler": "extender"}
HELM = shutil.which("helm")
LIBRARY = importlib.util.find_spec("helm_python") is not None

needs_helm = pytest.mark.skipif(
    HELM is None and not LIBRARY,
    reason="Helm is needed: `helm` on the PATH, or pip install helm-python-sdk",
)
needs_library = pytest.mark.skipif(not LIBRARY, reason="pip install helm-python-sdk")


class HelmError(Exception):
    """Helm refuses; the message is what it says."""


@dataclass(frozen=True)
class Rendered:
    """The objects of a release."""

    objects: tuple[dict[str, Any], ...]

    def all(self, kind: str) -> list[dict[str, Any]]:
        return [found for found in self.objects if found["kind"] == kind]

    def one(self, kind: str, ending: str = "") -> dict[str, Any]:
        """The object of a kind whose name ends so, ``-`` and ``ending`` left off."""
        name = "pt-precision-time" + ending
        (found,) = (o for o in self.all(kind) if o["metadata"]["name"] == name)
        return found

    def config(self) -> dict[str, Any]:
        return dict(yaml.safe_load(self.one("ConfigMap")["data"]["config.yaml"]))

    def scheduler_config(self) -> dict[str, Any]:
        text = self.one("ConfigMap", "-scheduler")["data"]["scheduler.yaml"]
        return dict(yaml.safe_load(text))

    def extender(self) -> dict[str, Any]:
        (found,) = self.scheduler_config()["extenders"]
        return dict(found)

    def pod(self, ending: str = "") -> dict[str, Any]:
        """The pod template of a Deployment."""
        return dict(self.one("Deployment", ending)["spec"]["template"])

    def secret(self) -> dict[str, bytes]:
        data = self.one("Secret", "-tls")["data"]
        return {name: base64.b64decode(value) for name, value in data.items()}


def render(values: dict[str, Any] | None = None, *, namespace: str = NAMESPACE) -> Rendered:
    """The objects for some values; raises HelmError where Helm refuses them.

    The registration with a kube-scheduler of one's own is rendered too where values do not say.
    The same values give the same objects, which no test may change.
    """
    return _rendered(json.dumps(WITH_EXTENDER | (values or {}), sort_keys=True), namespace)


@cache
def _rendered(values: str, namespace: str) -> Rendered:
    given = json.loads(values)
    return objects_of(_by_command(given, namespace) if HELM else _by_library(given, namespace))


def objects_of(texts: list[str]) -> Rendered:
    """The objects of rendered manifests; an unreadable one raises."""
    found = [document for text in texts for document in yaml.safe_load_all(text)]
    return Rendered(tuple(document for document in found if document))


def _by_command(values: dict[str, Any], namespace: str) -> list[str]:
    command = [str(HELM), "template", RELEASE, str(CHART), "--namespace", namespace, "--values=-"]
    done = subprocess.run(
        command, input=json.dumps(values), capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        raise HelmError(done.stderr)
    return [done.stdout]


def _by_library(values: dict[str, Any], namespace: str) -> list[str]:
    import helm_python

    try:
        with helm_python.Chart.load(CHART) as chart:
            made = chart.render(values, name=RELEASE, namespace=namespace)
    except helm_python.HelmError as error:
        raise HelmError(str(error)) from error
    return [text for name, text in made.items() if Path(name).suffix == ".yaml"]


def notes(values: dict[str, Any] | None = None) -> str:
    """What Helm says after an installation; needs its library."""
    import helm_python

    with helm_python.Chart.load(CHART) as chart:
        made = chart.render(WITH_EXTENDER | (values or {}), name=RELEASE, namespace=NAMESPACE)
    (found,) = (text for name, text in made.items() if Path(name).name == "NOTES.txt")
    return str(found)


def lint() -> list[str]:
    """What Helm's own lint finds wrong, warnings included."""
    if HELM:
        command = [HELM, "lint", "--strict", "--quiet", str(CHART)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return [done.stdout + done.stderr] if done.returncode else []
    import helm_python

    report = helm_python.lint(CHART, strict=True)
    wrong = [m["error"] for m in report["messages"] if m["severity"] >= LINT_WARNING]
    return [*wrong, *report["errors"]]


def render_in(kubeconfig: str, values: dict[str, Any] | None = None) -> Rendered:
    """The objects as an upgrade would have them in a cluster: templates may look things up."""
    import helm_python

    with (
        helm_python.Config(kubeconfig_content=kubeconfig, namespace=NAMESPACE) as cluster,
        helm_python.Chart.load(CHART) as chart,
    ):
        made = cluster.render(
            chart,
            WITH_EXTENDER | (values or {}),
            name=RELEASE,
            namespace=NAMESPACE,
            is_upgrade=True,
        )
    return objects_of([text for name, text in made.items() if Path(name).suffix == ".yaml"])
