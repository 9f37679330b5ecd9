"""What a model builder is told about the micro-batch."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import GraphError


@dataclass(frozen=True, slots=True)
class Workload:
    """One micro-batch on one GPU.

    ``batch_size`` is in samples; ``seq_len`` in tokens (or frames) per sample; ``image_size`` in
    pixels or voxels per axis, ``(height, width)`` or ``(depth, height, width)``.
    ``flash_attention`` fuses attention into one operator. ``tensor_parallel`` divides the heads
    and feed-forward widths of transformer layers, ``pipeline_parallel`` their number.
    """

    batch_size: int
    seq_len: int | None = None
    image_size: tuple[int, ...] | None = None
    flash_attention: bool = False
    tensor_parallel: int = 1
    pipeline_parallel: int = 1

    @property
    def image(self) -> tuple[int, ...]:
        """The image size; raises GraphError where the job has none."""
        if self.image_size is None:
            raise GraphError("this model needs image_size")
        return self.image_size

    @property
    def tokens(self) -> int:
        """The sequence length; raises GraphError where the job has none."""
        if self.seq_len is None:
            raise GraphError("this model needs seq_len")
        return self.seq_len
