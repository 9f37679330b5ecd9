"""The jobs of a file in the Standard Workload Format as a workload to replay."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

from ..history.swf import SwfFile, SwfJob, check_processors_per_gpu
from ..replay import Pool
from .workload import LimitBounds, PastJob, Workload, workload_of

POOL = "cluster"


def workload_of_swf(
    file: SwfFile, *, processors_per_gpu: float = 1.0, pool: Pool | None = None, bounds: LimitBounds
) -> Workload:
    """The jobs on one pool, by default the machine of the header.

    A job's GPUs are its processors over ``processors_per_gpu``, rounded up. A job that was
    cancelled before it ran, and a part of a job that has a summary line, are skipped.
    """
    check_processors_per_gpu(processors_per_gpu)
    skipped = Counter(dict(file.malformed))
    jobs = []
    for job in file.jobs:
        found = _past(job, processors_per_gpu, file.start_s)
        if isinstance(found, str):
            skipped[found] += 1
        else:
            jobs.append(found)
    if pool is not None:
        pool = replace(pool, name=POOL)
    elif file.processors is not None:
        pool = Pool(name=POOL, gpus=max(1, math.floor(file.processors / processors_per_gpu)))
    pools = () if pool is None else (pool,)
    return workload_of(jobs, pools=pools, bounds=bounds, skipped=skipped)


def _past(job: SwfJob, processors_per_gpu: float, origin_s: float) -> PastJob | str:
    if job.run_s is None:
        return "never ran"
    if job.processors is None:
        return "no number of processors"
    return PastJob(
        submit_s=origin_s + job.submit_s,
        start_s=origin_s + job.submit_s + (job.wait_s or 0.0),
        run_s=job.run_s,
        gpus=math.ceil(job.processors / processors_per_gpu),
        pool=POOL,
        limit_s=job.limit_s,
        censored=job.limit_s is not None and job.run_s >= job.limit_s,
    )
