"""The two yardsticks that learn nothing end to end: the paper's method, and plain physics.

arXiv 2604.16145: a step is the sum of its operators at their actual number format, plus message
volume over link bandwidth, plus the pipeline bubble. No host time, no overlap, no correction.
"""

from __future__ import annotations

from ..graphs.catalog import entry_of
from ..job.training_job import TrainingJob
from ..physics.job_graph import job_graph
from ..physics.step import StepModel


def paper_step_s(steps: StepModel, job: TrainingJob) -> float:
    """Seconds of one optimizer step by the method of the paper."""
    gpu = job.hardware
    graph = job_graph(job, entry_of(job.model))
    micro_step_s = float(steps.work(job, graph).seconds.sum()) / job.pipeline_parallel
    compute_s = micro_step_s * job.micro_steps
    bubble = (job.pipeline_parallel - 1) / job.micro_steps
    ranks = job.data_parallel
    dense = (graph.trainable_parameters - graph.sparse_parameters) / job.pipeline_parallel
    element = 4 if job.precision.mixed else job.precision.activation_dtype.bytes
    volume = 2 * (ranks - 1) / ranks * dense * element
    return compute_s * (1 + bubble) + volume / steps.collectives.link_bytes_per_s(
        gpu, job.nodes, job.fabric
    )
