"""Memory of a training job on one GPU, by part."""

from .model import Memory, memory_of, stage_memory

__all__ = ["Memory", "memory_of", "stage_memory"]
