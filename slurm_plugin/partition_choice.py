"""Which partition finishes the job first: queue and run time together."""

from __future__ import annotations
