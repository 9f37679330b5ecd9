"""Memory of a training job on one GPU, by part."""

from .model import Memory, as_it_fits, as_it_runs, memory_of, stage_memory

__all__ = ["Memory", "as_it_fits", "as_it_runs", "memory_of", "stage_memory"]
