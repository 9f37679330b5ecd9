"""A real daemon around a decider that does what a job's comment asks for.

    python daemon_stand_in.py POLICY [ARGUMENTS OF snapshot_stand_in.py ...]

Comments: ``sleep=SECONDS``, ``raise``, ``limit=MINUTES``, ``view``, ``bound=SECONDS`` (a bound on
processor time that the deadline leaves behind);
``new`` is left to the process aside, ``end`` too, and ends that. That process is a real one only
where ``DECIDE_ASIDE`` is in the environment, and the one that reads Slurm only where arguments say
what it sends: the others say their first word and wait, without imports.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import struct
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from snapshot_stand_in import view

from predictor.errors import PrecisionTimeError
from predictor.service.logs import logging_to
from predictor.service.process import time_bound
from slurm_plugin.ahead import QueueAhead
from slurm_plugin.cluster import Cluster
from slurm_plugin.config import SlurmPolicy, read_policy
from slurm_plugin.daemon import PACKAGES, decider_child
from slurm_plugin.daemon.service import SlurmDaemon
from slurm_plugin.daemon.views import sent
from slurm_plugin.protocol import HookAnswer, HookRequest

IDLE = Path(__file__).with_name("idle_child.py")
VIEW = sent(view(2, 3))
SNAPSHOTS = (sys.executable, str(Path(__file__).with_name("snapshot_stand_in.py")))


@dataclass
class StandIn:
    """Decides by the comment alone; ``site`` of the policy is in every message."""

    policy: SlurmPolicy
    version: str = "stand-in"
    aside: bool = False
    nodes: int | None = None
    asked: int = 0
    is_open: bool = False
    predictor: None = None
    left_behind: contextlib.AbstractContextManager[None] | None = None

    def look(self, cluster: Cluster, ahead: QueueAhead | None) -> None:
        """Nothing is kept of a view but how large it is."""
        self.nodes = len(cluster.nodes)

    def decide(self, request: HookRequest) -> HookAnswer:
        self.asked += 1
        self.is_open = False
        what, _, value = (request.comment or "").partition("=")
        if what == "sleep":
            time.sleep(float(value))
        if what == "bound":
            self.left_behind = time_bound(float(value), cpu=True)
            self.left_behind.__enter__()
            time.sleep(1.0)
        if what in ("new", "end") and not self.aside:
            self.is_open = True
            return HookAnswer(log="reason=later", admin_comment="precision-time v=1 own=none")
        if what == "end":
            os._exit(3)
        if what == "raise":
            raise ValueError(f"as asked for: {value}")
        if what == "view":
            seen = "none" if self.nodes is None else str(self.nodes)
            return HookAnswer(log=f"reason=view view={seen}", ttl_s=0)
        limit = int(value) if what == "limit" else None
        return HookAnswer(
            log=f"model=resnet50 gpu=a100 tier=model limit={limit} reason=set",
            time_limit=limit,
            message=f"{self.policy.site} call {self.asked}",
        )


def load(policy: Path, aside: bool) -> Any:
    return StandIn(read_policy(policy), aside=aside)


def idle(file: Path, word: object) -> tuple[str, ...]:
    """A child that says one word, and nothing more."""
    raw = pickle.dumps(word)
    file.write_bytes(struct.pack("!i", len(raw)) + raw)
    return (sys.executable, "-SE", str(IDLE), str(file))


async def main(path: Path, snapshots: tuple[str, ...]) -> None:
    command = (*SNAPSHOTS, *snapshots) if snapshots else idle(path.with_name("view"), VIEW)
    decide: tuple[str, ...] = (sys.executable, __file__, str(path), "--decide")
    if not os.environ.get("DECIDE_ASIDE"):
        decide = idle(path.with_name("decider"), ("stand-in", ""))
    await SlurmDaemon(read_policy(path), partial(load, path), decide, command).run()


if __name__ == "__main__":
    policy_path = Path(sys.argv[1])
    log_format: Any = "json"
    with contextlib.suppress(PrecisionTimeError):
        log_format = read_policy(policy_path).daemon.log_format
    if sys.argv[2:3] == ["--decide"]:
        decider_child.run(sys.argv, log_format, partial(load, policy_path))
    else:
        with logging_to(log_format, *PACKAGES):
            asyncio.run(main(policy_path, tuple(sys.argv[2:])))
