"""Seconds of a collective: latency, and ring volume over measured bus bandwidth.

A ring of n GPUs moves 2(n-1)/n of the buffer for all_reduce and (n-1)/n for all_gather and
reduce_scatter over each link (Thakur et al., IJHPCA 2005). Across nodes the slower of the ring
inside a node and the adapters of the node decides; an all_to_all loads the adapters with the
buffers of all GPUs of the node. Latency grows with the steps of the ring in a node and with the
depth of a tree between nodes. Filling the pipeline of chunks costs a multiple of the latency, as
far as the message is long enough to have chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

import numpy as np
from numpy.typing import NDArray

from profiles.gpus import Gpu

from ..job.fabrics import Fabric, node_of

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
        share = min(1.0, inside / node.gpus_per_node)
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
