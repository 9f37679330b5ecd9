"""What is to be predicted: one training job, validated when it is made."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from profiles.errors import UnknownGpuError
from profiles.gpus import Gpu, find_gpu, variants
from profiles.storage import shipped_yaml

from ..errors import JobError
from .datasets import DataSet, dataset_named
from .fabrics import fabric_of
from .frameworks import PYTORCH, framework_of
from .phases import Phase, parts_of, phases_of
from .precision import Dtype, Precision, parse_precision
from .software import (
    SHARDING,
    Era,
    Pairs,
    Software,
    date_of,
    known_options,
    optimizer_named,
    read_options,
    resolve,
)
from .words import accepted

SHARDINGS = ("ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp")
NEEDS_OWN_CORES = (Dtype.FP8, Dtype.FP4)  # no GPU emulates them
# Not an option of its own: it dates the software.
CONTAINER = "container"
SITE_PREFIX = "site:"  # of the sources that are clusters of our own
SIXTEEN_BIT = 2  # bytes
# The largest value of a field that counts something.
MOST = {k: entry["most"] for k, entry in shipped_yaml("keys.yaml").items() if "most" in entry}
MOST_EPOCHS = 1_000_000
LEGIBLE_BITS = 100  # of a number in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """A training job on one kind of GPU.

    What each field means, with the other spellings of its key, is in ``profiles/keys.yaml``.
    ``batch_size`` is in samples PER GPU and micro-step (per data-parallel rank when the model is
    split), ``global_batch_size`` of the whole optimizer step; both give ``grad_accum``. One
    replica of the model is split over ``tensor_parallel`` x ``context_parallel`` x
    ``pipeline_parallel`` GPUs; ``hsdp`` shards inside a node and replicates between nodes. The
    length is ``steps``, or ``epochs`` of ``dataset_size`` samples or of ``dataset``. ``options``
    and ``variant`` are mappings or ``k=v;k=v`` text, ``phases`` Phases or mappings. A ``trainer``
    of ``trainers.yaml`` is named where the precision is its default and not stated. ``other_gpus``
    are cards that the name given for ``gpu`` may mean as well, and ``software`` is what framework,
    date and options come to, with the defaults of their era.

    Raises JobError, naming field, value and what is expected.
    """

    model: str
    precision: Precision
    gpu: str
    gpus: int = 1
    gpus_per_node: int = 8
    batch_size: int | None = None
    global_batch_size: int | None = None
    grad_accum: int | None = None
    seq_len: int | None = None
    mean_seq_len: int | None = None
    image_size: tuple[int, ...] | None = None
    steps: int | None = None
    epochs: float | None = None
    dataset_size: int | None = None
    dataset: str | None = None
    framework: str = PYTORCH
    framework_date: float | None = None
    trainer: str = ""
    optimizer: str | None = None
    sharding: str | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    virtual_stages: int = 1
    context_parallel: int = 1
    expert_parallel: int = 1
    sequence_parallel: bool = False
    fabric: str | None = None
    options: Pairs = ()
    variant: Pairs = ()
    phases: tuple[Phase, ...] = ()
    source: str = ""
    other_gpus: tuple[str, ...] = ()
    data: DataSet | None = field(init=False, repr=False, compare=False)
    hardware: Gpu = field(init=False, repr=False, compare=False)
    software: Software = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        for name in ("model", "gpu", "framework", "source"):
            if not isinstance(getattr(self, name), str):
                raise JobError(name, getattr(self, name), "expected a name")
        if not isinstance(self.precision, Precision):
            set_(self, "precision", parse_precision(str(self.precision)))
        options = dict(_pairs(self.options))
        found = framework_of(self.framework, options.pop(CONTAINER, ""))
        set_(self, "framework", found.name)
        options = dict(found.options) | options
        if self.framework_date is None:
            set_(self, "framework_date", found.date)
        if self.optimizer is not None:
            set_(self, "optimizer", optimizer_named(str(self.optimizer)))
        for name in options.keys() & set(JOB_FIELDS) - known_options().keys():
            raise JobError("options", name, f"it is a field of its own: state {name}")
        set_(self, "options", read_options(tuple(options.items())))
        if self.sharding in (None, SHARDINGS[0]):
            set_(self, "sharding", _sharding(dict(self.options)) or self.sharding)
        set_(self, "variant", _pairs(self.variant))
        set_(self, "image_size", _image_size(self.image_size))
        set_(self, "phases", phases_of(self.phases))
        data = None if self.dataset is None else dataset_named(str(self.dataset))
        set_(self, "data", data)
        set_(self, "dataset", None if data is None else data.name)
        try:
            gpu = find_gpu(self.gpu)
        except UnknownGpuError as error:
            raise JobError("gpu", self.gpu, error.expected) from None
        if self.gpu != gpu.name:
            set_(self, "other_gpus", variants(self.gpu))
        set_(self, "gpu", gpu.name)
        set_(self, "hardware", gpu)
        fabric_of(gpu, self.fabric and str(self.fabric))  # raises where it is not known
        self._check_numbers()
        # as a field or as an option sequence parallelism means the same; alone it means nothing
        option = ("sequence_parallel", "on")
        asked = bool(self.sequence_parallel) or option in self.options
        set_(self, "sequence_parallel", asked and self.tensor_parallel > 1)
        if asked:
            set_(self, "options", tuple(sorted({**dict(self.options), **dict([option])}.items())))
        self._check_parallelism()
        dtype = self.precision.matmul_dtype
        if dtype in NEEDS_OWN_CORES and f"{dtype}_tensor" not in gpu.peak_flops:
            advice = "mixed_bf16_fp32 or mixed_fp16_fp32 run"
            expected = f"{gpu.product} has no {dtype.upper()} tensor cores; {advice}"
            raise JobError("precision", self.precision.value, expected)
        era = Era(
            model=self.model,
            framework=self.framework,
            date=date_of(self.framework_date, self.source),
            source=self.source,
            capability=gpu.compute_capability,
            sixteen_bit=self.precision.activation_dtype.bytes == SIXTEEN_BIT,
        )
        set_(self, "software", resolve(self.options, era))
        parts_of(self)  # raises where a phase is invalid

    @property
    def data_parallel(self) -> int:
        """Model replicas: GPUs over the ranks one model is split into."""
        return self.gpus // self.split

    @property
    def split(self) -> int:
        """GPUs that hold one replica together."""
        return self.tensor_parallel * self.pipeline_parallel * self.context_parallel

    @property
    def expert_split(self) -> int:
        """GPUs one expert is split over: as stated, or as other layers are where GPUs suffice."""
        both = self.expert_parallel * self.tensor_parallel
        whole = self.gpus // self.pipeline_parallel % both
        return self.software.expert_tensor_parallel or (1 if whole else self.tensor_parallel)

    @property
    def micro_steps(self) -> int:
        """Micro-steps of one optimizer step: stated, or what is usual.

        One; where a pipeline takes a global batch, one sample each, as Megatron-LM's recipes do:
        a single micro-step would leave all stages but one idle.
        """
        if self.grad_accum is not None:
            return self.grad_accum
        if self.global_batch_size is None or self.pipeline_parallel == 1:
            return 1
        return max(1, self.global_batch_size // self.data_parallel)

    @property
    def micro_batch_size(self) -> int:
        """Samples of one micro-step on one data-parallel rank."""
        if self.batch_size is not None:
            return self.batch_size
        assert self.global_batch_size is not None
        return self.global_batch_size // (self.data_parallel * self.micro_steps)

    @property
    def step_samples(self) -> int:
        """Samples of one optimizer step over all GPUs."""
        if self.global_batch_size is not None:
            return self.global_batch_size
        return self.micro_batch_size * self.micro_steps * self.data_parallel

    @property
    def packed(self) -> float:
        """Share of a sequence that one of the samples packed into it fills; 0 where not known."""
        whole, mean = self.seq_len, self.mean_seq_len
        return mean / whole if self.software.packs and whole and mean else 0.0

    @property
    def shards(self) -> str:
        """How state is sharded over the replicas: as stated, else it is not."""
        return self.sharding or SHARDINGS[0]

    @property
    def nodes(self) -> int:
        """Nodes the GPUs fill."""
        return math.ceil(self.gpus / self.gpus_per_node)

    def but(self, **changes: Any) -> Self:
        """The same job with other fields."""
        return replace(self, **({"other_gpus": ()} if "gpu" in changes else {}) | changes)

    def accumulating_more(self) -> Iterator[Self]:
        """The job of a global batch in more and more micro-steps that take it whole."""
        assert self.global_batch_size is not None
        share = self.global_batch_size // self.data_parallel
        for steps in range(self.micro_steps + 1, share + 1):
            if share % steps == 0:
                yield self.but(grad_accum=steps)

    def _check_numbers(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if value is None and name in _OPTIONAL:
                continue
            if isinstance(value, float) and value.is_integer():
                value = int(value)
                object.__setattr__(self, name, value)
            most, whole = MOST[name], isinstance(value, int) and not isinstance(value, bool)
            if not whole or not 1 <= value <= most:
                told = ... if whole and value.bit_length() > LEGIBLE_BITS else value
                raise JobError(name, told, f"expected a whole number from 1 to {most}")
        if self.epochs is not None and not _within(self.epochs, 0, MOST_EPOCHS):
            expected = f"expected a positive number, at most {MOST_EPOCHS}"
            raise JobError("epochs", self.epochs, expected)
        if self.steps is not None and self.epochs is not None:
            raise JobError("steps", self.steps, "give steps or epochs, not both")
        if self.framework_date is not None and not _within(self.framework_date, 2010, 2100):
            raise JobError("framework_date", self.framework_date, "expected a year such as 2024.5")
        if self.sharding is not None and self.sharding not in SHARDINGS:
            raise JobError("sharding", self.sharding, accepted(str(self.sharding), SHARDINGS))
        if self.gpus_per_node > self.gpus:
            object.__setattr__(self, "gpus_per_node", self.gpus)

    def _check_parallelism(self) -> None:
        if self.batch_size is None and self.global_batch_size is None:
            raise JobError("batch_size", None, "give batch_size (per GPU) or global_batch_size")
        if self.gpus % self.split:
            split = "tensor_parallel x pipeline_parallel x context_parallel"
            raise JobError("gpus", self.gpus, f"must be a multiple of {split} = {self.split}")
        if self.virtual_stages > 1 and self.pipeline_parallel == 1:
            expected = "they divide a pipeline stage: pipeline_parallel of at least 2 is needed"
            raise JobError("virtual_stages", self.virtual_stages, expected)
        if self.seq_len and self.mean_seq_len and self.mean_seq_len > self.seq_len:
            expected = f"expected at most seq_len = {self.seq_len}"
            raise JobError("mean_seq_len", self.mean_seq_len, expected)
        total, ranks = self.global_batch_size, self.data_parallel * self.micro_steps
        if total is not None and self.batch_size is not None:
            self._count_micro_steps(total, self.batch_size * self.data_parallel)
        elif total is not None and total % ranks:
            expected = f"must be a multiple of data-parallel ranks x grad_accum = {ranks}"
            raise JobError("global_batch_size", total, expected)

    def _count_micro_steps(self, total: int, samples: int) -> None:
        """Where both batches are stated, ``grad_accum`` follows; one has ``samples`` in all."""
        if total % samples:
            expected = f"must be a multiple of batch_size x data-parallel ranks = {samples}"
            raise JobError("global_batch_size", total, expected)
        if self.grad_accum not in (None, total // samples):
            expected = f"global_batch_size={total} makes it {total // samples}"
            raise JobError("grad_accum", self.grad_accum, expected)
        object.__setattr__(self, "grad_accum", total // samples)
        object.__setattr__(self, "global_batch_size", None)


# Fields that count something, and those of them that may be unstated.
_OPTIONAL = {f.name for f in fields(TrainingJob) if f.type == "int | None"}
_COUNTS = tuple(f.name for f in fields(TrainingJob) if f.type in ("int", "int | None"))
JOB_FIELDS = tuple(f.name for f in fields(TrainingJob) if f.init and f.name != "other_gpus")


def _sharding(options: Mapping[str, str]) -> str | None:
    """How options say that state is sharded, None where they say nothing."""
    zero, fsdp = options.get("zero", "0"), options.get("fsdp", "off")
    if fsdp == "hybrid_shard":
        return "hsdp"
    strategy = options.get("data_parallel_sharding_strategy")
    if strategy == "optim_grads_params" or fsdp in ("on", "full_shard"):
        return "fsdp"
    if zero != "0" or fsdp == "shard_grad_op":
        return f"zero{zero if zero != '0' else 2}"
    if options.get("use_distributed_optimizer") == "on":
        return "zero1"
    return SHARDINGS[0] if options.keys() & SHARDING else None


def parse_pairs(text: str) -> Pairs:
    """``k=v;k;k=v`` as sorted pairs; a word without ``=`` has the value ``on``."""
    items = (part.strip().partition("=") for part in text.split(";") if part.strip())
    return tuple(sorted((k.strip().lower(), _plain(v)) for k, _, v in items))


def _plain(value: object) -> str:
    text = str(value).strip()
    return {"true": "on", "false": "off"}.get(text.lower(), text) or "on"


def _within(value: object, above: float, most: float) -> bool:
    """Whether it is a number, above the one and at most the other."""
    return isinstance(value, int | float) and above < value <= most


def _pairs(value: str | Mapping[str, object] | Pairs) -> Pairs:
    if isinstance(value, str):
        return parse_pairs(value)
    if isinstance(value, Mapping):
        return tuple(sorted((str(k).lower(), _plain(v)) for k, v in value.items()))
    if not isinstance(value, tuple | list):
        raise JobError("options", value, "expected a mapping or k=v;k=v text")
    return tuple(value)


def _image_size(value: int | tuple[int, ...] | None) -> tuple[int, ...] | None:
    if value is None:
        return None
    size = (value, value) if isinstance(value, int) else tuple(value)
    if not all(isinstance(n, int) and n > 0 for n in size) or not 1 <= len(size) <= 3:
        raise JobError("image_size", value, "expected one to three positive whole numbers")
    return size
