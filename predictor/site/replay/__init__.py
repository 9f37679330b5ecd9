"""A discrete-event simulator of a GPU cluster's queue: arrays in, arrays out."""

from .gates import NO_GATES, After, Gates, Throttle
from .nodes import Away
from .simulate import BACKFILL_DEPTH, Policy, replay
from .trace import Floats, Ints, Pool, Schedule, Trace, in_pools

__all__ = [
    "BACKFILL_DEPTH",
    "NO_GATES",
    "After",
    "Away",
    "Floats",
    "Gates",
    "Ints",
    "Policy",
    "Pool",
    "Schedule",
    "Throttle",
    "Trace",
    "in_pools",
    "replay",
]
