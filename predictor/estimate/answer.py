"""A prediction as a person reads it: three lines, why it is wide, and what would narrow it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..graphs.catalog import entry_of
from ..units import count, duration, percent, short, span
from .residual.novelty import Tier

if TYPE_CHECKING:
    from .prediction import Prediction

NO_LENGTH = "total: state steps= or epochs= for the time of the whole job"
NO_DATA = "total: state dataset= or dataset_size= for the time of {epochs:g} epochs"
# The run that would tell most, by how new the job is.
NARROWING = {
    Tier.RUN: "",
    Tier.CONFIGURATION: "a run of 100 steps at this precision",
    Tier.COUNT: "a run of 100 steps on as many GPUs",
    Tier.TABLE: "a run of 100 steps of this model on one GPU here",
    Tier.SITE: "a run of 100 steps of this model on one GPU of this site",
    Tier.MODEL: "a run of 100 steps of this network on any GPU",
}


def lines(found: Prediction) -> Iterator[str]:
    """Three lines: what it is, a step, the whole; where it does not fit, that before all."""
    job, fit = found.job, found.memory
    what = f"{len(found.phases)} phases" if found.phases else job.precision.value
    unfit = "" if fit.ok else "DOES NOT FIT: "
    yield f"{unfit}{job.model}, {what}, {job.gpus} x {job.gpu}, {count(job.step_samples)} a step"
    yield f"step: {duration(found.step_s)} ({_bands(found)}); {rate(found)}"
    if found.total_s is None:
        unknown = job.epochs is not None
        yield NO_DATA.format(epochs=job.epochs) if unknown else NO_LENGTH
        return
    half, most = found.total_interval(0.5), found.total_interval(0.95)
    assert half is not None
    assert most is not None
    yield f"total: {duration(found.total_s)} (50 %: {span(*half)}; 95 %: {span(*most)})"


def rate(found: Prediction) -> str:
    """Images or tokens a second of one GPU, and the share of its peak that the model uses."""
    job, entry = found.job, entry_of(found.job.model)
    each = found.throughput / job.gpus
    tokens = job.mean_seq_len or job.seq_len or entry.seq_len
    unit = "samples"
    if entry.image_size is not None:
        unit = "images"
    elif tokens:
        unit, each = "tokens", each * tokens
    return f"{short(each)} {unit}/s per GPU, MFU {percent(found.mfu)}"


def why_wide(found: Prediction) -> str:
    """What keeps the interval wide."""
    unstated = ", ".join(one.field for one in found.assumptions)
    return found.tier.meaning + (f"; not stated: {unstated}" if unstated else "")


def narrowing(found: Prediction) -> str:
    """The one thing that would narrow the interval most; empty where nothing is known to."""
    first = found.assumptions[0] if found.assumptions else None
    if first is not None and (first.decisive or not NARROWING[found.tier]):
        return f"state {first.field}"
    return NARROWING[found.tier]


def _bands(found: Prediction) -> str:
    half, most = found.interval(0.5), found.interval(0.95)
    return f"50 %: {span(half.low_s, half.high_s)}; 95 %: {span(most.low_s, most.high_s)}"
