"""Collectives over the ranks of one machine, each a process of its own."""

from __future__ import annotations

import hashlib
import multiprocessing
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Event
from typing import Any

import torch

from profiles.gpus import Gpu
from profiles.rules import collective_faults
from profiles.tables import collective_table

from ...errors import ProfilerError
from .device import CPU, Device
from .ranks import CALLS, GLOO, NCCL, Group, RankSamples, run
from .timing import DISAGREE, Timing, timing_of

DTYPE = "fp32"
# Bytes in an order that spans the range early and leaves what takes longest to the end.
SIZES = tuple(
    2**power for power in (10, 20, 15, 23, 18, 12, 25, 21, 16, 13, 24, 19, 17, 22, 26, 28)
)
MEMORY_SHARE = 0.02  # of the memory, of one buffer
SILENCE_S = 60.0  # ranks that say nothing for so long hang
MOST_ROW_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRow:
    """One collective of one size, and why it is not to be used, if so."""

    device: str
    library: str
    fabric: str
    op: str
    ranks: int
    bytes: int
    timing: Timing | None
    fault: str | None

    @property
    def id(self) -> str:
        """The same whenever the same thing is measured on the same device."""
        return row_id(self.device, self.fabric, self.op, self.ranks, self.bytes)

    def cells(self, source: str, path: str) -> tuple[str, ...]:
        """The row in ``COLLECTIVE_COLUMNS``."""
        time_us = f"{self.timing.time_s * 1e6:.6g}" if self.timing else ""
        note = f"spread={self.timing.spread:.3f}" if self.timing else ""
        ranks = str(self.ranks)
        return (
            self.id,
            source,
            path,
            "one machine",
            self.fabric,
            self.library,
            self.op,
            ranks,
            "1",
            ranks,
            str(self.bytes),
            DTYPE,
            time_us,
            f"UNRELIABLE;{note}" if self.fault else note,
        )


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
    fabric = _fabric(device)
    calls = [
        (op, size)
        for size in SIZES
        for op in CALLS
        if size < MEMORY_SHARE * gpu.memory_bytes
        and row_id(gpu.name, fabric, op, ranks, size) not in done
    ]
    threads = max(1, torch.get_num_threads() // ranks)
    with tempfile.TemporaryDirectory() as folder:
        group = Group(
            ranks=ranks,
            backend=backend,
            store=str(Path(folder) / "store"),
            threads=threads,
            calls=calls,
            seconds=seconds,
            row_s=min(seconds / max(len(calls), 1), MOST_ROW_S),
        )
        for samples in _samples(group, stop):
            op, size = calls[samples.number]
            timing = timing_of(samples.seconds) if samples.seconds else None
            yield CollectiveRow(
                device=gpu.name,
                library=f"{backend}, {device.library}",
                fabric=fabric,
                op=op,
                ranks=ranks,
                bytes=size,
                timing=timing,
                fault=_fault(gpu, op, ranks, size, timing)
                if timing
                else f"cannot run: {samples.error}",
            )


def _fabric(device: Device) -> str:
    """What ranks of this machine meet over."""
    if device.sensors is None:
        return "loopback"
    return "nvlink" if device.sensors.nvlink_gb_per_s() else "pcie"


def _fault(gpu: Gpu, op: str, ranks: int, size: int, timing: Timing) -> str | None:
    if not timing.reliable:
        return DISAGREE
    columns = {name: [""] for name in ("id", "source", "library", "system", "fabric")}
    columns |= {
        "op": [op],
        "dtype": [DTYPE],
        "gpus": [str(ranks)],
        "nodes": ["1"],
        "gpus_per_node": [str(ranks)],
        "bytes": [str(size)],
        "time_us": [str(timing.time_s * 1e6)],
    }
    return collective_faults(collective_table([gpu.name], columns))[0]


def _samples(group: Group, stop: Event) -> Iterator[RankSamples]:
    """What rank 0 reports, until it closes its end."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    told = context.Event()
    processes = [
        context.Process(
            target=run, args=(rank, group, theirs if rank == 0 else None, told), daemon=True
        )
        for rank in range(group.ranks)
    ]
    for process in processes:
        process.start()
    theirs.close()
    try:
        yield from _reports(ours, processes, stop, told)
    finally:
        for process in processes:
            if process.is_alive():
                process.terminate()
            process.join()


def _reports(
    ours: Connection, processes: Sequence[BaseProcess], stop: Event, told: Any
) -> Iterator[RankSamples]:
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
