"""What a capacity report says, before any form of it is written.

Every duration is in seconds, every moment in Unix seconds, GPU time in hours of one GPU. None is
"not known", never nought.
"""

from .ahead import Backlog, Forecast, QueuedJob, WeekDemand
from .hours import Dimension, GpuHours, Share, TensorCoreUse, Use
from .opportunity import Opportunity, OpportunityKind
from .period import Origin, Period, Range, SetAside
from .report import Report
from .waits import LimitUse, PredictionQuality, Wait
from .what_if import Scenario, WhatIf

__all__ = [
    "Backlog",
    "Dimension",
    "Forecast",
    "GpuHours",
    "LimitUse",
    "Opportunity",
    "OpportunityKind",
    "Origin",
    "Period",
    "PredictionQuality",
    "QueuedJob",
    "Range",
    "Report",
    "Scenario",
    "SetAside",
    "Share",
    "TensorCoreUse",
    "Use",
    "Wait",
    "WeekDemand",
    "WhatIf",
]
