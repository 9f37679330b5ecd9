"""The whole-step check: small networks are trained on the device, and predicted from its tables."""

from __future__ import annotations

from .check import verify
from .compare import Comparison, Summary, Verification
from .measure import MeasuredStep

__all__ = ["Comparison", "MeasuredStep", "Summary", "Verification", "verify"]
