"""The order of a live installation, with Slurm's and systemd's commands that note their calls."""

from __future__ import annotations

import getpass
import os
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner, Result
from install_site import SLURM_CONF, lua_library

from slurm_plugin.cli.install import install, uninstall
from slurm_plugin.errors import InstallError
from slurm_plugin.install import install as installing
from slurm_plugin.protocol import HookAnswer

NOTE = '#!/bin/sh\necho "$(basename "$0") $*" >> "{log}"\n'
SCONTROL = (
    NOTE
    + """\
case "$1" in
  ping) echo "Slurmctld(primary) at ctl is UP" ;;
  reconfigure) test ! -e "{log}.reconfigure-fails" ;;
  *) echo "SLURM_VERSION           = 22.05.8"; echo "SlurmUser               = {user}(0)"
     echo "JobSubmitPlugins        = $(cat "{log}.loaded" 2>/dev/null || echo "(null)")" ;;
esac
"""
)
SYSTEMCTL = (
    NOTE
    + """\
case "$1" in
  is-enabled|is-active) exit 1 ;;
  enable) test ! -e "{log}.start-fails" ;;
esac
"""
)


@dataclass(frozen=True)
class Machine:
    """A controller host whose commands are scripts."""

    root: Path
    unit: Path
    library: Path

    @property
    def conf(self) -> Path:
        return self.root / "etc/slurm.conf"

    @property
    def log(self) -> Path:
        return self.root / "calls"

    @property
    def socket(self) -> Path:
        return self.root / "run/precision-time/slurm.sock"

    def calls(self) -> list[str]:
        asking = ("scontrol show", "systemctl is-")
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if not line.startswith(asking)]

    def files(self) -> dict[Path, bytes]:
        found = (p for p in self.root.rglob("*") if p.is_file() and p.parent.name != "bin")
        return {p: p.read_bytes() for p in found if not p.name.startswith("calls")}

    def install(self, *more: str) -> Result:
        return CliRunner().invoke(install, [*self._where(), *more])

    def uninstall(self) -> Result:
        return CliRunner().invoke(uninstall, self._where())

    def _where(self) -> list[str]:
        return [
            "--config",
            str(self.root / "etc/slurm.yaml"),
            "--home",
            str(self.root / "home"),
            "--slurm-conf",
            str(self.conf),
            "--slurm-bin",
            str(self.root / "bin"),
            "--lua-library",
            str(self.library),
        ]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A host without us; its directory has a short name, for sockets need one."""
    if not (Path(sys.executable).parent / "precision-time").exists():
        pytest.skip("the package is not installed in this environment")
    with TemporaryDirectory(prefix="pt-") as name:
        made = Machine(Path(name), Path(name) / "units/pt.service", lua_library("5.1"))
        for directory in ("bin", "etc", "units"):
            (made.root / directory).mkdir()
        made.conf.write_text(SLURM_CONF.replace("SlurmUser=root", f"SlurmUser={_me()}"))
        (made.root / "etc/slurm.yaml").write_text(f"daemon: {{socket: {made.socket}}}\n")
        for command, text in (("scontrol", SCONTROL), ("systemctl", SYSTEMCTL)):
            path = made.root / "bin" / command
            path.write_text(text.replace("{log}", str(made.log)).replace("{user}", _me()))
            path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{made.root / 'bin'}:{os.environ['PATH']}")
        monkeypatch.setattr(installing, "UNIT", made.unit)
        monkeypatch.setattr(installing, "BOOTED", made.root)
        yield made


@contextmanager
def answering(path: Path) -> Iterator[None]:
    """A daemon that answers every request alike."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(HookAnswer(log="fine").encode())

    path.parent.mkdir(parents=True, exist_ok=True)
    with socketserver.ThreadingUnixStreamServer(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def test_the_daemon_runs_before_slurmctld_hears_of_the_hook(machine: Machine) -> None:
    with answering(machine.socket):
        done = machine.install()
    assert done.exit_code == 0, done.output
    assert machine.calls() == [
        "systemctl daemon-reload",
        "systemctl enable --now precision-time-slurm.service",
        "scontrol reconfigure",
        "scontrol ping",
    ]
    written = [line for line in done.output.splitlines() if line.startswith("write")]
    assert written[0] == f"write {machine.unit}"
    assert written[-2:] == [
        f"write {machine.root}/etc/job_submit.lua",
        f"write {machine.conf} (JobSubmitPlugins with lua)",
    ]


def test_a_daemon_that_does_not_start_leaves_slurm_as_it_was(machine: Machine) -> None:
    Path(f"{machine.log}.start-fails").touch()
    before = machine.conf.read_text()
    done = machine.install()
    assert isinstance(done.exception, InstallError)
    assert "systemctl enable" in str(done.exception)
    assert machine.conf.read_text() == before
    assert not (machine.root / "etc/job_submit.lua").exists()
    assert not any("scontrol" in call for call in machine.calls())


def test_a_reconfigure_that_fails_gives_slurm_conf_back(machine: Machine) -> None:
    before = machine.conf.read_text()
    Path(f"{machine.log}.reconfigure-fails").touch()
    with answering(machine.socket):
        done = machine.install()
    assert isinstance(done.exception, InstallError)
    assert "slurm.conf is as it was before" in str(done.exception)
    assert machine.conf.read_text() == before
    assert machine.calls().count("scontrol reconfigure") == 2


def test_plugins_named_in_an_included_file_are_left_to_the_admin(machine: Machine) -> None:
    Path(f"{machine.log}.loaded").write_text("all_partitions\n")
    before = machine.files()
    done = machine.install()
    assert isinstance(done.exception, InstallError)
    assert "JobSubmitPlugins=all_partitions,lua" in str(done.exception)
    assert machine.files() == before


def test_without_systemd_it_says_so_at_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installing, "BOOTED", machine.root / "absent")
    before = machine.files()
    done = machine.install()
    assert isinstance(done.exception, InstallError)
    assert "add --no-systemd" in str(done.exception)
    assert machine.files() == before
    assert not machine.log.exists(), "no command was run"


def test_slurm_conf_waits_for_a_daemon_that_something_else_starts(machine: Machine) -> None:
    conf = machine.conf.read_text()
    done = machine.install("--no-systemd")
    assert "run install again" in done.output
    assert "done" not in done.output
    assert machine.conf.read_text() == conf
    with answering(machine.socket):
        done = machine.install("--no-systemd")
    assert "done" in done.output
    assert machine.conf.read_text() == conf + "JobSubmitPlugins=lua\n"


def test_without_reconfigure_the_admin_is_told_to_do_it(machine: Machine) -> None:
    with answering(machine.socket):
        done = machine.install("--no-reconfigure")
    assert not any("reconfigure" in call for call in machine.calls())
    assert "note: run SLURM_CONF=" in done.output


def test_uninstalling_takes_the_line_out_first_and_stops_the_daemon_last(machine: Machine) -> None:
    with answering(machine.socket):
        machine.install()
    machine.log.unlink()
    Path(f"{machine.log}.loaded").write_text("lua\n")
    done = machine.uninstall()
    assert done.exit_code == 0, done.output
    assert machine.calls() == [
        "scontrol reconfigure",
        "scontrol ping",
        "systemctl disable --now precision-time-slurm.service",
        "systemctl daemon-reload",
    ]
    assert not machine.unit.exists()


def _me() -> str:
    return getpass.getuser()
