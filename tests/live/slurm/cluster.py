"""A whole Slurm on this machine: slurmctld, a slurmd a node, accounting, all in one directory.

Nodes get invented host names and loopback addresses, GPUs are empty files, and every daemon runs
under a supervisor, so nothing outlives the bench. Facts this rests on: slurmd needs no
--enable-multiple-slurmd as long as NodeHostname, NodeAddr and Port differ, and AuthInfo is not used
towards slurmdbd, so AccountingStoragePass repeats the munge socket. Slurm's ports listen on every
address, as slurmdbd and srun cannot be told otherwise; the bench's own munge key guards them.
"""

from __future__ import annotations

import math
import os
import pwd
import random
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from .installation import Installation
from .job_records import ENDED, Submitted, job_record
from .processes import BenchError, Daemon, free_ports
from .services import (
    mariadb_ready,
    munge_ready,
    slurmdbd_ready,
    start_mariadb,
    start_munged,
    start_slurmdbd,
)
from .tables import Bench, Places, config_files, slurm_conf

COMMAND_TIMEOUT_S = 60.0
JOB_POLL_S = 0.1


class SlurmCluster:
    """A bench of one Slurm; use it as a context manager."""

    def __init__(self, installation: Installation, bench: Bench | None = None) -> None:
        self.installation = installation
        self.bench = bench or Bench()
        self.places = _places(installation, self.bench)
        self.root = self.places.root
        self.work = self.root / "work"
        self.controller = self._daemon("slurmctld")
        self.nodes = {node.name: self._daemon(f"slurmd-{node.name}") for node in self.bench.nodes}
        self._services: list[Daemon] = []
        self.hook = self.bench.hook

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def env(self) -> dict[str, str]:
        """Environment of every daemon and command, without the caller's own SLURM settings."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not re.match(r"(S?SLURM|SBATCH|SALLOC|SQUEUE|SACCT|SINFO|PRECISION_TIME)_", name)
        }
        own = {
            "PATH": self.installation.path,
            "LC_ALL": "C",
            "SLURM_CONF": str(self.places.etc / "slurm.conf"),
        }
        library_path = self.installation.library_path
        return {**inherited, **own, **({"LD_LIBRARY_PATH": library_path} if library_path else {})}

    def start(self) -> None:
        """Start everything; returns when all nodes are idle. Raises BenchError."""
        self._prepare()
        munged = self._keep(start_munged(self.installation, self.places, self.env))
        for name in self.nodes:
            self._start_node(name)
        if self.bench.accounting:
            self._start_accounting(munged)
        munged.wait_until(lambda: munge_ready(self.places))
        self.start_controller()
        self.controller.wait_until(self._all_idle)

    def stop(self) -> None:
        """End everything that runs here and remove the directory."""
        daemons = [self.controller, *self.nodes.values(), *reversed(self._services)]
        for daemon in daemons:
            daemon.ask_to_stop()
        for daemon in daemons:
            daemon.stop()
        shutil.rmtree(self.root, ignore_errors=True)

    def run(
        self,
        *argv: str,
        user: str | None = None,
        check: bool = True,
        input: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = COMMAND_TIMEOUT_S,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in this bench's work directory, as another user if root runs the tests.

        ``env`` adds to the environment. Raises BenchError with its output if ``check`` and it
        failed.
        """
        account = pwd.getpwnam(user) if user else None
        done = subprocess.run(
            [self.installation.program(argv[0]), *argv[1:]],
            cwd=self.work,
            env={**self.env, **(env or {})},
            capture_output=True,
            text=True,
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            check=False,
            timeout=timeout_s,
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
        )
        if check and done.returncode:
            raise BenchError(f"{' '.join(argv)} failed:\n{done.stdout}{done.stderr}")
        return done

    def submit(
        self,
        *options: str,
        script: str = "#!/bin/sh\ntrue\n",
        user: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Submitted:
        """Queue a batch script given as text; raises BenchError if Slurm refuses it."""
        argv = ["sbatch", "--parsable", "--output=/dev/null", *options]
        done = self.run(*argv, input=script, user=user, env=env)
        return Submitted(int(done.stdout.split(";")[0]), tuple(done.stderr.splitlines()))

    def jobs(self, job_id: int) -> list[dict[str, str]]:
        """All records of a job: tasks of an array, components of a heterogeneous job."""
        text = self.run("scontrol", "show", "job", str(job_id)).stdout
        return [job_record(block) for block in text.split("\n\n") if block.strip()]

    def job(self, job_id: int) -> dict[str, str]:
        """The first record of a job as ``scontrol show job`` names its fields."""
        return self.jobs(job_id)[0]

    def wait(
        self, job_id: int, states: Collection[str] = ENDED, timeout_s: float = 60.0
    ) -> dict[str, str]:
        """Wait until a job is in one of the states; its record. Raises BenchError."""
        deadline = time.monotonic() + timeout_s
        while (job := self.job(job_id))["JobState"] not in states:
            if time.monotonic() > deadline:
                raise BenchError(
                    f"job {job_id} is {job['JobState']} ({job['Reason']}) after {timeout_s:g} s, "
                    f"not {' or '.join(sorted(states))}"
                )
            time.sleep(JOB_POLL_S)
        return job

    def wait_until(self, true: Callable[[], bool], timeout_s: float = 60.0) -> None:
        """Wait until something is true of the cluster; raises BenchError."""
        self.controller.wait_until(true, timeout_s, JOB_POLL_S)

    def sacct(
        self, job_id: int, *fields: str, timeout_s: float = 60.0, records: int = 1
    ) -> dict[str, str]:
        """Fields of an ended job's first record, once all its records are there with their ends.

        ``records`` are the tasks of an array, the components of a het job, the runs of a requeued
        one.
        """
        deadline = time.monotonic() + timeout_s
        argv = [
            "sacct",
            "-X",
            "-D",
            "-n",
            "-P",
            f"--delimiter={chr(31)}",
            f"--jobs={job_id}",
            f"--format=end,{','.join(fields)}",
        ]
        while True:
            found = [line.split(chr(31)) for line in self.run(*argv).stdout.splitlines()]
            if len(found) >= records and all(end != "Unknown" for end, *_ in found):
                return dict(zip(fields, found[0][1:], strict=True))
            if time.monotonic() > deadline:
                raise BenchError(f"job {job_id} has no end in sacct after {timeout_s:g} s")
            time.sleep(JOB_POLL_S)

    def clear(self, timeout_s: float = 60.0) -> None:
        """Cancel every job and wait until none is left."""
        deadline = time.monotonic() + timeout_s
        while ids := self.run("squeue", "-h", "-o", "%A").stdout.split():
            if time.monotonic() > deadline:
                raise BenchError(f"jobs {', '.join(ids)} are still there after {timeout_s:g} s")
            self.run("scancel", *sorted(set(ids)), check=False)
            time.sleep(JOB_POLL_S)
        self.controller.wait_until(self._all_idle)

    def set_hook(self, hook: str, beside: Mapping[str, str] | None = None) -> None:
        """Change job_submit.lua and files beside it; in force from the next submit on.

        slurmctld looks at the time of the file in whole seconds and compares it with when it last
        read the file, so the change is made in a second of its own.
        """
        now = time.time()
        time.sleep(math.ceil(now) - now)
        for name, text in {**(beside or {}), "job_submit.lua": hook}.items():
            aside = self.places.etc / f".{name}.new"
            aside.write_text(text)
            aside.rename(self.places.etc / name)
        self.hook = hook

    def reconfigure(self, *lines: str) -> None:
        """Have Slurm read its files again, slurm.conf with these lines added."""
        conf = self.places.etc / "slurm.conf"
        conf.write_text(slurm_conf(self.bench, self.places) + "".join(f"{x}\n" for x in lines))
        self.run("scontrol", "reconfigure")
        self.controller.wait_until(self._answers)
        self.controller.wait_until(self._all_idle_or_busy)

    def restart_controller(self) -> None:
        """Stop slurmctld and start it again, as an administrator would."""
        self.controller.stop()
        self.start_controller()
        self.controller.wait_until(self._all_idle_or_busy)

    def start_controller(self) -> None:
        """Start slurmctld; raises BenchError with its last log lines if it does not come up."""
        program = self.installation.program("slurmctld")
        self.controller.start([program, "-D"], self.env, grace_s=10.0)
        self.controller.wait_until(self._answers)

    def log(self) -> str:
        """What slurmctld has logged so far."""
        return (self.root / "log" / "slurmctld.log").read_text(errors="replace")

    def node_states(self) -> dict[str, str]:
        """State of each node, as sinfo writes it; ``*`` marks one that does not answer."""
        listed = self.run("sinfo", "-h", "-N", "-o", "%N %T", check=False).stdout.splitlines()
        return dict(line.split() for line in listed)

    def _prepare(self) -> None:
        places = self.places
        for name in ("etc", "log", "run", "state", "spool", "munge", "mariadb", "gpu", "work"):
            (self.root / name).mkdir(mode=0o755)
        self.work.chmod(0o1777)
        owner = pwd.getpwnam(places.slurm_user)
        for name in ("log", "run", "state"):
            os.chown(self.root / name, owner.pw_uid, owner.pw_gid)
        for node in self.bench.nodes:
            (self.root / "spool" / node.name).mkdir()
            for index in range(node.gpus):
                (self.root / "gpu" / f"{node.name}-{index}").touch()
        for name, text in config_files(self.bench, places).items():
            (places.etc / name).write_text(text)

    def _start_node(self, name: str) -> None:
        argv = [self.installation.program("slurmd"), "-D", "-N", name]
        self.nodes[name].start(argv, self.env)

    def _start_accounting(self, munged: Daemon) -> None:
        mariadb = self._keep(start_mariadb(self.installation, self.places, self.env))
        mariadb.wait_until(lambda: mariadb_ready(self.places))
        munged.wait_until(lambda: munge_ready(self.places))
        slurmdbd = self._keep(start_slurmdbd(self.installation, self.places, self.env))
        slurmdbd.wait_until(lambda: slurmdbd_ready(self.places))
        self.run("sacctmgr", "-i", "add", "cluster", "bench")
        self.run("sacctmgr", "-i", "add", "account", "research", "Description=research")

    def _keep(self, daemon: Daemon) -> Daemon:
        self._services.append(daemon)
        return daemon

    def _daemon(self, name: str) -> Daemon:
        logs = self.root / "log"
        return Daemon(name, logs / f"{name}.out", [logs / f"{name}.log"])

    def _answers(self) -> bool:
        return "is UP" in self.run("scontrol", "ping", check=False).stdout

    def _all_idle(self) -> bool:
        states = self.node_states()
        return len(states) == len(self.nodes) and set(states.values()) == {"idle"}

    def _all_idle_or_busy(self) -> bool:
        states = self.node_states()
        return len(states) == len(self.nodes) and not any(
            re.search(r"[*]|unknown|down", state) for state in states.values()
        )


def _places(installation: Installation, bench: Bench) -> Places:
    root = Path(tempfile.mkdtemp(prefix="precision-time-slurm-"))
    root.chmod(0o755)
    me = pwd.getpwuid(os.geteuid()).pw_name
    controller_port, database_port, *node_ports = free_ports(2 + len(bench.nodes))
    return Places(
        root=root,
        host=socket.gethostname().split(".")[0],
        slurm_user=bench.slurm_user or me,
        slurmd_user=me,
        controller_port=controller_port,
        database_port=database_port,
        node_ports=tuple(node_ports),
        address_prefix=f"127.0.{random.randint(1, 254)}",
        plugin_dir=installation.plugin_dir,
        version=installation.version,
    )
