"""Installing into a live cluster, step by step, and taking it out again; slurmctld never stops."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from predictor.estimate.fitting import Fitted
from slurm_plugin.install.files import put

from .cluster import SlurmCluster
from .installation import Installation
from .processes import Daemon
from .tables import Bench

COMMENT = "model=resnet50 precision=amp epochs=1 samples=1281167 batch=64"
PROGRAM = Path(sys.executable).parent / "precision-time"
DEFAULT, PATIENCE_S = "1-00:00:00", 60.0
SITE_SCRIPT = """\
function slurm_job_submit(job_desc, part_list, submit_uid)
  slurm.log_user("%s", "the site's own")
  return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return slurm.SUCCESS
end
return slurm.SUCCESS
"""


def _slurm_user() -> str | None:
    """A SlurmUser other than root, where root runs the tests and that user can run Python."""
    try:
        account = pwd.getpwnam("slurm")
        subprocess.run(
            [sys.executable, "-c", ""],
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
            cwd="/",
            check=True,
            capture_output=True,
        )
    except (KeyError, OSError, subprocess.CalledProcessError):
        return None
    return account.pw_name


class Live:
    """A cluster that has never heard of us, our commands and our daemon."""

    def __init__(self, cluster: SlurmCluster, home: Path) -> None:
        self.cluster = cluster
        self.home = home
        self.policy = cluster.root / "ours/slurm.yaml"
        self.socket = cluster.root / "ours/run/slurm.sock"
        self.conf = cluster.places.etc / "slurm.conf"
        self.script = cluster.places.etc / "job_submit.lua"
        self.daemon: Daemon | None = None

    def command(self, name: str, *more: str) -> subprocess.CompletedProcess[str]:
        """One of our commands, told where things are."""
        argv = [
            str(PROGRAM),
            "slurm",
            name,
            "--config",
            str(self.policy),
            "--slurm-conf",
            str(self.conf),
            "--home",
            str(self.home),
            "--no-systemd",
            *more,
        ]
        return subprocess.run(
            argv, env=self.env, capture_output=True, text=True, check=False, timeout=180
        )

    @property
    def env(self) -> Mapping[str, str]:
        """As an admin of this Slurm has it: its commands on PATH."""
        return {k: v for k, v in self.cluster.env.items() if k != "SLURM_CONF"}

    def start_daemon(self) -> None:
        """Run the daemon as the SlurmUser, with the policy `install` has written."""
        logs = self.cluster.root / "log"
        owner = self.cluster.places.slurm_user
        argv = [str(PROGRAM), "slurm", "daemon", "--config", str(self.policy)]
        env = {**self.cluster.env, "PRECISION_TIME_HOME": str(self.home)}
        if os.geteuid() == 0:
            argv = [
                "setpriv",
                "--reuid",
                owner,
                "--regid",
                str(pwd.getpwnam(owner).pw_gid),
                "--clear-groups",
                *argv,
            ]
        self.daemon = Daemon("precision-time", logs / "precision-time.out")
        self.daemon.start(argv, env)
        self.daemon.wait_until(self._listens, timeout_s=90)

    def submit(self) -> tuple[str, str]:
        """Queue a GPU job; what its user was shown, and its time limit."""
        job = self.cluster.submit("--hold", "--gres=gpu:1", f"--comment={COMMENT}")
        return "\n".join(job.messages), self.cluster.job(job.job_id)["TimeLimit"]

    def decided(self) -> str:
        """What is shown once a job has its limit: the hook waits 30 ms, a busy machine longer."""
        until = time.monotonic() + PATIENCE_S
        while (answer := self.submit())[1] == DEFAULT:
            assert time.monotonic() < until, answer[0]
        return answer[0]

    def checked(self) -> str:
        """What `check` says once it is content."""
        until = time.monotonic() + PATIENCE_S
        while (done := self.command("check")).returncode:
            assert time.monotonic() < until, done.stdout + done.stderr
        return done.stdout

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(str(self.socket)) == 0


@pytest.fixture
def live(installation: Installation, fitted: Fitted, session_home: Path) -> Iterator[Live]:
    """A cluster without any job submit plugin."""
    with SlurmCluster(installation, Bench(accounting=False, slurm_user=_slurm_user())) as cluster:
        home = cluster.root / "home"
        shutil.copytree(session_home, home)
        home.chmod(0o755)
        conf = cluster.places.etc / "slurm.conf"
        conf.write_text(conf.read_text().replace("JobSubmitPlugins=lua\n", ""))
        (cluster.places.etc / "job_submit.lua").unlink()
        cluster.restart_controller()
        running = Live(cluster, home)
        running.policy.parent.mkdir()
        running.policy.write_text(f"daemon: {{socket: {running.socket}, metrics: null}}\n")
        try:
            yield running
        finally:
            if running.daemon is not None:
                running.daemon.stop()


def test_an_admin_installs_checks_and_uninstalls_on_a_running_cluster(live: Live) -> None:
    conf = live.conf.read_bytes()
    assert live.submit() == ("", DEFAULT)

    first = live.command("install")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "run install again" in first.stdout
    assert live.conf.read_bytes() == conf, "slurm.conf waits for the daemon"

    live.start_daemon()
    second = live.command("install")
    assert second.returncode == 0, second.stdout + second.stderr
    assert "precision-time: resnet50" in live.decided()
    assert "the GPUs of the nodes are known: a100 is a100-sxm4" in live.checked()
    assert "nothing to change" in live.command("install").stdout

    live.cluster.restart_controller()
    assert "precision-time: resnet50" in live.decided()

    removed = live.command("uninstall", "--purge")
    assert removed.returncode == 0, removed.stdout + removed.stderr
    assert "is not known" not in removed.stdout, "every command goes by --slurm-conf"
    assert live.conf.read_bytes() == conf
    assert not live.script.exists()
    assert live.submit() == ("", DEFAULT)
    live.cluster.restart_controller()
    assert live.submit() == ("", DEFAULT)


def test_a_site_script_with_our_two_lines_calls_both_and_stays(live: Live) -> None:
    live.script.write_text(SITE_SCRIPT)
    live.conf.write_text(live.conf.read_text() + "JobSubmitPlugins=lua\n")
    live.cluster.restart_controller()
    shown = live.command("install").stdout
    assert live.script.read_text() == SITE_SCRIPT
    live.start_daemon()
    first, second = (line.strip() for line in shown.splitlines() if "    " in line)
    added = f"{first}\n" + SITE_SCRIPT.replace("  return", f"  {second}\n  return", 1)
    put(live.script, added)
    live.checked()
    shown = live.decided()
    assert "the site's own" in shown
    assert "precision-time: resnet50" in shown
    assert "our lines out of the script" in live.command("uninstall").stdout
    assert live.script.read_text() == added
    put(live.script, SITE_SCRIPT)
    live.command("uninstall")
    shown = live.submit()[0]
    assert "the site's own" in shown
    assert "precision-time" not in shown


def test_check_says_what_fails_when_the_daemon_is_gone(live: Live) -> None:
    live.command("install")
    live.start_daemon()
    live.command("install")
    assert live.daemon is not None
    live.daemon.stop()
    checked = live.command("check")
    assert checked.returncode == 1
    failed = [line for line in checked.stdout.splitlines() if line.startswith("FAILED")]
    assert any("the daemon answers in time" in line for line in failed)
    assert not any("the Lua of slurmctld" in line for line in failed)
    assert live.submit() == ("", DEFAULT)
