"""A discrete-event simulator of a GPU cluster's queue: arrays in, arrays out."""

from .simulate import BACKFILL_DEPTH, Policy, replay
from .trace import Floats, Ints, Pool, Schedule, Trace, in_pools

__all__ = [
    "BACKFILL_DEPTH", "Floats", "Ints", "Policy", "Pool", "Schedule", "Trace", "in_pools", "replay",
]  # fmt: skip
