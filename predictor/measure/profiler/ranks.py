"""One process of a group that times collectives; rank 0 reports to the process that started it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from time import monotonic, perf_counter
from typing import Any

import torch
import torch.distributed as dist

GLOO, NCCL = "gloo", "nccl"
LOOPBACK = "lo"
FEWEST, MOST = 5, 40  # samples
SAMPLE_S, MOST_CALLS = 1e-3, 20  # a sample is some calls in a row, as nccl-tests times them
ELEMENT_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What every rank is told: how to meet, what to time, and how long."""

    ranks: int
    backend: str
    store: str
    threads: int
    calls: Sequence[tuple[str, int]]
    seconds: float
    row_s: float


@dataclass(frozen=True, slots=True)
class RankSamples:
    """Seconds of a call by the slowest rank; ``error`` where the backend cannot."""

    number: int
    seconds: tuple[float, ...]
    error: str = ""


def run(rank: int, group: Group, reports: Connection | None, stop: Any) -> None:
    """Time the calls of a group until the time is over; ``reports`` is None but on rank 0."""
    if group.backend == GLOO:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
        torch.set_num_threads(group.threads)
    device = torch.device("cuda", rank) if group.backend == NCCL else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        group.backend, init_method=f"file://{group.store}", rank=rank, world_size=group.ranks
    )
    end_s = monotonic() + group.seconds
    for number, (op, size) in enumerate(group.calls):
        over = rank == 0 and (stop.is_set() or monotonic() > end_s)
        if _agreed(float(over), device):
            break
        samples = _timed(number, op, size, group, device)
        if reports is not None:
            reports.send(samples)
    dist.destroy_process_group()


def _timed(number: int, op: str, size: int, group: Group, device: torch.device) -> RankSamples:
    try:
        call = CALLS[op](size, group.ranks, device)
        call()
        _wait(device)
    except (RuntimeError, NotImplementedError, ValueError) as error:
        return RankSamples(number, (), " ".join(str(error).split())[:200])
    once = _agreed(_sample_s(call, 1, device), device)
    calls = int(min(max(SAMPLE_S / once, 1), MOST_CALLS))
    count = int(min(max(group.row_s / (once * calls), FEWEST), MOST))
    own = torch.tensor([_sample_s(call, calls, device) for _ in range(count)], device=device)
    dist.all_reduce(own, dist.ReduceOp.MAX)
    return RankSamples(number, tuple(own.tolist()))


def _sample_s(call: Callable[[], object], calls: int, device: torch.device) -> float:
    dist.barrier()
    _wait(device)
    start = perf_counter()
    for _ in range(calls):
        call()
    _wait(device)
    return (perf_counter() - start) / calls


def _agreed(value: float, device: torch.device) -> float:
    """What rank 0 says."""
    told = torch.tensor([value], dtype=torch.float64, device=device)
    dist.broadcast(told, 0)
    return float(told.item())


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# Sizes are the bytes nccl-tests counts: of the whole buffer, of all ranks together for an
# all_gather, of the input of one rank for a reduce_scatter and an all_to_all.
_Call = Callable[[], object]


def _numbers(size: int, device: torch.device, parts: int = 1) -> torch.Tensor:
    return torch.zeros(max(size // ELEMENT_BYTES // parts, 1), device=device)


def _either(name: str, before: str) -> Callable[..., object]:
    """A function of torch.distributed by the name it has, or had before torch 2.13."""
    found: Callable[..., object] = getattr(dist, name, None) or getattr(dist, before)
    return found


def _all_reduce(size: int, ranks: int, device: torch.device) -> _Call:
    whole = _numbers(size, device)
    return lambda: dist.all_reduce(whole)


def _broadcast(size: int, ranks: int, device: torch.device) -> _Call:
    whole = _numbers(size, device)
    return lambda: dist.broadcast(whole, 0)


def _all_gather(size: int, ranks: int, device: torch.device) -> _Call:
    part = _numbers(size, device, ranks)
    whole = part.new_zeros(ranks * len(part))
    gather = _either("all_gather_single", "all_gather_into_tensor")
    return lambda: gather(whole, part)


def _reduce_scatter(size: int, ranks: int, device: torch.device) -> _Call:
    part = _numbers(size, device, ranks)
    whole = part.new_zeros(ranks * len(part))
    scatter = _either("reduce_scatter_single", "reduce_scatter_tensor")
    return lambda: scatter(part, whole)


def _all_to_all(size: int, ranks: int, device: torch.device) -> _Call:
    part = _numbers(size, device, ranks)
    whole, received = (part.new_zeros(ranks * len(part)) for _ in range(2))
    return lambda: dist.all_to_all_single(received, whole)


def _send_recv(size: int, ranks: int, device: torch.device) -> _Call:
    """A message from rank 0 to rank 1 at even calls and back at odd ones."""
    message, turn = _numbers(size, device), [0]

    def call() -> None:
        source = turn[0] % 2
        turn[0] += 1
        if dist.get_rank() == source:
            dist.send(message, 1 - source)
        elif dist.get_rank() == 1 - source:
            dist.recv(message, source)

    return call


CALLS: Mapping[str, Callable[[int, int, torch.device], _Call]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "broadcast": _broadcast,
    "send_recv": _send_recv,
}
