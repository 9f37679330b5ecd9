"""The timer and its service: commands that exist, and units that systemd accepts."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from predictor.cli.capacity import report

UNITS = Path(__file__).parents[3] / "slurm_plugin" / "systemd"
NAME = "precision-time-report"


def unit(ending: str) -> configparser.ConfigParser:
    text = (UNITS / f"{NAME}.{ending}").read_text("utf-8").replace("\\\n", " ")
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return parser


def test_the_service_runs_a_command_that_exists() -> None:
    words = shlex.split(unit("service")["Service"]["ExecStart"])
    assert words[:3] == ["/usr/bin/precision-time", "capacity", "report"]
    known = {name for option in report.params for name in option.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_the_service_writes_only_where_it_may() -> None:
    service = unit("service")["Service"]
    assert service["ProtectSystem"] == "strict"
    written = re.findall(r"/var/lib/\S+", service["ExecStart"])
    assert all(path.startswith("/var/lib/precision-time/reports/") for path in written)
    assert "precision-time/reports" in service["StateDirectory"]


def test_the_timer_catches_up_after_a_night_without_power() -> None:
    timer = unit("timer")
    assert timer["Timer"]["Persistent"] == "yes"
    assert timer["Install"]["WantedBy"] == "timers.target"


def test_systemd_accepts_them(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    for ending in ("service", "timer"):
        text = (UNITS / f"{NAME}.{ending}").read_text("utf-8")
        # Any program that is there: the package is not installed where tests run.
        path = tmp_path / f"{NAME}.{ending}"
        path.write_text(text.replace("/usr/bin/precision-time", "/bin/true"))
    found = subprocess.run(
        [analyze, "verify", "--man=no", str(tmp_path / f"{NAME}.timer")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert NAME not in found.stderr, found.stderr
