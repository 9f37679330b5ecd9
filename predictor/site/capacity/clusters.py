"""How many GPUs of each type there are: as stated, else the most ever in use at once."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from ...errors import TraceError
from ..replay import Pool

SPAN = ("gpu_type", "gpus", "begin_s", "finish_s")


def peak_gpus(table: pl.DataFrame) -> dict[str, int]:
    """The most GPUs of each type in use at once; one that ends gives back before one starts."""
    ran = table.select(SPAN).filter(pl.col("finish_s") > pl.col("begin_s"))
    gpus = pl.col("gpus").cast(pl.Int64)
    changes = pl.concat(
        [
            ran.select("gpu_type", at="finish_s", change=-gpus),
            ran.select("gpu_type", at="begin_s", change=gpus),
        ]
    )
    # Ends stand before starts, and a stable sort leaves them so at the same moment.
    in_order = pl.col("change").sort_by("at", maintain_order=True)
    most = changes.group_by("gpu_type").agg(in_order.cum_sum().max()).sort("gpu_type")
    return dict(most.iter_rows())


def stated_pools(stated: Sequence[Pool], told: Sequence[Pool]) -> tuple[Pool, ...]:
    """The pools that were stated, then those of other types that a scheduler told of."""
    known = {pool.name for pool in stated}
    return *stated, *(pool for pool in told if pool.name not in known)


def pools_of(table: pl.DataFrame, stated: Sequence[Pool]) -> tuple[Pool, ...]:
    """The pools that were stated, then those of other types at their peak."""
    known = {pool.name for pool in stated}
    others = table.lazy().filter(~pl.col("gpu_type").is_in(known))
    peaks = peak_gpus(others.select(SPAN).collect()).items()
    return *stated, *(Pool(name=name, gpus=most) for name, most in peaks)


def changed(pools: Sequence[Pool], add: Sequence[Pool], remove: Sequence[Pool]) -> tuple[Pool, ...]:
    """The pools with more and fewer GPUs, without those that are left with none.

    Raises TraceError where GPUs are removed that are not there, or none are left.
    """
    had = {pool.name: pool for pool in pools}
    counts: dict[str, int] = {name: pool.gpus for name, pool in had.items()}
    for pool in add:
        counts[pool.name] = counts.get(pool.name, 0) + pool.gpus
        had.setdefault(pool.name, pool)
    for pool in remove:
        if counts.get(pool.name, 0) < pool.gpus:
            known = ", ".join(f"{name}:{gpus}" for name, gpus in counts.items())
            raise TraceError(
                f"invalid remove={pool.name}:{pool.gpus}; there are "
                f"{counts.get(pool.name, 0)}; types are {known}"
            )
        counts[pool.name] -= pool.gpus
    if not any(counts.values()):
        raise TraceError("remove: no GPU is left to replay on")
    return tuple(_resized(had[name], gpus) for name, gpus in counts.items() if gpus)


def _resized(pool: Pool, gpus: int) -> Pool:
    per_node = pool.gpus_per_node
    return Pool(
        name=pool.name,
        gpus=gpus,
        gpus_per_node=None if per_node is None or gpus % per_node else per_node,
    )
