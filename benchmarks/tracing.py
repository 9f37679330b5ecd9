"""Traces networks that the catalog builds too, and prints how the two differ.

Run with ``python benchmarks/tracing.py [NAME...]``; exits with 1 if a goal is missed. It needs the
extra ``trace`` and transformers.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

from trace_bench.reference import Reference
from trace_bench.step_time import ideal_step_s

from predictor.graphs.catalog import entry_of, graph_of
from predictor.graphs.operator import Direction, Graph, Kind
from predictor.graphs.workload import Workload
from predictor.trace import trace

BATCH = 16
FLOPS_GOAL = 0.01
SECONDS_GOAL = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One network: relative differences of the trace from the builder."""

    name: str
    parameters: int
    parameters_apart: int
    flops: float
    worst_flops: float
    bytes: float
    launches: float
    step: dict[str, float]
    seconds: float
    unknown: tuple[str, ...]


def compared(reference: Reference, *, shallow: bool = False) -> Row:
    """Trace one network, and hold it against the builder at sizes that were not traced."""
    module = reference.build(reference.sizes(shallow=shallow))
    return module
