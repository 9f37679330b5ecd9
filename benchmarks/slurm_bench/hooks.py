"""The hooks in slurmctld: put there once, told apart by job names, read from the log they write."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from tests.live.slurm.cluster import SlurmCluster

SOURCE = Path(__file__).with_name("hooks.lua")
PLUGIN_LINE = re.compile(r"^JobSubmitPlugins=.*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a hook. Without an answer the job went on unchanged."""

    kind: str
    duration_us: float
    answered: bool


class Hooks:
    """All hooks of a bench, installed; ``calls`` is what they took."""

    def __init__(self, cluster: SlurmCluster, ours: Path, bare: Path) -> None:
        self.cluster = cluster
        self.log = cluster.root / "log" / "hooks.txt"
        self._read = 0
        self.log.touch()
        settings = {"LOG_PATH": self.log, "OUR_SOCKET": ours, "BARE_SOCKET": bare}
        head = "".join(f"local {k} = {json.dumps(str(v))}\n" for k, v in settings.items())
        shipped = {
            file.name: file.read_text()
            for file in files("slurm_plugin").joinpath("lua").iterdir()
            if file.name.endswith(".lua")
        }
        shipped["shipped_job_submit.lua"] = shipped.pop("job_submit.lua")
        cluster.set_hook(head + SOURCE.read_text(), shipped)

    def calls(self) -> list[Call]:
        """The calls since this was last asked."""
        with self.log.open() as log:
            log.seek(self._read)
            lines = log.readlines()
            self._read = log.tell()
        return [_call(*line.split()) for line in lines]

    @contextmanager
    def off(self) -> Iterator[None]:
        """For as long as the block lasts slurmctld runs without job_submit/lua."""
        conf = self.cluster.places.etc / "slurm.conf"
        text = conf.read_text()
        conf.write_text(PLUGIN_LINE.sub("", text))
        self.cluster.restart_controller()
        try:
            yield
        finally:
            conf.write_text(text)
            self.cluster.restart_controller()


def _call(kind: str, duration_us: str, answered: str) -> Call:
    return Call(kind, float(duration_us), answered == "1")
