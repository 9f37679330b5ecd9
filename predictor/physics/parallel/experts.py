"""Which part of a GPU's weights are experts'."""

from __future__ import annotations

from dataclasses import replace

from ...graphs.catalog import ModelEntry, graph_of, overrides
from ...job.training_job import TrainingJob
from ..job_graph import workload


def expert_share(job: TrainingJob, entry: ModelEntry) -> float:
    """Share of a GPU's weights that are experts', from the graph with and without the spread."""
    spread = job.expert_parallel
    if spread == 1:
        return 0.0
    work, changes = workload(job, entry), overrides(entry, job.variant)
    here = graph_of(entry.name, changes, work).parameters
    alone = graph_of(entry.name, changes, replace(work, expert_parallel=1)).parameters
    return max(0.0, (alone - here) / (spread - 1) / here)
