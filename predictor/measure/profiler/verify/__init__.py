"""The whole-step check: small networks are trained on the device, and predicted from its tables."""

from __future__ import annotations

from .check import verify
from .compare import Comparison, Summary, Verification

__all__ = ["Comparison", "Summary", "Verification", "verify"]
