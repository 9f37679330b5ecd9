"""The software of a job: words of its options, and defaults, resolved once to typed fields.

The words and the defaults of each era are in ``profiles/software.yaml``; optimizers, by the names
people call them and with what their step costs, in ``optimizers.yaml``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from typing import Any, NamedTuple

from profiles.storage import shipped_yaml

from ..errors import JobError
from .words import accepted, key_of, nearest

Pairs = tuple[tuple[str, str], ...]

# What people write for yes and no.
SWITCH = {
    "on": ("true", "yes", "1", "enabled", "enable"),
    "off": ("false", "no", "0", "none", "disabled", "disable"),
}
TRACED = "@"  # in the name of a traced network: the optimizer it was traced with
GIVEN = "given"  # of `sets`: the value as it is stated
# Software of no stated date is taken for this: as new as the newest that rules and tables know.
TODAY = 2026.0
RECORDED = "profiles/measurements"  # where words stand that no price knows
# Those that say how state is sharded.
SHARDING = {"fsdp", "zero", "data_parallel_sharding_strategy", "use_distributed_optimizer"}
# Rank of adapters in the recipes of Hugging Face.
USUAL_RANK = 16
CONTRADICTION = "they contradict each other: leave one out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """What runs a training step, as far as its time and memory depend on it.

    ``framework`` and ``date`` (year and part) choose the defaults. ``compiled`` steps are fused and
    cost the host less, ``captured`` ones next to nothing; ``fused_kernels`` fuse pointwise work
    alone. A kernel runs for each operation of GELU and layer norm where one ``spells_out``, for
    each cast of autocast where it ``casts_one_by_one``, and of an update that is no
    ``fused_update``. ``one_process`` launches the work of every GPU in turn. ``recompute`` is
    ``nothing``, ``attention`` or ``layers``, the latter without what no gradient reads where
    ``recompute_ends_early``. ``frozen`` is nothing, ``backbone`` (all but the last layer) or
    ``part``, ``objective`` nothing, ``distillation`` or ``preference``. A ``resumed`` one goes on
    from a checkpoint, one that ``evaluates`` does so after each epoch.
    ``half_weights`` (apex O2, DeepSpeed) are weights in the lower format beside FP32 masters. What
    is None was not stated. ``settings`` say where each field comes from. ``older_attention`` is a
    kernel made for the generation before.
    What is FP32 may be multiplied in TF32 (``tf32_products``, ``tf32_convolutions``). Of networks
    with channels first an ``older_cudnn`` copies the tensors of 1x1 convolutions too. One that
    ``sums_columns`` leaves the gradients of a layer norm's weights to few SMs.
    """

    framework: str
    date: float
    fused_attention: bool = False
    older_attention: bool = False
    megatron_core: bool = False
    compiled: bool = False
    fused_kernels: bool = False
    spells_out: bool = False
    casts_one_by_one: bool = False
    scores_every_token: bool = False
    captured: bool = False
    tf32_products: bool = False
    tf32_convolutions: bool = False
    older_cudnn: bool = True
    sums_columns: bool = False
    channels_last: bool = False
    recompute: str = "nothing"
    recompute_modules: str = ""
    recompute_ends_early: bool = False
    half_weights: bool = False
    reduces_in_full: bool = False
    unpadded: bool | str = False
    packs: bool = False
    one_process: bool = False
    updates: bool = True
    fused_update: bool = True
    overlaps_gradients: bool = True
    overlaps_weights: bool = True
    overlaps_tensor_messages: bool = False
    overlaps_expert_messages: bool = False
    sends_tokens_once: bool = False
    grouped_experts: bool = False
    fused_experts: bool = False
    embedding_is_layer: bool = False
    loss_is_layer: bool = False
    first_stage_layers: int | None = None
    last_stage_layers: int | None = None
    stage_layout: str = ""
    chunks_per_stage: int | None = None
    layers_per_chunk: int | None = None
    micro_batches_in_a_row: int | None = None
    optimizer_copies: int = 1
    expert_tensor_parallel: int | None = None
    data_outermost: bool = False
    offloads_activations: bool = False
    offloads_optimizer: bool = False
    offloads_weights: bool = False
    adapters: bool = False
    adapter_rank: int | None = None
    adapts_all: bool = False
    base_bits: int | None = None
    frozen: str = ""
    objective: str = ""
    loader_workers: int | None = None
    decodes_in_workers: bool = True
    resumed: bool = False
    evaluates: bool = False
    settings: tuple[Setting, ...] = ()

    @property
    def trains_adapters(self) -> bool:
        """Whether adapters alone are trained."""
        return self.adapters or self.adapter_rank is not None or self.base_bits is not None

    @property
    def rank(self) -> int:
        """Rank of the adapters that are trained: stated, or as most recipes have it; else 0."""
        return (self.adapter_rank or USUAL_RANK) if self.trains_adapters else 0

    @property
    def layers_by_hand(self) -> bool:
        """Whether the layers of pipeline stages are placed otherwise than evenly."""
        ends = self.first_stage_layers or self.last_stage_layers
        return bool(ends or self.stage_layout or self.embedding_is_layer or self.loss_is_layer)

    def setting(self, name: str) -> Setting | None:
        """Where a field comes from; None where nothing but the record itself fixes it."""
        return next((s for s in self.settings if s.name == name), None)


class Setting(NamedTuple):
    """One field of Software: its value, whether the job states it, and by what or whose default."""

    name: str
    value: Any
    stated: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Era:
    """What chooses defaults: model, framework, date, source, GPU, and whether 16 bits or more."""

    model: str
    framework: str
    date: float
    source: str
    capability: tuple[int, int]
    sixteen_bit: bool


def date_of(framework_date: float | None, source: str) -> float:
    """The date of a job's software: stated, of the source it comes from, or today's."""
    if framework_date is not None:
        return framework_date
    return float(shipped_yaml("software.yaml")["eras"].get(source, TODAY))


def is_dated(framework_date: float | None, source: str) -> bool:
    """Whether the date of a job's software is known; runs of a source that states none are not."""
    return framework_date is not None or source not in shipped_yaml("software.yaml")["eras"]


@lru_cache(maxsize=4096)
def resolve(options: Pairs, era: Era) -> Software:
    """Options of a job and defaults of its era as one record.

    Raises JobError where two options contradict each other.
    """
    settings: dict[str, Setting] = {}
    for name, entries in shipped_yaml("software.yaml")["defaults"].items():
        if entry := next((e for e in entries if _holds(e, dict(options), era)), None):
            settings[name] = Setting(name, entry["value"], False, entry["source"])
    settings |= _stated(options)
    values = {name: setting.value for name, setting in settings.items()}
    kept = tuple(settings[f.name] for f in fields(Software) if f.name in settings)
    return Software(framework=era.framework, date=era.date, settings=kept, **values)


def _stated(options: Pairs) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for key, text in options:
        for name, value in known_options()[key].fields(text).items():
            setting = Setting(name, value, True, f"{key}={text}")
            other = found.setdefault(name, setting)
            if other.value != value:
                both = f"{other.reason};{setting.reason}"
                raise JobError("options", both, CONTRADICTION)
    if "adapter_rank" in found and ("lora", "off") in options:
        raise JobError("options", f"{found['adapter_rank'].reason};lora=off", CONTRADICTION)
    return found


def _holds(entry: Mapping[str, Any], stated: Mapping[str, str], era: Era) -> bool:
    return (
        era.framework in entry.get("frameworks", (era.framework,))
        and era.source in entry.get("sources", (era.source,))
        and re.search(entry.get("model", ""), era.model.lower()) is not None
        and era.date >= entry.get("since", -math.inf)
        and not era.date >= entry.get("before", math.nan)
        and era.capability >= divmod(round(10 * entry.get("capability", 0)), 10)
        and era.capability < divmod(round(10 * entry.get("below", 99)), 10)
        and entry.get("sixteen_bit", era.sixteen_bit) == era.sixteen_bit
        and all(stated.get(key) == value for key, value in entry.get("stated", {}).items())
    )


@dataclass(frozen=True, slots=True)
class Option:
    """One word of ``options``: what it means, and the values it takes.

    ``values`` maps every accepted spelling to the value it means; None where any whole number
    (``counts``) or any text is accepted. ``sets`` are fields of Software by value.
    """

    key: str
    meaning: str
    values: Mapping[str, str] | None
    counts: bool
    sets: Mapping[str, Mapping[str, Any]]
    given: tuple[str, ...]
    source: str

    @property
    def only_recorded(self) -> bool:
        """Whether measured runs state it, and no price knows it."""
        return self.source == RECORDED and self.key not in SHARDING

    def read(self, text: str) -> str:
        """The value a text means; raises JobError with the nearest values."""
        if self.values is not None:
            found = self.values.get(key_of(text))
            if found is None:
                names = (*nearest(text, self.values), *self.values.values())
                raise JobError("options", f"{self.key}={text}", accepted(text, names))
            return found
        if self.counts and not text.isdigit():
            raise JobError("options", f"{self.key}={text}", "expected a whole number")
        return text

    def fields(self, value: str) -> dict[str, Any]:
        """The fields of Software that a value of this option fixes."""
        amount: Any = int(value) if self.counts else value
        return dict(self.sets.get(value, {})) | dict.fromkeys(self.given, amount)


@cache
def known_options() -> dict[str, Option]:
    """Every option under its name."""
    data = shipped_yaml("software.yaml")
    found = {key: _option(key, entry) for key, entry in data["options"].items()}
    recorded = data["recorded"].items()
    return found | {key: _option(key, {"values": values}) for key, values in recorded}


@cache
def spelled_options() -> Mapping[str, Option]:
    """Every option under each of its spellings."""
    entries = shipped_yaml("software.yaml")["options"]
    spellings = {s: k for k, entry in entries.items() for s in entry.get("spellings", ())}
    known = known_options()
    return known | {s: known[k] for s, k in spellings.items() if s not in known}


def option_of(key: str) -> Option:
    """The option a word means; raises JobError with the nearest words."""
    found = spelled_options().get(key_of(key))
    if found is None:
        raise JobError("options", key, accepted(key_of(key), spelled_options()))
    return found


def read_options(pairs: Pairs) -> Pairs:
    """Options under their names, values in their usual spelling, sorted; raises JobError."""
    found: dict[str, str] = {}
    for key, text in pairs:
        option = option_of(key)
        value = option.read(text)
        if found.setdefault(option.key, value) != value:
            both = f"{option.key}={found[option.key]};{key}={text}"
            raise JobError("options", both, f"expected one value of {option.key}")
    return tuple(sorted(found.items()))


def understood_options(pairs: Pairs) -> tuple[Pairs, tuple[str, ...]]:
    """As ``read_options``, for tables of other people: what is known, and each word that is not."""
    known, unknown = [], []
    for key, text in pairs:
        try:
            known.append((option_of(key).key, option_of(key).read(text)))
        except JobError as error:
            unknown.append(str(error.value))
    return tuple(sorted(dict(known).items())), tuple(unknown)


def _option(key: str, entry: Mapping[str, Any]) -> Option:
    stated, sets = entry["values"], entry.get("sets", {})
    return Option(
        key=key,
        meaning=entry.get("meaning", "as measured runs state it"),
        values=None if stated in ("count", "text") else dict(_values(stated)),
        counts=stated == "count",
        sets={value: fields for value, fields in sets.items() if fields != GIVEN},
        given=tuple(name for name, fields in sets.items() if fields == GIVEN),
        source=entry.get("source", RECORDED),
    )


def _values(stated: Any) -> Iterator[tuple[str, str]]:
    """Every spelling with the value it means; those of a switch wherever it has on or off."""
    table = dict.fromkeys(SWITCH, ()) if stated == "switch" else stated
    for value in table:
        own = table[value] if isinstance(table, Mapping) else ()
        for spelling in (*own, value):
            for word in (spelling, *SWITCH.get(spelling, ())):
                yield key_of(word), value


@dataclass(frozen=True, slots=True)
class OptimizerRule:
    """Memory traffic and launches of an optimizer step, and what stays between steps, FP32.

    One that is ``layerwise`` updates in the backward pass, and keeps no gradients.
    """

    bytes_per_parameter: float
    state_bytes_per_parameter: float
    launches_per_tensor: float
    spelt_out_bytes: float = 0.0
    eager_bytes: float = 0.0
    layerwise: bool = False


@cache
def optimizer_rules() -> Mapping[str, OptimizerRule]:
    """Every rule under its name."""
    return {
        name: OptimizerRule(**{k: v for k, v in entry.items() if k != "also"})
        for name, entry in shipped_yaml("optimizers.yaml").items()
    }


def optimizer_named(text: str) -> str:
    """The rule that a name means; raises JobError with the nearest names."""
    if TRACED in text:
        return text
    name = _plain_name(text)
    if name not in _optimizers_spelled():
        raise JobError("optimizer", text, accepted(name, _optimizers_spelled()))
    return _optimizers_spelled()[name]


@cache
def _optimizers_spelled() -> Mapping[str, str]:
    return {
        _plain_name(spelling): name
        for name, entry in shipped_yaml("optimizers.yaml").items()
        for spelling in (name, *entry.get("also", ()))
    }


def _plain_name(text: str) -> str:
    return re.sub(r"[-_ /]", "", text.strip().rpartition(".")[2].lower())
