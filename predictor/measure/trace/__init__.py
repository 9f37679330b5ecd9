"""Any torch network -> a catalog entry that predicts without torch.

``trace`` runs one training step on fake tensors at a few sizes; nothing is computed, no device is
needed. The package itself imports no torch until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...optional import needs
from .request import TraceRequest, stored_before

if TYPE_CHECKING:
    from .tracer import trace, trace_request

__all__ = ["TraceRequest", "stored_before", "trace", "trace_request"]


def __getattr__(name: str) -> object:
    """``trace`` and ``trace_request`` bring torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needs("trace"):
        from . import tracer
    return getattr(tracer, name)
