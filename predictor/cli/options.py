"""The options that describe a training job, and the job they make."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ..errors import JobError

if TYPE_CHECKING:
    from ..graphs.catalog import ModelEntry
    from ..job.phases import Phase
    from ..job.training_job import TrainingJob

Decorator = Callable[[Any], Any]

SHARDINGS = "ddp, zero1, zero2, zero3, fsdp or hsdp"
_SIZE = re.compile(r"\d+(x\d+){0,2}")

_GPUS = click.option("--gpus", type=int, default=1, show_default=True, help="GPUs of the job.")
# In the order of the help text; all but the GPU and the precision, which `compare` repeats.
_OPTIONS = (
    click.option(
        "--gpus-per-node", type=int, default=8, show_default=True, help="GPUs in one node."
    ),
    click.option(
        "--batch-size", type=int, help="Samples per GPU and micro-step (this or the global one)."
    ),
    click.option(
        "--global-batch-size", type=int, help="Samples of one optimizer step over all GPUs."
    ),
    click.option(
        "--grad-accum",
        type=int,
        default=1,
        show_default=True,
        help="Micro-steps in one optimizer step.",
    ),
    click.option("--seq-len", type=int, help="Tokens of one sample  [default: of the model]"),
    click.option(
        "--mean-seq-len",
        type=int,
        help="Tokens of one sample without padding, where batches are packed or binned.",
    ),
    click.option(
        "--image-size", metavar="H[xW[xD]]", help="Pixels or voxels  [default: of the model]"
    ),
    click.option("--steps", type=int, help="Length: optimizer steps."),
    click.option("--epochs", type=float, help="Length: epochs."),
    click.option("--dataset-size", type=int, help="Samples of one epoch  [default: of the model]"),
    click.option(
        "--framework",
        default="pytorch",
        show_default=True,
        help='Name, also with a version: "pytorch 2.3".',
    ),
    click.option("--optimizer", help="Name, such as adamw  [default: of the model]"),
    click.option("--sharding", default="ddp", show_default=True, help=f"{SHARDINGS}."),
    click.option(
        "--tensor-parallel",
        type=int,
        default=1,
        show_default=True,
        help="GPUs that split every layer.",
    ),
    click.option(
        "--pipeline-parallel",
        type=int,
        default=1,
        show_default=True,
        help="GPUs that split the layers among them.",
    ),
    click.option(
        "--virtual-stages",
        type=int,
        default=1,
        show_default=True,
        help="Chunks of layers of each pipeline stage (interleaved schedule).",
    ),
    click.option(
        "--context-parallel",
        type=int,
        default=1,
        show_default=True,
        help="GPUs that split the sequence.",
    ),
    click.option(
        "--expert-parallel",
        type=int,
        default=1,
        show_default=True,
        help="GPUs that share the experts of a mixture.",
    ),
    click.option(
        "--sequence-parallel", is_flag=True, help="Tensor parallelism splits norms by tokens too."
    ),
    click.option(
        "--fabric", help="Network between nodes: 4x ib-hdr, 25GbE  [default: usual for the GPU]"
    ),
    click.option(
        "--option",
        "options",
        multiple=True,
        metavar="K=V",
        help="What else changes the run: xla=on, channels_last=on, act_ckpt=on; repeatable.",
    ),
    click.option(
        "--variant",
        multiple=True,
        metavar="K=V",
        help="What else defines the network: layers=24, hidden=1024; repeatable.",
    ),
    click.option(
        "--phase",
        "phases",
        multiple=True,
        metavar="K=V,...",
        help="A phase, in their order: steps, epochs or a share of them, and what else it is: "
        "share=0.9,precision=fp16; repeatable.",
    ),
    click.option("--source", default="", help="Site whose measured runs count as one's own."),
)


def job_options(command: Any) -> Any:
    """Adds every option of a job but ``--gpu`` and ``--precision``."""
    return _GPUS(job_options_but_gpus(command))


def job_options_but_gpus(command: Any) -> Any:
    """Adds the options of a job that do not say on which GPUs it runs."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def job_of(model: str, precision: str, gpu: str, fields: Mapping[str, Any]) -> TrainingJob:
    """The job that the values of ``job_options`` describe; raises JobError."""
    from ..graphs.catalog import entry_of
    from ..job.frameworks import parse_framework
    from ..job.phases import with_first
    from ..job.precision import parse_precision
    from ..job.training_job import TrainingJob

    entry = entry_of(model)
    stated = dict(fields) | {"precision": parse_precision(precision)}
    options = pairs("option", stated.pop("options"))
    variant = pairs("variant", stated.pop("variant"))
    stated["phases"] = phases(stated["phases"])
    size = image_size(stated.pop("image_size"), entry)
    framework = parse_framework(stated.pop("framework"), ";".join(map("=".join, options)))
    return TrainingJob(
        model=entry.name,
        gpu=gpu,
        image_size=size,
        framework=framework.name,
        framework_date=framework.date,
        options=options,
        variant=variant,
        **with_first(stated),
    )


def phases(texts: Sequence[str]) -> tuple[Phase, ...]:
    """Phases in the order of their options; raises JobError."""
    from ..identify.phase_text import parse_phases

    return parse_phases(";".join(texts)) if texts else ()


def pairs(field: str, texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """``k=v`` texts as sorted pairs; a word without ``=`` is switched on. Raises JobError."""
    from ..job.training_job import parse_pairs

    for text in texts:
        if not text.partition("=")[0].strip():
            raise JobError(field, text, "key=value is accepted")
    return parse_pairs(";".join(texts))


def image_size(text: str | None, entry: ModelEntry) -> tuple[int, ...] | None:
    """``H``, ``HxW`` or ``HxWxD``; one number stands for all axes of the model."""
    if text is None:
        return None
    if not _SIZE.fullmatch(text):
        raise JobError("image_size", text, "H, HxW or HxWxD in whole numbers is accepted")
    axes = tuple(int(n) for n in text.split("x"))
    usual = entry.image_size
    if usual is None:
        raise JobError("image_size", text, f"{entry.name} takes no images; leave it out")
    if len(axes) == 1:
        return axes * len(usual)
    if len(axes) != len(usual):
        raise JobError("image_size", text, f"{entry.name} has {len(usual)} axes")
    return axes
