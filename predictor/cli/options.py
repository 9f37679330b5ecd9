"""What commands on training jobs share: options, the job they make, the predictor they ask."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from datetime import datetime
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from profiles.gpus import gpus, known_name
from profiles.storage import shipped_yaml

from ..errors import JobError, TraceError
from ..job.phases import with_first
from ..job.precision import Precision, parse_precision
from ..job.training_job import TrainingJob, parse_pairs
from ..units import gibibytes
from .console import progress, warn

if TYPE_CHECKING:
    from ..estimate.assumptions import Assumption
    from ..estimate.core import Predictor
    from ..estimate.fitting import Fitted
    from ..estimate.measurement import Measurement
    from ..estimate.prediction import Prediction
    from ..site.replay import Pool

Decorator = Callable[[Any], Any]
FITTING = "fitting a predictor from profiles/"
TOO_LARGE = "(does not fit)"
strict_option = click.option(
    "--strict", is_flag=True, help="Exit with 1 where a job does not fit the memory of its GPUs."
)
_POOL = re.compile(r"(.+):(\d{1,7})(?:/(\d{0,7}))?", re.ASCII)
_AGO = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)([mhdw])", re.ASCII)
_UNITS_S = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
EXPECTED = "expected 2025-01-31, 2025-01-31T12:00, or an age such as 90m, 12h, 30d, 4w"


def _known(name: str) -> Iterable[str]:
    from ..graphs.catalog import entries, traced_entries

    if name == "model":
        return (entry.name for entry in (*entries(), *traced_entries()))
    return gpus() if name == "gpu" else Precision


def complete(name: str) -> Callable[[click.Context, click.Parameter, str], list[str]] | None:
    """What completes the values of a network, a GPU or a precision; None for other names."""
    if name not in ("model", "gpu", "precision"):
        return None
    return lambda ctx, param, begun: [
        word for word in _known(name) if word.startswith(begun.lower())
    ]


def together(*options: Decorator) -> Decorator:
    """Adds several options to a command, in this order."""

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def job_options(*apart: str) -> Decorator:
    """Adds an option for every field of TrainingJob that has a help, but those named."""
    told = {name: entry for name, entry in shipped_yaml("keys.yaml").items() if "help" in entry}
    shown = [one for one in fields(TrainingJob) if one.name in told.keys() - set(apart)]
    return together(*(_option(one, told[one.name]) for one in shown))


def repeated_option(name: str, default: str) -> Decorator:
    """Adds the option of one field so that it may be repeated; ``default`` is in words."""
    words = f"{shipped_yaml('keys.yaml')[name]['help']} Repeatable.  [default: {default}]"
    return click.option(f"--{name}", name, multiple=True, help=words, shell_complete=complete(name))


class _Needed(click.types.StringParamType):
    """Text that a command cannot do without: where it is missing the error says what to write."""

    def __init__(self, told: str) -> None:
        self.told = told

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        return self.told


model_argument = click.argument(
    "model",
    type=_Needed("A name of `precision-time catalog list`, or as people write it."),
    shell_complete=complete("model"),
)


class Number(click.types.FloatParamType):
    """A finite number from ``least`` to ``most``, or above ``least`` alone; whole, or not."""

    def __init__(
        self, least: float = 0.0, most: float = 1e12, *, whole: bool = False, above: bool = False
    ) -> None:
        self.name = "integer" if whole else "number"
        self._read: Callable[[Any], float] = int if whole else float
        self._least, self._most, self._above = least, most, above

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """The number; click.BadParameter saying what is expected."""
        try:
            number = self._read(value)
        except (ValueError, OverflowError):
            number = nan
        if self._least <= number <= self._most and not (self._above and number == self._least):
            return number
        from_ = "above" if self._above else "from"
        bounds = f"{from_} {self._least:.15g} to {self._most:.15g}"
        kind = "a whole number" if self.name == "integer" else "a number"
        self.fail(f"invalid {str(value)[:64]!r}; expected {kind} {bounds}", param, ctx)


def _type(field: str, told: Mapping[str, Any], kind: str) -> Callable[[str], Any]:
    """How a value is read; a number as in comments and annotations: ``8k``."""

    def number(text: str) -> Any:
        from ..identify.keys import read_value

        return read_value(field, str(text))

    return number if "most" in told or kind.startswith("float") else str


def _option(one: Field[Any], told: Mapping[str, Any]) -> Decorator:
    name, several = "--" + told.get("option", one.name).replace("_", "-"), "repeated" in told
    if one.type == "bool":
        return click.option(name, one.name, is_flag=True, help=told["help"])
    usual = f"  [default: {told['unstated']}]" if "unstated" in told else ""
    required = one.default is MISSING
    # Given at all, None is a value to click, and the option then not missing.
    default: dict[str, Any] = {} if required else {"default": None if several else one.default}
    return click.option(
        name,
        one.name,
        type=_Needed(told["help"]) if required else _type(one.name, told, str(one.type)),
        required=required,
        show_default=isinstance(one.default, int | str) and one.default != "",
        multiple=several,
        metavar=told.get("metavar"),
        shell_complete=complete(one.name),
        help=told["help"] + usual,
        **default,
    )


def job_of(model: str, fields: Mapping[str, Any]) -> TrainingJob:
    """The job that the values of ``job_options`` describe; raises JobError."""
    from ..graphs.catalog import entry_of
    from ..identify.keys import parse_phases, read_value

    entry = entry_of(model)
    stated = dict(fields) | {"precision": parse_precision(fields["precision"])}
    options = pairs("option", stated.pop("options"))
    variant = pairs("variant", stated.pop("variant"))
    if texts := stated["phases"]:
        stated["phases"] = parse_phases(";".join(texts))
    text = stated.pop("image_size")
    size = None if text is None else entry.sized(read_value("image_size", text))
    return TrainingJob(
        model=entry.name, image_size=size, options=options, variant=variant, **with_first(stated)
    )


def pairs(field: str, texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """``k=v`` texts as sorted pairs; a word without ``=`` is switched on. Raises JobError."""
    for text in texts:
        if not text.partition("=")[0].strip():
            raise JobError(field, text, "expected key=value")
    found = [pair for text in texts for pair in parse_pairs(text)]
    if again := next((one for one in found if dict(found)[one[0]] != one[1]), None):
        raise JobError(field, "=".join(again), f"{again[0]}={dict(found)[again[0]]} is stated too")
    return tuple(sorted(dict(found).items()))


def pools_of(
    ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
) -> tuple[Pool, ...]:
    """The pools of ``NAME:GPUS`` and ``NAME:GPUS/GPUS_PER_NODE``; raises TraceError."""
    from ..site.replay import Pool

    found: list[Pool] = []
    for text in texts:
        parts = _POOL.fullmatch(text)
        if parts is None:
            expected = "expected NAME:GPUS or NAME:GPUS/GPUS_PER_NODE"
            raise TraceError(f"invalid pool={text!r}; {expected}")
        each, name = int(parts[3]) if parts[3] else None, known_name(parts[1])
        if any(pool.name == name for pool in found):
            raise TraceError(f"invalid pool={text!r}; {name} is stated twice")
        found.append(Pool(name=name, gpus=int(parts[2]), gpus_per_node=each))
    return tuple(found)


def moment(text: str) -> float:
    """Unix seconds of a date, a date and time (local where no zone is named), or an age.

    Raises click.BadParameter saying what is expected.
    """
    if ago := _AGO.fullmatch(text):
        return time.time() - float(ago[1]) * _UNITS_S[ago[2]]
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError):
        raise click.BadParameter(f"invalid {text!r}; {EXPECTED}") from None


# What click takes for a kind of option.
_KINDS: Mapping[str, Mapping[str, Any]] = {
    "text": {},
    "flag": {"is_flag": True},
    "unless": {"is_flag": True, "flag_value": False, "default": True},
    "number": {"type": Number()},
    "0 or more": {"type": Number(whole=True)},
    "1 or more": {"type": Number(1, whole=True)},
    "above 0": {"type": Number(above=True)},
    "moment": {"type": moment},
    "pools": {"callback": pools_of, "multiple": True},
    "path": {"type": click.Path(path_type=Path)},
    "file": {"type": click.Path(dir_okay=False, path_type=Path)},
    "existing file": {"type": click.Path(exists=True, dir_okay=False, path_type=Path)},
    "folder": {"type": click.Path(file_okay=False, path_type=Path)},
}


def listed_options(group: str) -> Decorator:
    """Adds the options of a group of ``options.yaml``.

    A kind that is a list is a choice, a mapping a Number with these bounds.
    """

    def option(flag: str, kind: Any = "text", **told: Any) -> Decorator:
        if isinstance(kind, dict):
            known: Mapping[str, Any] = {"type": Number(**kind)}
        else:
            known = _KINDS[kind] if isinstance(kind, str) else {"type": click.Choice(kind)}
        return click.option(*flag.split(), **{"show_default": "default" in told, **known, **told})

    listed = shipped_yaml("options.yaml", __file__)[group]
    return together(*(option(flag, **told) for flag, told in listed.items()))


def predictor(version: str | None = None, source: str = "") -> Predictor:
    """The predictor in use, or a version; raises JobError for a source it has no runs of."""
    from ..estimate.store import load_predictor

    loaded = load_predictor(version)
    loaded.check_source(source)
    return loaded


def refit(measurements: Sequence[Measurement] | None = None) -> Fitted:
    """Fit on these measurements, by default those shipped; nothing is stored."""
    from ..estimate.fitting import fit

    with progress(FITTING) as bar:
        return fit(measurements, progress=bar)


def micro_batch(job: TrainingJob) -> str:
    """Samples of a micro-step on one GPU and, where there are several, micro-steps: ``256 x 2``."""
    return str(job.micro_batch_size) + (f" x {job.micro_steps}" if job.micro_steps > 1 else "")


def assumed(predictions: Iterable[Prediction]) -> Iterator[str]:
    """A head and what is assumed of jobs, each with its widest range; nothing where nothing is."""
    from ..estimate.assumptions import widest

    every = tuple(predictions)
    if told := widest(one for found in every for one in found.assumptions):
        yield "assumed, because the job does not say it"
        yield from (f"  {one}{_of_some(one, every)}" for one in told)
        yield ""


def _of_some(told: Assumption, every: Sequence[Prediction]) -> str:
    """Of which GPUs or precisions something is assumed; empty where of all."""
    what = (told.field, told.value)
    those = [p.job for p in every if any((a.field, a.value) == what for a in p.assumptions)]
    for name in ("gpu", "precision"):
        found = dict.fromkeys(getattr(job, name) for job in those)
        if found.keys() < {getattr(one.job, name) for one in every}:
            return f"; of {', '.join(found)}"
    return ""


def warn_of_memory(predictions: Sequence[Prediction], *, strict: bool) -> None:
    """One warning for each job that does not fit, with what would; exit code 1 where strict."""
    unfit = [found for found in predictions if not found.memory.ok]
    for found in unfit:
        job, fit = found.job, found.memory
        needs = f"needs {gibibytes(fit.need_bytes)} of {gibibytes(fit.have_bytes)} a GPU"
        advice = " or ".join(one.text for one in fit.advice) or "none of the changes we know"
        what = f"{job.model}, {job.precision.value}, {job.gpus} x {job.gpu}"
        warn(f"DOES NOT FIT: {what} {needs} ({fit.margin:.0%} kept free); would fit: {advice}")
    if unfit and strict:
        raise SystemExit(1)
