"""The hook in a real Lua interpreter, called as slurmctld calls it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import slurm_plugin

MODULES = Path(slurm_plugin.__file__).parent / "lua"
HARNESS = Path(__file__).parent / "lua" / "harness.lua"
NO_VAL = 4294967294
INFINITE = 4294967295
UID = 21001

GPU = {"flag_default": 1, "default_time": 1440, "max_time": 2880}
PARTITIONS: dict[str, dict[str, int]] = {
    "gpu": GPU,
    "short": {"flag_default": 0, "default_time": 10, "max_time": 30},
    "nolimit": {"flag_default": 0, "default_time": NO_VAL, "max_time": INFINITE},
}
JOB: dict[str, Any] = {
    "name": "train",
    "user_id": UID,
    "user_name": "u1",
    "comment": "model=resnet50 precision=amp epochs=90 batch=256 dataset_size=1281167",
    "tres_per_node": "gres/gpu:2",
}
_UNSAFE = re.compile(r'[^ -~]|["\\]')


def literal(value: object) -> str:
    """A value as a Lua expression on one line; mappings and sequences become tables."""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | Path):
        return literal(str(value).encode())
    if isinstance(value, bytes):
        return '"' + _UNSAFE.sub(lambda m: f"\\{ord(m[0]):03d}", value.decode("latin-1")) + '"'
    if isinstance(value, Mapping):
        return "{" + ",".join(f"[{literal(k)}]={literal(v)}" for k, v in value.items()) + "}"
    assert isinstance(value, Sequence), value
    return "{" + ",".join(map(literal, value)) + "}"


@dataclass(frozen=True, slots=True)
class Called:
    """What a call of the hook came to; texts hold one character a byte."""

    returned: int
    job: Mapping[str, Any]
    logs: Sequence[tuple[str, str]]
    user: Sequence[str]
    environment_faults: int = 0
    seconds: float = 0.0
    before: Mapping[str, Any] = field(default_factory=dict)

    @property
    def written(self) -> dict[str, Any]:
        """The fields the hook changed."""
        return {k: v for k, v in self.job.items() if self.before.get(k) != v}

    def log(self, level: str = "info") -> str:
        """The lines of one level."""
        return "\n".join(text for at, text in self.logs if at == level)


class Hook:
    """One interpreter; ``modules`` is where Lua looks besides what the script says."""

    def __init__(
        self, interpreter: str, script: Path = MODULES / "job_submit.lua", modules: Path = MODULES
    ) -> None:
        self._process = subprocess.Popen(
            [interpreter, str(HARNESS), str(modules)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
        )
        self.script = script

    def __enter__(self) -> Hook:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate(timeout=20)

    @property
    def pid(self) -> int:
        """The interpreter's process."""
        return self._process.pid

    def call(self, call: str, **given: object) -> dict[str, Any]:
        """One call of the harness and its result."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(literal({"call": call, **given}).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the interpreter ended at {call}"
        result: dict[str, Any] = json.loads(answer)
        return result

    def load(self, *, without_luasocket: bool = False) -> dict[str, Any]:
        """Runs the script as slurmctld does at its start."""
        return self.call("load", script=self.script, without_luasocket=without_luasocket)

    def configure(self, **settings: object) -> None:
        """Sets what an admin may set."""
        self.call("configure", settings=settings)

    def submit(
        self,
        job: Mapping[str, Any] | None = None,
        partitions: Mapping[str, Mapping[str, int]] = PARTITIONS,
        **changed: Any,
    ) -> Called:
        """Submits a job, JOB with changes unless given; a None takes a field away."""
        asked = {**(JOB if job is None else job), **changed}
        asked = {k: v for k, v in asked.items() if v is not None}
        result = self.call("submit", job=asked, parts=partitions, uid=UID)
        return _called(result, asked)

    def modify(
        self, change: Mapping[str, Any], record: Mapping[str, Any], uid: int = UID
    ) -> Called:
        """Changes a pending job."""
        result = self.call("modify", job=change, record=record, parts=PARTITIONS, uid=uid)
        return _called(result, change)


def _called(result: Mapping[str, Any], asked: Mapping[str, Any]) -> Called:
    before = {k: _as_told(v) for k, v in asked.items()}
    logs = [(level, text) for level, text in result["logs"]]
    return Called(
        returned=result["returned"],
        job=result["job"] or {},
        logs=logs,
        user=result["user"],
        environment_faults=result["environment_faults"],
        seconds=result.get("seconds", 0.0),
        before={**before, **{k: v for k, v in (result["job"] or {}).items() if k in _TABLES}},
    )


_TABLES = ("argv", "environment")


def _as_told(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode().decode("latin-1")
    return value.decode("latin-1") if isinstance(value, bytes) else value
