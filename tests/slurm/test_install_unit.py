"""The systemd unit: right for the site, and one that systemd itself accepts."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_plugin.install.files import SERVICE, unit

SOCKET = Path("/run/precision-time/slurm.sock")
HOME = Path("/var/lib/precision-time")


def made(**given: Path) -> str:
    usual = {
        "slurm_conf": Path("/etc/slurm/slurm.conf"),
        "program": Path(sys.executable),
        "config": Path("/etc/precision-time/slurm.yaml"),
        "home": HOME,
        "socket": SOCKET,
    }
    return unit("root", **{**usual, **given})


def test_it_runs_this_program_as_the_slurm_user_on_this_slurm_conf() -> None:
    text = made(program=Path("/opt/pt/bin/precision-time"))
    assert (
        "ExecStart=/opt/pt/bin/precision-time slurm daemon "
        "--config /etc/precision-time/slurm.yaml\n" in text
    )
    assert "User=root\n" in text
    assert "Environment=SLURM_CONF=/etc/slurm/slurm.conf\n" in text
    assert "Environment=PRECISION_TIME_HOME=/var/lib/precision-time\n" in text


def test_a_path_with_a_blank_or_a_percent_stays_one_word() -> None:
    assert 'ExecStart="/opt/p t/100%%/precision-time" slurm' in made(
        program=Path("/opt/p t/100%/precision-time")
    )


def test_directories_elsewhere_are_made_writable_instead() -> None:
    text = made(home=Path("/srv/home"), socket=Path("/srv/run/slurm.sock"))
    assert "ReadWritePaths=/srv/home\n" in text
    assert "ReadWritePaths=/srv/run\n" in text
    assert "StateDirectory=" not in text


@pytest.mark.parametrize(
    "line",
    [
        "Type=notify",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "PrivateTmp=yes",
        "RuntimeDirectory=precision-time",
        "RuntimeDirectoryMode=0750",
        "Restart=on-failure",
        "ExecReload=/bin/kill -HUP $MAINPID",
    ],
)
def test_the_unit_keeps_its_promises(line: str) -> None:
    assert f"{line}\n" in made()
    assert re.search(r"^WatchdogSec=\d+$", made(), re.M)
    assert re.search(r"^MemoryMax=\d+G$", made(), re.M)


@pytest.mark.parametrize("given", [{}, {"home": Path("/srv/home"), "socket": Path("/srv/x/s")}])
def test_systemd_accepts_it(tmp_path: Path, given: dict[str, Path]) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    path = tmp_path / SERVICE
    path.write_text(made(**given))
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(path)], capture_output=True, text=True, check=False
    )
    ours = [line for line in done.stderr.splitlines() if SERVICE in line]
    assert not ours, done.stderr
