"""The whole-step check: networks are trained on the device, and predicted from its tables."""

from __future__ import annotations

from .check import compare, verify
from .compare import Comparison, Summary, Verification
from .steps import devices

__all__ = ["Comparison", "Summary", "Verification", "compare", "devices", "verify"]
