"""Seconds of collectives on any GPU, fabric and number of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log2

import numpy as np
from numpy.typing import NDArray

from profiles.gpus import Gpu, find_gpu
from profiles.storage import shipped_yaml
from profiles.tables import CollectiveTable

from ..errors import JobError
from ..job.fabrics import Fabric, fabric_of, measured_fabric, node_of, times_copies
from .operator_time.samples import architecture_of
from .operator_time.solve import robust_fit

_LIKE = {"reduce": "broadcast", "gather": "all_gather", "scatter": "broadcast"}
MIN_ROWS = 20
CONFIGURATION_ROWS = 25  # of one source, ring size and operation
# Training reduces gradients in buckets of megabytes; shorter messages count less in the fit.
BUCKET_BYTES = 4e6
SMALL_WEIGHT = 0.4
PIPELINE_PRIOR = 0.5


@dataclass(frozen=True, slots=True)
class CollectiveTimes:
    """Fitted constants of topologies inside nodes, and of fabric families between them.

    ``topologies`` maps ``nvswitch`` (all GPUs) and ``nvswitch/sm80`` (one architecture) to
    constants; ``families`` maps to (log latency in us, log efficiency); ``measured`` names the
    keys of both that rest on rows, with their number.
    """

    topologies: Mapping[str, Floats]
    families: Mapping[str, Floats]
    measured: Mapping[str, int]

    @classmethod
    def fit(cls, table: CollectiveTable, gpus: Mapping[str, Gpu]) -> CollectiveTimes:
        """Constants from the rows of ``table`` on ``gpus``."""
        rows = [row for row in _rows(table) if row.gpu.name in gpus]
        times = cls._fit_topologies([row for row in rows if row.call.nodes == 1])
        return times._with_families([row for row in rows if row.call.fabric is not None])

    def seconds(
        self,
        gpu: Gpu,
        operation: str,
        payload_bytes: float,
        gpus: int,
        nodes: int,
        fabric: str | None = None,
    ) -> float:
        """Seconds of one collective over ``gpus`` GPUs in all, spread over ``nodes`` nodes.

        ``payload_bytes`` is the whole buffer as nccl-tests counts it (all_gather: the gathered
        one; all_to_all: what one GPU sends). 0 for a single GPU. Raises JobError for an unknown
        operation or fabric.
        """
        if gpus <= 1 or payload_bytes <= 0:
            return 0.0
        code = _operation(operation)
        network = fabric_of(gpu, fabric) if nodes > 1 else None
        call = call_of(gpu, code, payload_bytes, gpus, nodes, network)
        family = None if call.fabric is None else self.families[call.fabric.family]
        return collective_seconds(self._topology(gpu), family, call)

    def link_bytes_per_s(self, gpu: Gpu, nodes: int, fabric: str | None = None) -> float:
        """Nominal one-way bandwidth of the slowest link a job on ``nodes`` nodes uses."""
        if nodes > 1:
            network = fabric_of(gpu, fabric)
            return network.rail_bytes_per_s * network.rails
        return link_bytes_per_s(gpu, node_of(gpu.name).topology, 2)

    def to_arrays(self) -> dict[str, dict[str, list[float]]]:
        """The constants as JSON-able lists."""
        return {
            "topologies": {key: value.tolist() for key, value in self.topologies.items()},
            "families": {key: value.tolist() for key, value in self.families.items()},
            "measured": {key: [float(rows)] for key, rows in self.measured.items()},
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Mapping[str, Sequence[float]]]) -> CollectiveTimes:
        """The inverse of ``to_arrays``."""
        return cls(
            {key: np.array(value) for key, value in arrays["topologies"].items()},
            # an artifact may be older than a family
            _unfitted_families() | {k: np.array(value) for k, value in arrays["families"].items()},
            {key: int(value[0]) for key, value in arrays["measured"].items()},
        )

    def _topology(self, gpu: Gpu) -> Floats:
        topology = node_of(gpu.name).topology
        own = f"{topology}/{architecture_of(gpu)}"
        fitted = self.topologies.get(own, self.topologies.get(topology))
        # an artifact may be older than a topology
        return _prior(topology)[0] if fitted is None else fitted

    @classmethod
    def _fit_topologies(cls, rows: Sequence[_Row]) -> CollectiveTimes:
        topologies, measured = {}, {}
        for name in shipped_yaml("fabrics.yaml")["topologies"]:
            prior, deviation = _prior(name)
            own = [row for row in rows if node_of(row.gpu.name).topology == name]
            topologies[name] = pooled = _fitted(own, prior, deviation)
            measured[name] = len(own)
            for architecture in sorted({architecture_of(row.gpu) for row in own}):
                here = [row for row in own if architecture_of(row.gpu) == architecture]
                if len(here) >= MIN_ROWS:
                    key = f"{name}/{architecture}"
                    topologies[key] = _fitted(here, pooled, deviation * 0.5)
                    measured[key] = len(here)
        return cls(topologies, _unfitted_families(), measured)

    def _with_families(self, rows: Sequence[_Row]) -> CollectiveTimes:
        families, measured = dict(self.families), dict(self.measured)
        for name, prior in self.families.items():
            own = _thinned([r for r in rows if r.call.fabric and r.call.fabric.family == name])
            if len(own) < MIN_ROWS:
                continue
            target = np.log([row.seconds for row in own])
            inside = [self._topology(row.gpu) for row in own]

            def residuals(
                x: Floats,
                own: Sequence[_Row] = own,
                inside: Sequence[Floats] = inside,
                target: Floats = target,
            ) -> Floats:
                pairs = zip(inside, own, strict=True)
                return np.log([collective_seconds(p, x, row.call) for p, row in pairs]) - target

            families[name] = robust_fit(residuals, prior, np.array([1.0, 0.2]), scale=0.15)
            measured[name] = len(own)
        return CollectiveTimes(self.topologies, families, measured)


@dataclass(frozen=True, slots=True)
class _Row:
    gpu: Gpu
    configuration: tuple[str, str, int, int, str]
    call: Call
    seconds: float


def _rows(table: CollectiveTable) -> list[_Row]:
    """Rows of one collective each, inside one node or over a fabric that the source tells."""
    rows = []
    for i in range(len(table)):
        gpus, nodes = int(table.gpus[i]), table.nodes[i]
        name = _LIKE.get(str(table.op[i]), str(table.op[i]))
        if name not in OPERATIONS or gpus < 2 or np.isnan(nodes) or table.time_s[i] <= 0:
            continue
        if times_copies(str(table.source[i]), name):
            continue
        fabric = measured_fabric(str(table.fabric[i])) if nodes > 1 else None
        if nodes > 1 and fabric is None:
            continue
        gpu = find_gpu(str(table.gpu[i]))
        call = call_of(gpu, OPERATIONS.index(name), float(table.bytes[i]), gpus, int(nodes), fabric)
        where = (str(table.source[i]), gpu.name, gpus, int(nodes), name)
        rows.append(_Row(gpu, where, call, float(table.time_s[i])))
    return rows


def _operation(name: str) -> int:
    known = _LIKE.get(name, name)
    if known not in OPERATIONS:
        raise JobError("operation", name, ", ".join((*OPERATIONS, *_LIKE)))
    return OPERATIONS.index(known)


def _unfitted_families() -> dict[str, Floats]:
    raw = shipped_yaml("fabrics.yaml")["families"]
    return {k: np.log([one["latency_us"], one["efficiency"]]) for k, one in raw.items()}


def _prior(topology: str) -> tuple[Floats, Floats]:
    raw = shipped_yaml("fabrics.yaml")["topologies"][topology]
    shares = [raw["share"][n] for n in range(2, RING + 1)]
    mean = [*np.log([raw["latency_us"], raw["step_us"]]), PIPELINE_PRIOR, *np.log(shares)]
    deviation = [0.7, 0.7, 0.5] + [0.4] * len(shares) + [0.0001] + [0.2] * (len(OPERATIONS) - 1)
    return np.array(mean + [0.0] * len(OPERATIONS)), np.array(deviation)


def _thinned(rows: Sequence[_Row]) -> list[_Row]:
    """At most ``CONFIGURATION_ROWS`` of each configuration, spread over the sizes."""
    kept: list[_Row] = []
    for where in sorted({row.configuration for row in rows}):
        same = sorted(
            (row for row in rows if row.configuration == where), key=lambda r: r.call.bytes
        )
        chosen = np.linspace(0, len(same) - 1, min(len(same), CONFIGURATION_ROWS)).round()
        kept.extend(same[int(i)] for i in chosen)
    return kept


def _fitted(rows: Sequence[_Row], prior: Floats, deviation: Floats) -> Floats:
    if len(rows) < MIN_ROWS:
        return prior
    kept = _thinned(rows)
    target = np.log([row.seconds for row in kept])
    weight = np.where([row.call.bytes >= BUCKET_BYTES for row in kept], 1.0, SMALL_WEIGHT)

    def residuals(x: Floats) -> Floats:
        error = np.log([collective_seconds(x, None, row.call) for row in kept]) - target
        return np.asarray(weight * error)

    return robust_fit(residuals, prior, deviation, scale=0.15)


Floats = NDArray[np.float64]

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv", "broadcast")
RING = 8  # bandwidth shares are kept for rings of 2 to 8 GPUs
# Layout of the constants of a topology, logarithms: latency, step latency, pipeline share, then
# a bandwidth share per ring size, then a factor on the bandwidth per operation.
LATENCY, STEP, PIPELINE, SHARE = 0, 1, 2, 3
OPERATION = SHARE + RING - 1
FILL = 3.0  # latencies of transfer at which half of the filling is paid


@dataclass(frozen=True, slots=True)
class Call:
    """One collective: its operation, ring volumes and link rates."""

    operation: int
    bytes: float
    gpus_in_node: int
    nodes: int
    link_bytes_per_s: float
    fabric: Fabric | None
    rails: int


def call_of(
    gpu: Gpu, operation: int, payload: float, gpus: int, nodes: int, fabric: Fabric | None
) -> Call:
    """The call of ``gpus`` GPUs on ``nodes`` nodes; ``fabric`` is None on one node."""
    node, inside = node_of(gpu.name), ceil(gpus / nodes)
    rails = 0
    if fabric is not None:
        share = min(node.domain, inside) / node.gpus_per_node
        rails = max(1, ceil(fabric.rails * share))
    link = link_bytes_per_s(gpu, node.topology, inside)
    return Call(operation, payload, inside, nodes, link, fabric, rails)


def link_bytes_per_s(gpu: Gpu, topology: str, gpus: int) -> float:
    """One-way bytes/s of what one GPU of the ring has."""
    if topology == "memory":
        return gpu.bandwidth_bytes_per_s
    bridged = topology != "bridged_pairs" or gpus == 2
    if topology != "pcie" and bridged and gpu.nvlink_bytes_per_s > 0:
        return gpu.nvlink_bytes_per_s / 2
    return gpu.pcie_bytes_per_s


def collective_seconds(p: Floats, family: Floats | None, call: Call) -> float:
    """Seconds with the constants of a topology and, across nodes, of a fabric family."""
    total = call.gpus_in_node * call.nodes
    volume = call.bytes * _volume(call.operation, total)
    latency_us, transfer = 0.0, 0.0
    if call.gpus_in_node > 1:
        steps = _steps(call.operation, call.gpus_in_node)
        latency_us += np.exp(p[LATENCY]) + np.exp(p[STEP]) * steps
        share = p[SHARE + min(call.gpus_in_node, RING) - 2] + p[OPERATION + call.operation]
        transfer = volume / (call.link_bytes_per_s * np.exp(share))
    if family is not None and call.fabric is not None:
        latency_us += np.exp(family[0]) * 2 * ceil(log2(call.nodes))
        rate = call.fabric.rail_bytes_per_s * call.rails * np.exp(family[1])
        if OPERATIONS[call.operation] == "all_to_all":
            volume = call.bytes * call.gpus_in_node * (call.nodes - 1) / call.nodes
        elif OPERATIONS[call.operation] == "send_recv":
            rate /= call.rails
        transfer = float(np.cbrt(transfer**3 + (volume / rate) ** 3))
    latency = latency_us * 1e-6
    filling = latency * transfer / (transfer + FILL * latency)
    return float(latency + transfer + np.exp(p[PIPELINE]) * filling)


def _volume(operation: int, gpus: int) -> float:
    name = OPERATIONS[operation]
    if name == "all_reduce":
        return 2 * (gpus - 1) / gpus
    return 1.0 if name in ("send_recv", "broadcast") else (gpus - 1) / gpus


def _steps(operation: int, gpus: int) -> int:
    name = OPERATIONS[operation]
    if name == "all_reduce":
        return 2 * (gpus - 1)
    return 1 if name in ("send_recv", "all_to_all") else gpus - 1
