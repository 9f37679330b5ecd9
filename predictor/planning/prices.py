"""Prices, grid and overhead of a site, as its admin states them in a file; none are built in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from profiles.errors import UnknownGpuError
from profiles.gpus import find_gpu

from ..errors import PriceError
from .energy import GPUS_ONLY, Overhead

PRICES = "prices_per_gpu_hour"
_LOCAL = (PRICES, "grid_g_per_kwh", "pue", "host_w_per_gpu")
_FIELDS = ("currency", *_LOCAL, "partitions")


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
    try:
        raw = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise PriceError(f"{path}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise PriceError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    return tariff_of(raw, partition, str(path))


def tariff_of(raw: Any, partition: str | None = None, origin: str = "prices") -> Tariff:
    """The tariff of plain values; raises PriceError."""
    whole = _mapping(raw, origin, "", _FIELDS)
    places = _mapping(whole.get("partitions"), origin, "partitions")
    local = {
        name: _mapping(place, origin, f"partitions.{name}", _LOCAL)
        for name, place in places.items()
    }
    for name, place in local.items():  # wrong anywhere is wrong, asked for or not
        _tariff(whole, place, origin, f"partitions.{name}.")
    if partition is None:
        return _tariff(whole, {}, origin, "")
    if partition not in local:
        known = ", ".join(local) or "none"
        raise PriceError(f"{origin}: no partition {partition!r}; it names {known}")
    return _tariff(whole, local[partition], origin, f"partitions.{partition}.")


def _tariff(whole: Mapping[str, Any], local: Mapping[str, Any], origin: str, place: str) -> Tariff:
    prices = _prices(whole.get(PRICES), origin, PRICES)
    prices |= _prices(local.get(PRICES), origin, place + PRICES)
    currency = whole.get("currency")
    if not isinstance(currency, str | None):
        raise PriceError(f"{origin}: currency={currency!r}: expected a text such as EUR")
    if prices and not currency:
        raise PriceError(f"{origin}: currency is missing: prices need one, such as EUR")

    def number(name: str, least: float) -> float | None:
        stated = local.get(name)
        if stated is not None:
            return _number(stated, least, origin, place + name)
        return None if whole.get(name) is None else _number(whole[name], least, origin, name)

    overhead = Overhead(number("pue", 1.0) or 1.0, number("host_w_per_gpu", 0.0) or 0.0)
    return Tariff(currency or "", prices, number("grid_g_per_kwh", 0.0), overhead)


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
