"""One module a family of networks; each registers its builders under the names the catalog uses.

A builder is told the ``Workload`` of one micro-batch; it is imported when it is first asked for.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
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
_SIZES: dict[str, type] = {}

# Modules that register several families; any other family has a module of its name. They are
# imported on first use only.
_MODULES = {
    "classifiers": ("alexnet", "vgg", "vit"),
    "encoders": ("bert", "deberta", "electra"),
    "encoder_decoder": ("gnmt", "seq2seq", "t5"),
    "generative": ("cyclegan", "diffusion", "dit", "video_dit"),
    "imagen": ("imagen_efficient",),
    "inverted": ("efficientnet", "insightface", "mobilefacenet"),
    "one_stage": ("efficientdet", "retinanet", "ssd", "yolo"),
    "recommendation": ("autoencoder", "dlrm", "ncf", "sim", "wide_and_deep"),
    "science": ("moflow", "rgat", "se3", "tft"),
    "segmentation": ("deeplab", "nnunet", "unet", "unet3plus", "vnet"),
    "speech": ("jasper", "rnnt", "wav2vec2"),
    "stored": ("recorded", "traced"),
    "voices": ("fastpitch", "hifigan", "tacotron2", "waveglow"),
    "words": ("lstm_lm", "transformer_xl"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def family(name: str, sizes: type | None = None) -> Callable[[F], F]:
    """Register ``build(b: GraphBuilder, work: Workload, **architecture)`` as family ``name``.

    ``sizes`` is the dataclass whose fields a builder takes as ``**``.
    """

    def register(build: F) -> F:
        _BUILDERS[name] = build
        if sizes:
            _SIZES[name] = sizes
        return build

    return register


def builder_of(name: str) -> Callable[..., None]:
    """The builder registered for a family; raises GraphError for an unknown one."""
    if name not in _BUILDERS:
        with suppress(ModuleNotFoundError):
            importlib.import_module(f"{__package__}.{_MODULE_OF.get(name, name)}")
    try:
        return _BUILDERS[name]
    except KeyError:
        raise GraphError(f"no operator graph for family {name!r}") from None


def arguments_of(name: str) -> Mapping[str, str]:
    """Keyword arguments of a family's builder -> their annotation; raises as ``builder_of``."""
    parameters = inspect.signature(builder_of(name)).parameters.values()
    own = {p.name: str(p.annotation) for p in parameters if p.kind is p.KEYWORD_ONLY}
    taken = fields(_SIZES[name]) if name in _SIZES else ()
    return {field.name: str(field.type) for field in taken} | own
