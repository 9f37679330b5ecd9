"""What a job asks for that its price leaves out."""

from __future__ import annotations

from ...job.training_job import TrainingJob


def split_warnings(job: TrainingJob) -> tuple[str, ...]:
    """One sentence for each: states or activations moved to the host are not priced."""
    asked = {s.reason for s in job.software.settings if s.name.startswith("offloads") and s.value}
    return tuple(
        f"{reason} moves data to host memory: neither its time nor the memory it frees is counted"
        for reason in sorted(asked)
    )
