"""One module a family of networks; each registers its builders under the names the catalog uses.

A builder is told the ``Workload`` of one micro-batch; it is imported when it is first asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ...errors import GraphError


@dataclass(frozen=True, slots=True)
class Workload:
    """One micro-batch on one GPU.

    ``batch_size`` is in samples; ``seq_len`` in tokens (or frames) per sample; ``image_size`` in
    pixels or voxels per axis, ``(height, width)`` or ``(depth, height, width)``.
    ``flash_attention`` fuses attention into one operator, ``fused_layers`` the pointwise kernels of
    a transformer layer. ``tensor_parallel`` divides its heads and feed-forward widths,
    ``sequence_parallel`` also the tokens its norms and residuals see. ``seq_len`` is the part of
    one of ``context_parallel`` GPUs, whose queries attend to the keys of all. ``expert_parallel``
    GPUs share the experts of a mixture, whose products one launch starts if ``grouped_experts``.
    Adapters of ``adapter_rank`` train alone, or where it is ``frozen`` the head.
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
    adapter_rank: int = 0
    frozen: bool = False
    grouped_experts: bool = False

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


F = TypeVar("F", bound=Callable[..., None])

_BUILDERS: dict[str, Callable[..., None]] = {}

# family name -> module under ``families`` that registers it; imported on first use only
_MODULES: dict[str, str] = {
    "mobilefacenet": "insightface",
    "video_dit": "dit",
    "imagen_efficient": "imagen",
}


def family(name: str) -> Callable[[F], F]:
    """Register ``build(b: GraphBuilder, work: Workload, **architecture)`` as family ``name``."""

    def register(build: F) -> F:
        _BUILDERS[name] = build
        return build

    return register


def builder_of(name: str) -> Callable[..., None]:
    """The builder registered for a family; raises GraphError for an unknown one."""
    if name not in _BUILDERS:
        module = _MODULES.get(name, name)
        try:
            importlib.import_module(f"{__package__}.{module}")
        except ModuleNotFoundError as error:
            raise GraphError(f"no operator graph for family {name!r}") from error
    try:
        return _BUILDERS[name]
    except KeyError:
        raise GraphError(f"no operator graph for family {name!r}") from None
