"""GPUs of nodes in Slurm's texts, and which of two counts of a job's GPUs holds."""

from __future__ import annotations

import re

from predictor.site.history.cells import AskedGpus

from ..cluster import GpuGres

# gpu:4, gpu:a100:2(S:0-1), gpu:1g.10gb:7, gpu:a100:no_consume:4
_GRES = re.compile(r"gpu(?::(?P<type>[^:(,]+?))?(?::no_consume)?:(?P<count>\d+)(?:\([^)]*\))?")
_OUTSIDE_PARENTHESES = re.compile(r",(?![^(]*\))")


def node_gres(text: str) -> tuple[GpuGres, ...]:
    """GPUs of a node's Gres or GresUsed, in the order given; other GRES are skipped."""
    matches = (_GRES.fullmatch(part) for part in _OUTSIDE_PARENTHESES.split(text))
    return tuple(GpuGres(m["type"], int(m["count"])) for m in matches if m)


def gpus_used(text: str) -> int:
    """GPUs of all types in a node's GresUsed."""
    return sum(gres.count for gres in node_gres(text))


def first_gpus(*choices: AskedGpus | None) -> AskedGpus:
    """The first that has GPUs, with the type of a later one where it names none."""
    having = [gpus for gpus in choices if gpus is not None and gpus.count]
    kinds = (gpus.type for gpus in having if gpus.type)
    return AskedGpus(having[0].count, next(kinds, None)) if having else AskedGpus(0)
