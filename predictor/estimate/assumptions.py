"""What a prediction takes for granted because the job does not say it, and what that could move."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from statistics import NormalDist
from typing import Any

from profiles.storage import shipped_yaml

from ..errors import GraphError, JobError
from ..graphs.catalog import ModelEntry, entry_of, overrides
from ..graphs.operator import Kind
from ..job.fabrics import node_of
from ..job.frameworks import PYTORCH
from ..job.precision import Precision, default_precision, runs_natively
from ..job.training_job import TrainingJob
from ..physics.job_graph import counts_examples, cuts_examples, job_graph, takes_channels_last
from ..physics.memory import as_it_fits, as_it_runs
from ..physics.parallel.stages import CORES, virtual_stages
from ..physics.step import input_s
from .fits import MARGIN

Times = Callable[[TrainingJob], float]
# An assumption that moves the total further than this carries no kill limit and no refusal.
DECISIVE_FACTOR = 2.0
# The range of an assumption is taken for the 95 % interval of what it could be.
RANGE_LEVEL = 0.975
_RANGE_DEVIATIONS = NormalDist().inv_cdf(RANGE_LEVEL)
# The mean of max(0, x), of a normal x that stays below 1 with RANGE_LEVEL.
_MEAN_OF_HALF = 1 / (math.sqrt(2 * math.pi) * _RANGE_DEVIATIONS)
# What changes a total by less than this is not worth a line.
NEGLIGIBLE = 1.02
# What options are called where what they set is off and on, if not so.
OFF_AND_ON = {"lora_targets": ("attention", "all")}
# What people compute in instead of the default of their trainer.
OTHER_PRECISIONS = (
    Precision.FP32,
    Precision.TF32,
    Precision.MIXED_FP16_FP32,
    Precision.MIXED_BF16_FP32,
)

TOO_SMALL = "not stated; the memory is too small without"
MAY_BE_TOO_SMALL = "not stated; the memory may be too small for it"

_assumed = partial(shipped_yaml, "assumed.yaml", __file__)


@dataclass(frozen=True, slots=True)
class Assumption:
    """One thing a job does not say: the ``value`` taken for it, and why.

    The total would be ``low`` to ``high`` times as long, over what it could be instead. ``length``
    marks what moves the number of steps and not the step. ``longest`` are the fields of the job
    with which it takes the longest, where they are known.
    """

    field: str
    value: str
    reason: str
    low: float
    high: float
    length: bool = False
    longest: tuple[tuple[str, Any], ...] = ()

    @property
    def centre(self) -> float:
        """How far the median moves for the card or the workers, the mean of a half normal in ln."""
        moved = self.field in ("gpu", "workers")
        return moved * (math.log(self.low) + math.log(self.high)) * _MEAN_OF_HALF

    @property
    def decisive(self) -> bool:
        """Whether it could move the total by more than a limit can rest on."""
        return max(self.high, 1 / self.low) > DECISIVE_FACTOR

    def __str__(self) -> str:
        low, high = f"x {self.low:.2g}", f"x {self.high:.2g}"
        other = "about" if low == high == "x 1" else f"{low} to {high}"
        return f"{self.field}: {self.value} is assumed ({self.reason}); otherwise {other} as long"

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        names = ("field", "value", "reason", "low", "high", "decisive")
        return {name: getattr(self, name) for name in names}


@lru_cache(maxsize=4096)
def as_priced(job: TrainingJob) -> TrainingJob:
    """A job as it runs, on examples that are as long as is likely.

    Those of a decoder that are cut lie between a short instruction with its answer and the
    sequence that they may fill: its geometric mean.
    """
    runs, least = as_it_runs(job), int(_assumed()["example_tokens"])
    whole, known = runs.seq_len or 0, job.mean_seq_len or job.software.unpadded
    if known or whole <= least or not cuts_examples(job):
        return runs
    return runs.but(mean_seq_len=round(math.sqrt(least * whole)))


def assumptions_of(
    job: TrainingJob, times_as_long: Times, *, step_s: float, measured: bool, most_gpus: int
) -> tuple[Assumption, ...]:
    """What is assumed of a job, what moves most first.

    ``times_as_long`` compares the physical step of the job in other software with its own, which is
    predicted to take ``step_s``. ``measured`` runs of the same configuration settle its software
    and its input; none has more than ``most_gpus``. Raises GraphError where the model has no graph.
    """
    entry = entry_of(job.model)
    found = [*of_length(job), *_micro_batch(job), *_stages(job, entry), *_work(job, most_gpus)]
    runs = as_priced(job)
    found += _gpu(job, times_as_long)
    found += _sharding(job, runs, entry, times_as_long)
    found += _sequence(runs, entry, times_as_long)
    found += _precision(runs, times_as_long)
    found += _packing(runs, counts_examples(job) and not measured, times_as_long)
    if not measured:
        if entry.left_out:
            reason = "the catalog lacks it; what it makes counts as tokens of the sequence"
            times = float(_assumed()["left_out_times"])
            found.append(Assumption(entry.left_out, "no time", reason, 1.0, times))
        found += () if runs.mean_seq_len == job.mean_seq_len else _examples(runs, times_as_long)
        found += [*_image(job, entry), *_software(runs, entry, times_as_long)]
        found += [*_recomputation(as_it_runs(job), entry), *_loader(job, step_s)]
        found += _fabric(runs, times_as_long)
    return ordered(found)


def ordered(found: Iterable[Assumption]) -> tuple[Assumption, ...]:
    """Each once, what moves most first, and nothing that moves nothing."""
    # Whether a job fits rests on how its state is shared, whatever that takes.
    told = [o for o in found if o.field == "sharding" or max(o.high, 1 / o.low) > NEGLIGIBLE]
    return tuple(sorted(widest(told), key=lambda one: -max(one.high, 1 / one.low)))


def decisive(found: Iterable[Assumption]) -> Assumption | None:
    """The first assumption that no limit and no refusal may rest on."""
    return next((one for one in found if one.decisive), None)


def widest(found: Iterable[Assumption]) -> tuple[Assumption, ...]:
    """Each assumption once, over the widest range that it has."""
    ranges: dict[tuple[str, str], Assumption] = {}
    for one in found:
        other = ranges.setdefault((one.field, one.value), one)
        low, high = min(one.low, other.low), max(one.high, other.high)
        long = one.length or other.length
        ranges[one.field, one.value] = replace(one, low=low, high=high, length=long)
    return tuple(ranges.values())


def widened(factor: float, level: float, found: Sequence[Assumption]) -> float:
    """A quantile's factor on the median, with what is assumed as errors of their own."""
    if not found:
        return factor
    ends = [one.high if level >= 0.5 else one.low for one in found]
    share = NormalDist().inv_cdf(level) / _RANGE_DEVIATIONS
    assumed = math.hypot(*(share * math.log(end) for end in ends))
    own = math.log(factor)
    if own * (level - 0.5) <= 0:  # near the median, where errors have a bias: they add up
        return math.exp(own + math.copysign(assumed, level - 0.5))
    return math.exp(math.copysign(math.hypot(own, assumed), level - 0.5))


def centred(factor: float, level: float, centre: float) -> float:
    """A quantile's factor, of a median that moves by ``centre`` in ln units: the ends stay."""
    return factor * math.exp(-centre * abs(NormalDist().inv_cdf(level)) / _RANGE_DEVIATIONS)


def of_length(job: TrainingJob) -> Iterator[Assumption]:
    """What is assumed of the length that a job states."""
    entry = entry_of(job.model)
    if job.software.evaluates and job.epochs is not None:
        reason, most = "one after each epoch is stated", _assumed()["evaluation_times"]
        yield Assumption("evaluation", "no time", reason, 1.0, most, length=True)
    packs = job.epochs is not None and job.software.packs
    if packs and (runs := as_priced(job)).packed != job.packed:
        yield from _examples(runs, lambda other: other.packed / runs.packed, length=True)
    if job.epochs is None or job.dataset_size is not None:
        return
    if job.data is not None and job.data.tokens is not None:
        value, reason = f"{job.data.tokens:,} tokens an epoch", "in the vocabulary of its source"
        low, high = _assumed()["tokens_times"]
        yield Assumption("dataset", value, reason, low, high, length=True)
    if job.data is not None or entry.dataset_size is None:
        return
    least, most = _assumed()["dataset_size"]
    size = entry.dataset_size
    value = f"{size:,} samples an epoch"
    reason = f"{entry.name} is mostly trained on so many; no data set is named"
    ends = min(1.0, least / size), max(1.0, most / size)
    yield Assumption("dataset_size", value, reason, *ends, length=True)


def _sequence(job: TrainingJob, entry: ModelEntry, times_as_long: Times) -> Iterator[Assumption]:
    """Sequences a few times as long or short; beside sound of one length text is a part alone."""
    if "seq_len" in entry.fixed:
        return
    if job.seq_len is None and job.mean_seq_len is None and entry.seq_len is not None:
        times = float(_assumed()["seq_len_times"])
        reason = f"usual for {entry.name}; no sequence length is stated"
        ends = 1 / times, times
        if entry.longest is not None:
            short = job.but(seq_len=round(entry.seq_len / times))
            ends = min(1.0, *_times(short, times_as_long), 1.0), entry.longest / entry.seq_len
        yield Assumption("seq_len", f"{entry.seq_len} tokens", reason, *ends)


def _packing(job: TrainingJob, counted: bool, times_as_long: Times) -> Iterator[Assumption]:
    """Packed samples that attend to themselves alone; counted ones where text is cut evenly."""
    if job.mean_seq_len or not (job.software.packs or counted):
        return
    reason = "packed samples may attend to themselves alone; their length is not stated"
    short = int(_assumed()["packed_tokens"])
    if not job.software.packs:
        reason, short = "not stated; samples may be shorter", int(_assumed()["example_tokens"])
    if (job.seq_len or entry_of(job.model).seq_len or 0) > short:
        for times in _times(job.but(mean_seq_len=short), times_as_long):
            yield Assumption("mean_seq_len", "the whole sequence", reason, times, 1.0)


def _examples(job: TrainingJob, times: Times, *, length: bool = False) -> Iterator[Assumption]:
    """How long examples are, between short ones and those that fill the sequence."""
    least, value = int(_assumed()["example_tokens"]), f"{job.mean_seq_len} tokens an example"
    reason = f"not stated; between {least} and {job.seq_len}"
    ends = [t for n in (least, job.seq_len) for t in _times(job.but(mean_seq_len=n), times)]
    yield Assumption("mean_seq_len", value, reason, min(ends), max(ends), length=length)


def _work(job: TrainingJob, most_gpus: int) -> Iterator[Assumption]:
    """What many GPUs, too little memory, a resumed, evaluated or frozen training and others add."""
    software, assumed = job.software, _assumed()
    reason, runs = TOO_SMALL, as_it_runs(job)
    if runs.grad_accum != job.grad_accum:  # or recomputes, a third more
        yield Assumption("grad_accum", str(runs.grad_accum), reason, 1.0, 4 / 3)
    elif runs.options != job.options and runs.software.base_bits == software.base_bits:
        # a forward pass more, of three or four
        least = 2 / 3 if software.trains_adapters else 3 / 4
        yield Assumption("act_ckpt", "on", reason, least, 1.0)
    if job.gpus > most_gpus:  # how communication grows beyond the largest run is a guess
        times = (job.gpus / most_gpus) ** float(assumed["growth_beyond_measured"])
        reason = f"no measured run has more than {most_gpus:,}"
        yield Assumption("gpus", f"{job.gpus:,} scale as fewer do", reason, 1.0, times)
    if software.resumed:
        reason, least = "it resumes, and no epoch is stated", assumed["resumed_share"]
        yield Assumption("start_epoch", "the first", reason, least, 1.0, length=True)
    if software.frozen == "part" and not software.trains_adapters:
        # A step without any gradient of weights takes no less than its forward pass, a third.
        reason = "which part of the network is frozen is not stated"
        yield Assumption("frozen", "none of it", reason, 1 / 3, 1.0)
    if software.objective:  # a teacher, a reference or samples that the network makes itself
        reason = f"{software.objective} runs other networks, whose work is not known"
        times = float(assumed["objective_times"])
        yield Assumption("objective", "this network alone", reason, 1.0, times)


def _recomputation(job: TrainingJob, entry: ModelEntry) -> Iterator[Assumption]:
    """Recipes of PyTorch compute activations of large decoders and of what makes images again."""
    least = {"gpt": float(_assumed()["recomputed_parameters"]), "generative": 0.0}
    large = (entry.parameters or 0) >= least.get(entry.group, math.inf)
    leaner = as_it_fits(job, 1 - MARGIN)
    tight = leaner.software.recompute != job.software.recompute
    setting = job.software.setting("recompute")
    if setting is not None and not setting.stated:
        yield Assumption("act_ckpt", "on", f"not stated; {setting.reason}", 2 / 3, 1.0)
    elif (tight or (large and job.framework == PYTORCH)) and setting is None:
        reason = "not stated; many recipes compute them again, to save memory"
        times = 3 / 2 if job.software.trains_adapters else 4 / 3
        yield Assumption("act_ckpt", "off", MAY_BE_TOO_SMALL if tight else reason, 1.0, times)
    elif leaner.grad_accum != job.grad_accum:
        yield Assumption("grad_accum", str(job.micro_steps), MAY_BE_TOO_SMALL, 1.0, 4 / 3)


def _loader(job: TrainingJob, step_s: float) -> Iterator[Assumption]:
    """That images come as fast as GPUs of one node take them, which as many workers may not do."""
    if job.software.loader_workers is None and job.gpus_per_node > 1:
        usual, group = shipped_yaml("host.yaml")["usual_workers"], entry_of(job.model).group
        workers = usual.get(group) or usual.get(job.hardware.architecture, usual["later"])
        times = input_s(job, workers) / step_s
        reason = f"no workers are stated; {workers} for each GPU decode no more"
        yield Assumption("workers", "as many as it takes", reason, 1.0, max(1.0, times))


def _image(job: TrainingJob, entry: ModelEntry) -> Iterator[Assumption]:
    if job.image_size is None and entry.image_size and "image_size" not in entry.fixed:
        least, most = _assumed()["image_side_times"]
        size, axes = "x".join(map(str, entry.image_size)), len(entry.image_size)
        reason = f"usual for {entry.name}; no image size is stated"
        if job.data is not None and job.data.side is not None:
            reason = f"usual for {entry.name}; images of {job.data.name} have {job.data.side}"
            least = min(least, job.data.side / max(entry.image_size))
        yield Assumption("image_size", size, reason, least**axes, most**axes)


def _micro_batch(job: TrainingJob) -> Iterator[Assumption]:
    """Larger micro-batches make the pipeline's bubble larger, and each stage's work denser."""
    if job.batch_size is not None or job.grad_accum is not None or job.pipeline_parallel == 1:
        return
    others, steps = job.pipeline_parallel - 1, job.micro_steps
    most = min(steps, int(_assumed()["most_micro_batch"]))
    slower = (1 + others * most / steps) / (1 + others / steps)
    reason = "usual under pipeline parallelism; only the global batch is stated"
    yield Assumption("batch_size", "1 per micro-step", reason, 1 / slower, slower)


def _stages(job: TrainingJob, entry: ModelEntry) -> Iterator[Assumption]:
    """Layers that do not divide evenly are priced as if they did; one stage may hold one more."""
    stated = dict(overrides(entry, job.variant)).get("layers", entry.architecture.get("layers"))
    layers, stages = stated if isinstance(stated, int) else 0, job.pipeline_parallel
    even = not layers or layers % (stages * virtual_stages(job, layers)) == 0
    if stages == 1 or even or job.software.layers_by_hand:
        return
    each = layers / stages
    value = f"{each:.3g} of {layers} layers on each stage"
    reason = f"they do not divide evenly into {stages} stages; no split is stated"
    yield Assumption("pipeline_parallel", value, reason, 1.0, 1 + 1 / each)


def _gpu(job: TrainingJob, times_as_long: Times) -> Iterator[Assumption]:
    """Which of the cards that its name may mean."""
    times = [1.0]
    for other in job.other_gpus:
        with suppress(GraphError, JobError):
            times.append(times_as_long(as_priced(job.but(gpu=other))))
    reason = f"not stated; it could be {' or '.join(job.other_gpus)}"
    yield Assumption("gpu", job.gpu, reason, min(times), max(times))


def _fabric(job: TrainingJob, times_as_long: Times) -> Iterator[Assumption]:
    """A node of a maker's own design has an adapter for each GPU; one in a cloud may have one."""
    if job.fabric is None and job.gpus > job.gpus_per_node:
        usual, least = node_of(job.hardware.name).fabric, str(_assumed()["least_fabric"])
        for times in _times(job.but(fabric=least), times_as_long):
            reason = f"usual for such nodes, none is stated; it could be {least}"
            yield Assumption("fabric", f"{usual.rails}x {usual.name}", reason, 1.0, max(1.0, times))


def _sharding(
    job: TrainingJob, runs: TrainingJob, entry: ModelEntry, times_as_long: Times
) -> Iterator[Assumption]:
    """Other ways to share the state, where one is needed or usual."""
    ways: tuple[str, ...] = ()
    if runs.software.base_bits != job.software.base_bits:
        for instead in _times(job.but(sharding="fsdp"), times_as_long):
            why = f"{TOO_SMALL}; it could be fsdp"
            yield Assumption("quantized_base", "4bit", why, min(1.0, instead), max(1.0, instead))
    if runs.sharding is None and (way := as_it_fits(job, 1 - MARGIN).sharding):
        ways, reason = (way,), MAY_BE_TOO_SMALL
    elif runs.sharding is None and runs.data_parallel > 1 and entry.group == "gpt":
        ways, reason = ("fsdp",), "not stated; it could be fsdp"
    elif runs.sharding is not None and runs.sharding != job.sharding:
        ways = ("hsdp", "zero2") if runs.sharding == "fsdp" else ("ddp",)
        reason = "not stated; NeMo's recipes share it" if job.framework == "nemo" else TOO_SMALL
    if ways:
        times = [1.0, *(t for way in ways for t in _times(runs.but(sharding=way), times_as_long))]
        yield Assumption("sharding", runs.shards, reason, min(times), max(times))


def _precision(job: TrainingJob, times_as_long: Times) -> Iterator[Assumption]:
    """The default of a trainer, priced as the other choices that people make."""
    if not job.trainer:
        return
    times = {job.precision: 1.0}
    for other in OTHER_PRECISIONS:
        if other is Precision.FP32 or runs_natively(job.hardware, other):
            for one in _times(job.but(precision=other, trainer=""), times_as_long):
                times[other] = one
    reason = f"not stated; {default_precision(job.trainer, job.hardware)[1]}"
    ends, longest = (min(times.values()), max(times.values())), max(times, key=times.__getitem__)
    slow = ("precision", longest), ("trainer", "")
    yield Assumption("precision", job.precision.value, reason, *ends, longest=slow)


def _times(other: TrainingJob, times_as_long: Times) -> Iterator[float]:
    """How many times as long a step of another job takes; nothing where it has no price."""
    with suppress(GraphError, JobError):
        yield times_as_long(other)


def _software(job: TrainingJob, entry: ModelEntry, times_as_long: Times) -> Iterator[Assumption]:
    """Defaults of the era that this network feels, priced as the other choice."""
    kinds = {operator.kind for operator in job_graph(job, entry).operators}
    tf32 = job.precision is Precision.FP32 and runs_natively(job.hardware, Precision.TF32)
    felt = {
        "tf32": ("tf32_products", tf32),
        "flash_attention": ("fused_attention", bool(kinds & CORES)),
        "channels_last": ("channels_last", Kind.CONV in kinds and takes_channels_last(job)),
        "lora_targets": ("adapts_all", job.software.trains_adapters and bool(kinds & CORES)),
    }
    for option, (name, matters) in felt.items():
        setting, taken = job.software.setting(name), getattr(job.software, name)
        if not matters or (setting is not None and setting.stated):
            continue
        words = OFF_AND_ON.get(option, ("off", "on"))
        value, instead = words[taken], words[not taken]
        other = job.but(options=(*job.options, (option, instead)))
        for times in _times(other, times_as_long):
            reason = "not stated" if setting is None else f"not stated; {setting.reason}"
            ends = min(1.0, times), max(1.0, times)
            slow = ((option, instead if times > 1 else value),)
            yield Assumption(option, value, reason, *ends, longest=(("options", slow),))
