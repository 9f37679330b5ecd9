"""What commands ask and print about cost, energy and interruptions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import JobError
from ..site.history.cells import duration_s
from ..units import MINUTE_S, percent, short, span
from .options import listed_options, together

if TYPE_CHECKING:
    from ..planning.cost import Cost, Interruptions, Terms

KILO, TON_G, KWH_J = 1000.0, 1e6, 3.6e6

# Adds what a cost depends on besides the job; see ``take_terms``.
cost_options = together(listed_options("prices"), listed_options("interruptions"))


def take_terms(fields: dict[str, Any], quantile: float | None = None) -> Terms | None:
    """The terms that ``cost_options`` state, taken out of ``fields``; None where they state none.

    ``loader_rate`` stays, for it is no matter of cost. Raises PriceError and JobError.
    """
    from ..planning.cost import UNSTATED, Terms, read_tariff

    path, partition = fields.pop("prices"), fields.pop("partition")
    interruptions = _take_interruptions(fields)
    if partition is not None and path is None:
        raise JobError("partition", partition, "name the --prices file it is in")
    if path is None and interruptions is None and quantile is None:
        return None
    tariff = UNSTATED if path is None else read_tariff(path, partition)
    return Terms(tariff, interruptions, quantile)


def _take_interruptions(fields: dict[str, Any]) -> Interruptions | None:
    from ..planning.cost import Interruptions

    per_day = fields.pop("interruptions_per_day")
    names = ("restart_min", "checkpoint_every_min", "checkpoint_write_min")
    minutes = {name: fields.pop(name) for name in names}
    if per_day is None:
        for name, value in minutes.items():
            if value is not None:
                raise JobError(name, value, "it goes with --interruptions-per-day")
        return None
    restart, every, write = (None if m is None else m * MINUTE_S for m in minutes.values())
    return Interruptions(
        per_day=per_day, restart_s=restart or 0.0, every_s=every, write_s=write or 0.0
    )


def cost_lines(cost: Cost, low: Cost, high: Cost) -> Iterator[tuple[str, str, str]]:
    """Name, value and note of each line; ``low`` and ``high`` are costs at the ends of 95 %."""
    if cost.amount is not None and low.amount is not None and high.amount is not None:
        price = f"{cost.per_gpu_hour:g} {cost.currency} per GPU-hour"
        ends = span(low.amount, high.amount, short)
        yield "cost", money(cost.amount, cost.currency), f"95 %: {ends}; {price}"
    elif cost.currency:
        yield "cost", "-", "the price file has no price for this GPU"
    energy = cost.energy
    note = f"at most {kilowatt_hours(energy.high_j)}; {energy.overhead.covers}"
    if energy.power.idle_w is None:
        note += "; idle power unknown, so board power all the time"
    else:
        note += f"; busy {percent(energy.busy_share)}"
    yield "energy (estimate)", kilowatt_hours(energy.energy_j), note
    if cost.co2e_g is not None and cost.co2e_high_g is not None:
        grid = f"{cost.grid_g_per_kwh:g} g per kWh"
        yield "CO2e (estimate)", mass(cost.co2e_g), f"at most {mass(cost.co2e_high_g)}; {grid}"


def money(amount: float, currency: str) -> str:
    """An amount with its currency."""
    return f"{amount:,.2f} {currency}".rstrip()


def kilowatt_hours(joules: float) -> str:
    """Joules as kWh."""
    return f"{short(joules / KWH_J)} kWh"


def mass(grams: float) -> str:
    """Grams as g, kg or t."""
    if grams < KILO:
        return f"{short(grams)} g"
    return f"{short(grams / KILO)} kg" if grams < TON_G else f"{short(grams / TON_G)} t"


def seconds_of(field: str, text: str) -> float:
    """``24h``, ``1d12h``, ``90 min`` or ``45m`` as seconds; raises JobError."""
    found = None if text.strip().isdecimal() else duration_s(text.strip(), 1.0)
    if found is None:
        raise JobError(field, text, "expected a time such as 24h, 1d12h or 90min")
    return found
