"""Our side on a bench: the Lua hook beside slurm.conf, and the decision daemon it asks."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

import yaml

from .cluster import SlurmCluster
from .processes import Daemon

PROGRAM = Path(sys.executable).with_name("precision-time")
READY_TIMEOUT_S = 90.0
REFRESH_S = 1.0
# For tests of what is decided, however busy the machine; an answer kept would hide a new policy.
PATIENT = {"timeout": 5.0, "cache_s": 0.0}
PATIENT_DAEMON = {"deadline_ms": 4000.0, "prediction_ms": 3000.0, "metrics": None}


def install_hook(cluster: SlurmCluster, path: Path, **settings: float) -> None:
    """Put the shipped Lua files into a bench, with this socket and these settings."""
    shipped = {
        file.name: file.read_text()
        for file in files("slurm_plugin").joinpath("lua").iterdir()
        if file.name.endswith(".lua")
    }
    given = ", ".join([f'socket = "{path}"', *(f"{k} = {v:g}" for k, v in settings.items())])
    hook = shipped.pop("job_submit.lua") + f"\nif ok then pt.configure({{ {given} }}) end\n"
    cluster.set_hook(hook, shipped)


class DecisionDaemon:
    """``precision-time slurm daemon`` for one bench; a context manager.

    ``home`` holds the predictor in use; ``sections`` of the policy replace their defaults here.
    """

    def __init__(
        self, cluster: SlurmCluster, home: Path, nice: int = 0, **sections: Mapping[str, Any]
    ) -> None:
        self.cluster = cluster
        self.home = home
        self.nice = nice
        directory = cluster.root / "precision-time"
        directory.mkdir(exist_ok=True)
        self.socket = directory / "slurm.sock"
        self.policy = directory / "slurm.yaml"
        self.process = Daemon("precision-time", cluster.root / "log" / "precision-time.out")
        self._write(sections)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it; returns once it takes connections. Raises BenchError with its log."""
        env = {**self.cluster.env, "PRECISION_TIME_HOME": str(self.home)}
        program = ["nice", "-n", str(self.nice), str(PROGRAM)]
        argv = [*program, "slurm", "daemon", "--config", str(self.policy)]
        self.process.start(argv, env)
        self.process.wait_until(self._listens, READY_TIMEOUT_S)

    def stop(self) -> None:
        """End it as systemd would."""
        self.process.stop()

    def kill(self) -> None:
        """End it without a warning; its socket stays where it is."""
        self.process.signal(signal.SIGKILL)
        self.process.stop()

    def signal_decider(self, number: signal.Signals) -> None:
        """Send a signal to the process that decides."""
        os.kill(self.process.child_of(self.process.pid), number)

    def set_policy(self, **sections: Mapping[str, Any]) -> None:
        """Reload it with another policy; returns once it has said so."""
        before = self.log().count("reloaded")
        self._write(sections)
        self.process.signal(signal.SIGHUP)
        self.process.wait_until(lambda: self.log().count("reloaded") > before, READY_TIMEOUT_S)

    def log(self) -> str:
        """What it has logged so far."""
        return self.process.output.read_text(errors="replace")

    def _write(self, sections: Mapping[str, Mapping[str, Any]]) -> None:
        own: dict[str, Mapping[str, Any]] = {
            "slurm": {"refresh_s": REFRESH_S},
            "daemon": {"socket": str(self.socket), "log_format": "text", **PATIENT_DAEMON},
        }
        merged = {
            name: {**own.get(name, {}), **sections.get(name, {})} for name in {**own, **sections}
        }
        self.policy.write_text(yaml.safe_dump(merged))

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(str(self.socket)) == 0
