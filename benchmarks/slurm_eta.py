"""How far off `slurm eta` is of when running jobs end, on a real Slurm: 40 in eight formats.

Run as ``python benchmarks/slurm_eta.py``: 200 to 400 seconds a job, all at once, of eight users.
They sleep and print as trainings do (tests/live/slurm/training.py): they start up, their steps
vary, they evaluate, save and export. Said of each is what remained after a share of it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import defaultdict
from math import isnan
from pathlib import Path

import click
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.live.slurm.cluster import SlurmCluster
from tests.live.slurm.daemon import PATIENT, DecisionDaemon, install_hook
from tests.live.slurm.eta_jobs import EtaJobs, lengths, users
from tests.live.slurm.installation import Installation
from tests.live.slurm.tables import Bench, NodeSpec, PartitionSpec

NODES = tuple(NodeSpec(f"g{number}", "a100", 8) for number in range(5))
SHARES = (0.1, 0.25, 0.5)
NEAR = 0.15


@click.command()
@click.option("--jobs", "count", type=int, default=40, show_default=True, help="How many, to 40.")
@click.option("--seconds", type=float, default=300.0, show_default=True, help="Of one, by half.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the lengths.")
@click.option("--every", type=float, default=5.0, show_default=True, help="Seconds between asks.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep the outputs there.")
def main(count: int, seconds: float, seed: int, every: float, keep: Path | None) -> None:
    """Print the error of what remains by format, after 10, 25 and 50 % of each run."""
    names = tuple(node.name for node in NODES)
    bench = Bench(
        nodes=NODES,
        partitions=(PartitionSpec("gpu", names, default=True, default_min=1440),),
        slurm_user="slurm",
    )
    with tempfile.TemporaryDirectory() as home, SlurmCluster(Installation(), bench) as cluster:
        with DecisionDaemon(cluster, Path(home), slurm={"source": "text"}) as daemon:
            install_hook(cluster, daemon.socket, **PATIENT)
            trainings = EtaJobs(cluster, Path(home), daemon.policy)
            owners = users(8)
            jobs = [
                trainings.submit(
                    form, number + 100 * seed, long_s, owners[at % len(owners)], "-ooutput-%j.txt"
                )
                for at, (form, number, long_s) in enumerate(
                    lengths(count, 2 / 3 * seconds, 4 / 3 * seconds)
                )
            ]
            while cluster.run("squeue", "-h", "-o", "%A").stdout.split():
                began_s = time.monotonic()
                trainings.ask()
                time.sleep(max(0.0, every - (time.monotonic() - began_s)))
        if keep is not None:
            keep.mkdir(exist_ok=True)
            for job in jobs:
                output = cluster.work / f"output-{job.job_id}.txt"
                (keep / f"{job.form}-{job.job_id}.txt").write_bytes(output.read_bytes())
        for share in SHARES:
            found: dict[str, list[float]] = defaultdict(list)
            click.echo(f"after {share:.0%} of the run")
            for job, error, basis in trainings.errors(jobs, share):
                found[job.form].append(error)
                if not abs(error) <= NEAR:
                    click.echo(f"  job {job.job_id} {job.form:9} {error:+.0%}  {basis}")
            for form, errors in found.items():
                words = " ".join(f"{error:+4.0%}" for error in errors)
                click.echo(f"  {form:9} {words}")
            known = [abs(e) for errors in found.values() for e in errors if not isnan(e)]
            near = sum(e <= NEAR for e in known)
            click.echo(
                f"  {near} of {len(jobs)} within {NEAR:.0%}, median {np.median(known or [1]):.1%}"
            )


if __name__ == "__main__":
    main()
