"""What a capacity report says, before any form of it is written.

Every duration is in seconds, every moment in Unix seconds, GPU time in hours of one GPU. None is
"not known", never nought.
"""

from .ahead import Backlog, DemandForecast, WaitingJob, WeekDemand
from .hours import Dimension, GpuHours, Share, TensorCoreUse, Use
from .opportunity import Opportunity, OpportunityKind
from .period import Origin, Range, ReportPeriod, SetAside
from .report import CapacityReport
from .waits import LimitUse, PredictionQuality, WaitBySize
from .what_if import Scenario, WhatIf

__all__ = [
    "Backlog",
    "CapacityReport",
    "DemandForecast",
    "Dimension",
    "GpuHours",
    "LimitUse",
    "Opportunity",
    "OpportunityKind",
    "Origin",
    "PredictionQuality",
    "Range",
    "ReportPeriod",
    "Scenario",
    "SetAside",
    "Share",
    "TensorCoreUse",
    "Use",
    "WaitBySize",
    "WaitingJob",
    "WeekDemand",
    "WhatIf",
]
