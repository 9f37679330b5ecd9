"""Sends views of an invented cluster as the snapshot child does.

    python snapshot_stand_in.py NODES JOBS [fail | die | hang]

``fail`` sends a failure, ``die`` ends after each view, ``hang`` sends nothing.
"""

from __future__ import annotations

import os
import sys
import time

from slurm_plugin.cluster import Cluster, Settings, SlurmJob, SlurmNode
from slurm_plugin.config import Slurm
from slurm_plugin.daemon import frames


def main(nodes: int, jobs: int, how: str = "") -> None:
    policy = Slurm.model_validate_json(sys.stdin.buffer.readline())
    pieces = sys.stdout.buffer
    while True:
        if how == "hang":
            time.sleep(3600)
        if how == "fail":
            frames.write(pieces, frames.NoView("squeue: no answer, as asked for"))
        else:
            for frame in frames.frames(view(nodes, jobs)):
                frames.write(pieces, frame)
        if how == "die":
            sys.exit(3)
        time.sleep(policy.refresh_s)


def view(nodes: int, jobs: int) -> Cluster:
    """A view; one of its partitions is named for the process that made it."""
    return Cluster(
        taken_s=time.time(),
        settings=Settings(version=str(os.getpid()), slurm_user=os.environ.get("SLURM_USER", "")),
        nodes=tuple(SlurmNode(name=f"n{i}", partitions=("gpu",)) for i in range(nodes)),
        queue=tuple(
            SlurmJob(
                job_id=i,
                user=f"u{i % 50}",
                name=f"job-{i}",
                state="PENDING",
                partitions=("gpu",),
                gpus=8,
                submit_s=1.0 * i,
                limit_min=60,
                comment="model=resnet50",
                label=str(i),
            )
            for i in range(jobs)
        ),
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
