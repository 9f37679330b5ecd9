"""What a job asks for that its price leaves out."""

from __future__ import annotations

from ...job.training_job import TrainingJob

OFFLOADS = (
    "act_cpu_offload",
    "cpu_offload",
    "cpu_offloading",
    "offload",
    "offload_optimizer",
    "offload_param",
    "optimizer_cpu_offload",
    "optimizer_offload",
    "param_offload",
    "fine_grained_activation_offloading",
    "zero_offload",
)
OFF = ("", "off", "none", "no", "0")


def split_warnings(job: TrainingJob) -> tuple[str, ...]:
    """One sentence for each: states or activations moved to the host are not priced."""
    asked = [name for name in OFFLOADS if job.option(name).lower() not in OFF]
    return tuple(
        f"{name} moves data to host memory: neither its time nor the memory it frees is counted"
        for name in asked
    )
