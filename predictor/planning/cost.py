"""What a predicted job costs: money, energy and CO2e, by the tariff of a site.

A GPU is busy for the device time of the step and waits for the rest: for launches, exposed
communication, the pipeline, the input. Its power is taken as linear in the busy share, as Fan,
Weber and Barroso found of servers ("Power provisioning for a warehouse-sized computer", ISCA 2007),
from idle to board power, where only tensor cores take a board to its limit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profiles.errors import UnknownGpuError
from profiles.gpus import Gpu, find_gpu
from profiles.storage import shipped_yaml, user_yaml

from ..errors import JobError, PriceError
from ..estimate.prediction import Prediction

PRICES = "prices_per_gpu_hour"
_LEAST = {"grid_g_per_kwh": 0.0, "pue": 1.0, "host_w_per_gpu": 0.0}
_LOCAL = (PRICES, *_LEAST)
_FIELDS = ("currency", *_LOCAL, "partitions")
DAY_S = 86400.0
# A run this many times longer than its work is a mistake of the input, not a plan.
ENDLESS = 1000
_OPTIONS = {
    "per_day": "interruptions_per_day",
    "restart_s": "restart",
    "write_s": "checkpoint_write",
}
JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True)
class Power:
    """Watts of one GPU: the board's limit by its data sheet, and idle, None where unpublished."""

    board_w: float
    idle_w: float | None
    source: str

    def at(self, busy_share: float) -> float:
        """Mean watts of a GPU busy for this share of the time; of the board if idle is unknown."""
        if self.idle_w is None:
            return self.board_w
        return self.idle_w + (self.board_w - self.idle_w) * busy_share


@dataclass(frozen=True, slots=True)
class Overhead:
    """What a site draws besides its GPUs: watts of the host per GPU, then all times the PUE."""

    pue: float = 1.0
    host_w_per_gpu: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.pue) and self.pue >= 1):
            raise JobError("pue", self.pue, "expected a number of at least 1")
        if not (math.isfinite(self.host_w_per_gpu) and self.host_w_per_gpu >= 0):
            raise JobError("host_w_per_gpu", self.host_w_per_gpu, "expected watts, 0 or more")

    def watts(self, gpu_w: float) -> float:
        """Watts at the meter of a site for one GPU that draws ``gpu_w``."""
        return (gpu_w + self.host_w_per_gpu) * self.pue

    @property
    def covers(self) -> str:
        """What the figures count, for people."""
        host = " and hosts" if self.host_w_per_gpu else ""
        return f"GPUs{host}" + (f", PUE {self.pue:g}" if self.pue > 1 else "")


@dataclass(frozen=True, slots=True)
class Energy:
    """Joules of a job on all its GPUs, with the site's overhead.

    ``energy_j`` is the estimate; ``low_j`` what idle GPUs would draw in that time, None where idle
    power is unknown; ``high_j`` what boards at their limit would. ``busy_share`` is the share of
    the time that the GPUs compute.
    """

    energy_j: float
    low_j: float | None
    high_j: float
    busy_share: float
    power: Power
    overhead: Overhead

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; joules, watts of one GPU, ratios."""
        return {
            "energy_j": self.energy_j,
            "energy_low_j": self.low_j,
            "energy_high_j": self.high_j,
            "busy_share": self.busy_share,
            "idle_w": self.power.idle_w,
            "board_w": self.power.board_w,
            "idle_source": self.power.source or None,
            "pue": self.overhead.pue,
            "host_w_per_gpu": self.overhead.host_w_per_gpu,
        }


GPUS_ONLY = Overhead()
# Share of the way from idle to its limit that a busy board draws, by what it is busy with: from
# ResNet-50 and BERT-base in FP32 on V100, A40 and P100 (ml-energy/zeus, NSDI 2023 trace), which
# differ by 0.2. No row of tensor cores is there: they are taken to reach the limit.
MATRIX_LOAD, MEMORY_LOAD = 0.83, 0.66


def energy_of(found: Prediction, seconds: float, overhead: Overhead = GPUS_ONLY) -> Energy:
    """Energy of a predicted job that holds its GPUs for ``seconds``."""
    power, share = power_of(found.job.hardware), drawn_share(found)
    gpu_s = seconds * found.job.gpus
    idle_w = power.idle_w
    return Energy(
        energy_j=overhead.watts(power.at(share)) * gpu_s,
        low_j=None if idle_w is None else overhead.watts(power.at(0.0)) * gpu_s,
        high_j=overhead.watts(power.board_w) * gpu_s,
        busy_share=busy_share(found),
        power=power,
        overhead=overhead,
    )


def busy_share(found: Prediction) -> float:
    """Share of a step in which a GPU computes, from the parts of the prediction."""
    physical = found.physical
    busy_s = (physical.compute_s + physical.optimizer_s) * found.correction
    return min(1.0, busy_s / found.step_s)


def drawn_share(found: Prediction) -> float:
    """Share of the way from idle to board power that a GPU draws on average over a step."""
    physical = found.physical
    busy_s = physical.compute_s + physical.optimizer_s
    matrix_s = physical.matmul_s + physical.recurrent_s
    memory_s = physical.memory_s + physical.optimizer_s
    drawn_s = physical.tensor_core_s + MATRIX_LOAD * matrix_s + MEMORY_LOAD * memory_s
    return busy_share(found) * drawn_s / busy_s if busy_s else 0.0


def power_of(gpu: Gpu) -> Power:
    """Board power of the data sheet, and idle power where ``profiles/power.yaml`` has it.

    Raises JobError where the sheet states no power.
    """
    if not gpu.tdp_w:
        raise JobError("gpu", gpu.name, "energy needs tdp_w in its data sheet")
    known = shipped_yaml("power.yaml").get(gpu.name)
    if known is None:
        return Power(gpu.tdp_w, None, "")
    return Power(gpu.tdp_w, float(known["idle_w"]), known["source"])


@dataclass(frozen=True, slots=True)
class Tariff:
    """What GPU-hours and energy cost at one place.

    ``per_gpu_hour`` is by name of the GPU, in ``currency``; ``grid_g_per_kwh`` are grams of CO2e
    per kilowatt-hour, None where unstated.
    """

    currency: str = ""
    per_gpu_hour: Mapping[str, float] = field(default_factory=dict)
    grid_g_per_kwh: float | None = None
    overhead: Overhead = GPUS_ONLY


def read_tariff(path: Path, partition: str | None = None) -> Tariff:
    """The tariff of a price file, of one of its partitions if named.

    A partition states what differs from the rest of the file. A field without a value counts as
    not stated. Raises PriceError.
    """
    return tariff_of(user_yaml(path, PriceError), partition, str(path))


def tariff_of(raw: Any, partition: str | None = None, origin: str = "prices") -> Tariff:
    """The tariff of plain values; raises PriceError."""
    whole = _checked(raw, origin, "", _FIELDS)
    places = {  # wrong anywhere is wrong, asked for or not
        name: _checked(place, origin, f"partitions.{name}.", _LOCAL)
        for name, place in _mapping(whole.get("partitions"), origin, "partitions").items()
    }
    currency = whole.get("currency")
    if not isinstance(currency, str | None):
        raise PriceError(f"{origin}: currency={currency!r}: expected a text such as EUR")
    if not currency and any(place.get(PRICES) for place in (whole, *places.values())):
        raise PriceError(f"{origin}: currency is missing: prices need one, such as EUR")
    if partition is not None and partition not in places:
        known = ", ".join(places) or "none"
        raise PriceError(f"{origin}: no partition {partition!r}; it names {known}")
    local = {} if partition is None else places[partition]
    stated = whole | local
    overhead = Overhead(stated.get("pue", 1.0), stated.get("host_w_per_gpu", 0.0))
    prices = whole.get(PRICES, {}) | local.get(PRICES, {})
    return Tariff(currency or "", prices, stated.get("grid_g_per_kwh"), overhead)


def _checked(raw: Any, origin: str, place: str, known: tuple[str, ...]) -> dict[str, Any]:
    """The fields that the file or a partition states, numbers and prices checked."""
    stated = _mapping(raw, origin, place.removesuffix("."), known)
    return {
        name: _prices(value, origin, place + name)
        if name == PRICES
        else _number(value, _LEAST[name], origin, place + name)
        if name in _LEAST
        else value
        for name, value in stated.items()
        if value is not None
    }


def _prices(raw: Any, origin: str, where: str) -> dict[str, float]:
    prices: dict[str, float] = {}
    for name, value in _mapping(raw, origin, where).items():
        try:
            gpu = find_gpu(name).name
        except UnknownGpuError as error:
            raise PriceError(f"{origin}: {where}: {error}") from None
        if value is None:
            continue
        if gpu in prices:
            raise PriceError(f"{origin}: {where}.{name}: {gpu} has a price already")
        prices[gpu] = _number(value, 0.0, origin, f"{where}.{name}")
    return prices


def _mapping(raw: Any, origin: str, where: str, known: tuple[str, ...] = ()) -> dict[str, Any]:
    """A mapping with text keys, empty for nothing; of ``known`` fields where they are given."""
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise PriceError(f"{origin}: {where or 'the file'}={raw!r}: expected fields with values")
    for key in raw:
        if known and key not in known:
            inside = f" in {where}" if where else ""
            raise PriceError(f"{origin}: no field {key!r}{inside}; fields are {', '.join(known)}")
    return {str(key): value for key, value in raw.items()}


def _number(value: Any, least: float, origin: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PriceError(f"{origin}: {where}={value!r}: expected a number")
    if not (math.isfinite(value) and value >= least):
        raise PriceError(f"{origin}: {where}={value!r}: expected a number of at least {least:g}")
    return float(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruptions:
    """Interruptions at random (Poisson), such as those of spot nodes.

    ``per_day`` counts those of ONE node, any of which stops the whole job. A restart takes
    ``restart_s``; a checkpoint is written every ``every_s`` of work, None for never, and takes
    ``write_s``. Raises JobError for values that are invalid.
    """

    per_day: float
    restart_s: float = 0.0
    every_s: float | None = None
    write_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("per_day", "restart_s", "write_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise JobError(_OPTIONS[name], value, "expected a number of at least 0")
        if self.every_s is not None and not (math.isfinite(self.every_s) and self.every_s > 0):
            raise JobError("checkpoint_every", self.every_s, "expected a positive time")

    def expected_s(self, work_s: float, nodes: int) -> float:
        """Expected seconds from start to end of ``work_s`` of work on ``nodes`` nodes.

        Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps"
        (FGCS 22, 2006), which to first order is Young's (CACM 17, 1974): each interruption costs a
        restart and half an interval. Raises JobError where a run would hardly ever end.
        """
        every_s, write_s = work_s, 0.0
        if self.every_s is not None and self.every_s < work_s:
            every_s, write_s = self.every_s, self.write_s
        rate = self.per_day * nodes / DAY_S
        if not rate or not work_s:
            return work_s * (1 + write_s / every_s) if every_s else work_s
        try:
            segment_s = math.exp(self.restart_s * rate) * math.expm1((every_s + write_s) * rate)
        except OverflowError:
            segment_s = math.inf
        expected_s = segment_s / rate * (work_s / every_s)
        if expected_s > ENDLESS * work_s:
            raise JobError(
                "interruptions_per_day",
                self.per_day,
                f"{nodes} nodes with so many would take over {ENDLESS} times as long: "
                "checkpoint more often",
            )
        return expected_s

    def expected(self, work_s: float, nodes: int) -> float:
        """Interruptions to expect until ``work_s`` of work is done."""
        return self.expected_s(work_s, nodes) * self.per_day * nodes / DAY_S


UNSTATED = Tariff()


@dataclass(frozen=True, slots=True)
class Terms:
    """On what a job runs: the tariff, how often it is interrupted, and how careful to be.

    ``quantile`` is the share of such jobs that shall take no longer; None takes the median.
    """

    tariff: Tariff = UNSTATED
    interruptions: Interruptions | None = None
    quantile: float | None = None

    def __post_init__(self) -> None:
        if self.quantile is not None and not 0 < self.quantile < 1:
            raise JobError("quantile", self.quantile, "expected a share between 0 and 1")

    def elapsed_s(self, found: Prediction, quantile: float | None = None) -> float:
        """Expected seconds that a job holds its GPUs; raises JobError for one without a length."""
        level = self.quantile if quantile is None else quantile
        work_s = found.total_s if level is None else found.total_quantile_s(level)
        if work_s is None:
            raise JobError("steps", None, "energy and cost need a length: steps or epochs")
        if self.interruptions is None:
            return work_s
        return self.interruptions.expected_s(work_s, found.job.nodes)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a job costs that holds its GPUs for ``seconds``.

    ``amount`` is in ``currency``, None where its GPU has no price; ``co2e_g`` and ``co2e_high_g``
    are grams for the estimated and the highest energy, None where the grid is not stated.
    """

    seconds: float
    gpu_hours: float
    currency: str
    per_gpu_hour: float | None
    energy: Energy
    grid_g_per_kwh: float | None

    @property
    def amount(self) -> float | None:
        """Money for the GPU-hours."""
        return None if self.per_gpu_hour is None else self.per_gpu_hour * self.gpu_hours

    @property
    def co2e_g(self) -> float | None:
        """Grams of CO2e for the estimated energy."""
        return self._grams(self.energy.energy_j)

    @property
    def co2e_high_g(self) -> float | None:
        """Grams of CO2e for boards at their limit."""
        return self._grams(self.energy.high_j)

    def _grams(self, joules: float) -> float | None:
        grid = self.grid_g_per_kwh
        return None if grid is None else joules / JOULES_PER_KWH * grid

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; seconds, currency, joules, grams."""
        return {
            "elapsed_s": self.seconds,
            "elapsed_gpu_hours": self.gpu_hours,
            "currency": self.currency or None,
            "price_per_gpu_hour": self.per_gpu_hour,
            "amount": self.amount,
            "co2e_g": self.co2e_g,
            "co2e_high_g": self.co2e_high_g,
            **self.energy.as_dict(),
        }


def cost_of(found: Prediction, terms: Terms, quantile: float | None = None) -> Cost:
    """What a job costs on these terms; ``quantile`` instead of that of the terms if given.

    Raises JobError for a job without a length.
    """
    seconds, tariff = terms.elapsed_s(found, quantile), terms.tariff
    return Cost(
        seconds=seconds,
        gpu_hours=seconds * found.job.gpus / 3600,
        currency=tariff.currency,
        per_gpu_hour=tariff.per_gpu_hour.get(found.job.gpu),
        energy=energy_of(found, seconds, tariff.overhead),
        grid_g_per_kwh=tariff.grid_g_per_kwh,
    )
