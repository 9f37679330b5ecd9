"""A discrete-event simulator of a GPU cluster's queue: arrays in, arrays out."""

from .nodes import Away
from .simulate import BACKFILL_DEPTH, Policy, replay
from .slurm import STOCK_RULES, SlurmRules
from .trace import NO_GATES, After, Floats, Gates, Ints, Pool, Schedule, Throttle, Trace, in_pools

__all__ = ["BACKFILL_DEPTH", "NO_GATES", "STOCK_RULES", "After", "Away", "Floats", "Gates", "Ints"]
__all__ += ["Policy", "Pool", "Schedule", "SlurmRules", "Throttle", "Trace", "in_pools", "replay"]
