"""Collectives over the ranks of one machine, each a process of its own; rank 0 reports."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event
from time import monotonic, perf_counter
from typing import Any

import torch
import torch.distributed as dist

from profiles.gpus import Gpu
from profiles.rules import collective_faults
from profiles.tables import collective_table

from ...errors import ProfilerError
from .device import CPU, Device, wait
from .timing import DISAGREE, timing_of

DTYPE = "fp32"
# Bytes in an order that spans the range early and leaves what takes longest to the end.
SIZES = tuple(
    2**power for power in (10, 20, 15, 23, 18, 12, 25, 21, 16, 13, 24, 19, 17, 22, 26, 28)
)
MEMORY_SHARE = 0.02  # of the memory, of one buffer
SILENCE_S = 60.0  # ranks that say nothing for so long hang
MOST_ROW_S = 0.5
GLOO, NCCL = "gloo", "nccl"
LOOPBACK = "lo"
FEWEST, MOST = 5, 40  # samples
SAMPLE_S, MOST_CALLS = 1e-3, 20  # a sample is some calls in a row, as nccl-tests times them
ELEMENT_BYTES = 4
Call = Callable[[], object]
Collective = Callable[[int, int, torch.device], Call]  # of bytes, ranks and a device


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSettings:
    """What every rank is told: how to meet, what to time, and how long."""

    ranks: int
    backend: str
    store: str
    threads: int
    calls: Sequence[tuple[str, int]]
    seconds: float
    row_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRow:
    """One collective of one size, and why it is not to be used, if so.

    ``cells`` is what stands in ``COLLECTIVE_COLUMNS`` beside the id, the source and its path.
    """

    id: str
    op: str
    cells: tuple[str, ...]
    fault: str | None


def row_id(device: str, fabric: str, op: str, ranks: int, size: int) -> str:
    """The id of a row."""
    words = "|".join((device, fabric, op, str(ranks), str(size)))
    return "pc" + hashlib.sha256(words.encode()).hexdigest()[:12]


def check(device: torch.device, ranks: int, backend: str) -> None:
    """Raise ProfilerError for a group that this device cannot have."""
    if ranks < 2:
        raise ProfilerError(f"invalid ranks={ranks}; expected 2 or more")
    if (backend == NCCL) == (device.type == CPU):
        accepted = GLOO if device.type == CPU else NCCL
        raise ProfilerError(f"invalid backend={backend!r} on {device.type}; expected {accepted}")
    if backend == NCCL and ranks > torch.cuda.device_count():
        raise ProfilerError(
            f"invalid ranks={ranks}; this machine has {torch.cuda.device_count()} GPUs"
        )


def collective_rows(
    device: Device,
    gpu: Gpu,
    ranks: int,
    backend: str,
    *,
    done: Collection[str],
    seconds: float,
    stop: Event,
) -> Iterator[CollectiveRow]:
    """Rows of ``ranks`` processes as they come, without those whose ids are ``done``.

    The group has passed ``check``. Raises ProfilerError where a process dies or hangs.
    """
    fabric = "loopback"  # what ranks of this machine meet over
    if device.sensors is not None:
        fabric = "nvlink" if device.sensors.nvlink_gb_per_s() else "pcie"
    calls = [
        (op, size)
        for size in SIZES
        for op in CALLS
        if size < MEMORY_SHARE * gpu.memory_bytes
        and row_id(gpu.name, fabric, op, ranks, size) not in done
    ]
    if not calls:
        return
    threads = max(1, torch.get_num_threads() // ranks)
    with tempfile.TemporaryDirectory() as folder:
        group = RankSettings(
            ranks=ranks,
            backend=backend,
            store=str(Path(folder) / "store"),
            threads=threads,
            calls=calls,
            seconds=seconds,
            row_s=min(seconds / max(len(calls), 1), MOST_ROW_S),
        )
        for number, took_s, error in _samples(group, stop):
            op, size = calls[number]
            fault: str | None = f"cannot run: {error}"
            note = ""
            row = {
                "system": "one machine",
                "fabric": fabric,
                "library": f"{backend}, {device.library}",
                "op": op,
                "gpus": str(ranks),
                "nodes": "1",
                "gpus_per_node": str(ranks),
                "bytes": str(size),
                "dtype": DTYPE,
                "time_us": "",
            }
            if took_s:
                timing = timing_of(took_s)
                row["time_us"], note = f"{timing.time_s * 1e6:.6g}", f"spread={timing.spread:.3f}"
                columns = {name: [cell] for name, cell in {"id": "", "source": "", **row}.items()}
                fault = collective_faults(collective_table([gpu.name], columns))[0]
                fault = fault if timing.reliable else DISAGREE
            yield CollectiveRow(
                id=row_id(gpu.name, fabric, op, ranks, size),
                op=op,
                cells=(*row.values(), f"UNRELIABLE;{note}" if fault else note),
                fault=fault,
            )


def _samples(group: RankSettings, stop: Event) -> Iterator[tuple[int, tuple[float, ...], str]]:
    """What rank 0 reports, until it closes its end: the number of a call and what it gave."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    told = context.Event()
    processes = [
        context.Process(
            target=run_rank, args=(rank, group, theirs if rank == 0 else None, told), daemon=True
        )
        for rank in range(group.ranks)
    ]
    for process in processes:
        process.start()
    theirs.close()
    try:
        while True:
            if stop.is_set():
                told.set()
            if not ours.poll(SILENCE_S):
                raise ProfilerError(f"the ranks said nothing for {SILENCE_S:.0f} s")
            try:
                yield ours.recv()
            except EOFError:
                break
        for process in processes:
            process.join(SILENCE_S)
        if any(process.exitcode for process in processes):
            raise ProfilerError("a rank of the group died: its error stands above")
    finally:
        for process in processes:
            if process.is_alive():
                process.terminate()
            process.join()


def run_rank(rank: int, group: RankSettings, reports: Connection | None, stop: Any) -> None:
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


def _timed(
    number: int, op: str, size: int, group: RankSettings, device: torch.device
) -> tuple[int, tuple[float, ...], str]:
    """The call's number, its seconds by the slowest rank, or else why the backend cannot."""
    try:
        call = CALLS[op](size, group.ranks, device)
        call()
        wait(device)
    except (RuntimeError, NotImplementedError, ValueError) as error:
        return number, (), " ".join(str(error).split())[:200]
    once = _agreed(_sample_s(call, 1, device), device)
    calls = int(min(max(SAMPLE_S / once, 1), MOST_CALLS))
    count = int(min(max(group.row_s / (once * calls), FEWEST), MOST))
    own = torch.tensor([_sample_s(call, calls, device) for _ in range(count)], device=device)
    dist.all_reduce(own, dist.ReduceOp.MAX)
    return number, tuple(own.tolist()), ""


def _sample_s(call: Callable[[], object], calls: int, device: torch.device) -> float:
    dist.barrier()
    wait(device)
    start = perf_counter()
    for _ in range(calls):
        call()
    wait(device)
    return (perf_counter() - start) / calls


def _agreed(value: float, device: torch.device) -> float:
    """What rank 0 says."""
    told = torch.tensor([value], dtype=torch.float64, device=device)
    dist.broadcast(told, 0)
    return float(told.item())


def _either(name: str, before: str) -> Callable[..., object]:
    """A function of torch.distributed by the name it has, or had before torch 2.13."""
    found: Callable[..., object] = getattr(dist, name, None) or getattr(dist, before)
    return found


def _whole(call: Callable[[torch.Tensor], object]) -> Collective:
    """A call on a buffer of that size."""

    def ready(size: int, ranks: int, device: torch.device) -> Call:
        whole = torch.zeros(max(size // ELEMENT_BYTES, 1), device=device)
        return lambda: call(whole)

    return ready


def _parts(call: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]) -> Collective:
    """A call on a part for each rank and two buffers of that size."""

    def ready(size: int, ranks: int, device: torch.device) -> Call:
        part = torch.zeros(max(size // ELEMENT_BYTES // ranks, 1), device=device)
        whole, other = (part.new_zeros(ranks * len(part)) for _ in range(2))
        return lambda: call(part, whole, other)

    return ready


def _send_recv(size: int, ranks: int, device: torch.device) -> Call:
    """A message from rank 0 to rank 1 at even calls and back at odd ones."""
    message, turns = torch.zeros(max(size // ELEMENT_BYTES, 1), device=device), count()

    def call() -> None:
        source = next(turns) % 2
        if dist.get_rank() == source:
            dist.send(message, 1 - source)
        elif dist.get_rank() == 1 - source:
            dist.recv(message, source)

    return call


_gather = _either("all_gather_single", "all_gather_into_tensor")
_scatter = _either("reduce_scatter_single", "reduce_scatter_tensor")
# Sizes are the bytes nccl-tests counts: of the whole buffer, of all ranks together for an
# all_gather, of the input of one rank for a reduce_scatter and an all_to_all.
CALLS: Mapping[str, Collective] = {
    "all_reduce": _whole(dist.all_reduce),
    "all_gather": _parts(lambda part, whole, _: _gather(whole, part)),
    "reduce_scatter": _parts(lambda part, whole, _: _scatter(part, whole)),
    "all_to_all": _parts(lambda _, whole, other: dist.all_to_all_single(other, whole)),
    "broadcast": _whole(lambda whole: dist.broadcast(whole, 0)),
    "send_recv": _send_recv,
}
