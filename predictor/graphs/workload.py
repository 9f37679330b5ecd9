"""What a model builder is told about the micro-batch."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import GraphError


@dataclass(frozen=True, slots=True)
class Workload:
    """One micro-batch on one GPU.

    ``batch_size`` is in samples; ``seq_len`` in tokens (or frames) per sample; ``image_size`` in
    pixels or voxels per axis, ``(height, width)`` or ``(depth, height, width)``.
    ``flash_attention`` fuses attention into one operator, ``fused_layers`` the pointwise kernels of
    a transformer layer. ``tensor_parallel`` divides its heads and feed-forward widths,
    ``sequence_parallel`` also the tokens its norms and residuals see. ``seq_len`` is the part of
    one of ``context_parallel`` GPUs, whose queries attend to the keys of all. ``expert_parallel``
    GPUs share the experts of a mixture.
    """

    batch_size: int
    seq_len: int | None = None
    image_size: tuple[int, ...] | None = None
    flash_attention: bool = False
    fused_layers: bool = False
    tensor_parallel: int = 1
    sequence_parallel: bool = False
    context_parallel: int = 1
    expert_parallel: int = 1

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
