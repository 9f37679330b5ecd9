"""A discrete-event simulator of a GPU cluster's queue: arrays in, arrays out."""

from .gates import NO_GATES, After, Gates, Throttle
from .nodes import Away
from .simulate import BACKFILL_DEPTH, Policy, replay
from .slurm import STOCK_RULES, SlurmRules
from .trace import Floats, Ints, Pool, Schedule, Trace, in_pools

__all__ = [
    "BACKFILL_DEPTH",
    "NO_GATES",
    "STOCK_RULES",
    "After",
    "Away",
    "Floats",
    "Gates",
    "Ints",
    "Policy",
    "Pool",
    "Schedule",
    "SlurmRules",
    "Throttle",
    "Trace",
    "in_pools",
    "replay",
]
