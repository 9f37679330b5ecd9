"""Outputs of training programs as those programs print them, with what is true of each.

A stream is made by a clock that is known, so that its rate and its time left are. Texts are of our
own making; the formats are those of the programs named.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

BEGAN = datetime(2024, 3, 1, 22, 30)  # so that a run goes over midnight


@dataclass(frozen=True, kw_only=True)
class Stream:
    """An output and its truth; ``total`` and ``remaining_s`` None where it does not tell them."""

    text: str
    unit: str
    rate_s: float
    at: float | None = None
    remaining_s: float | None = None


class Clock:
    """Time that steps take, with noise of 5 %, and pauses."""

    def __init__(self, step_s: float, seed: int = 1) -> None:
        self.step_s = step_s
        self.now_s = 0.0
        self._random = random.Random(seed)

    def step(self, steps: int = 1) -> float:
        took = sum(self.step_s * self._random.uniform(0.95, 1.05) for _ in range(steps))
        self.now_s += took
        return took

    def pause(self, seconds: float) -> None:
        self.now_s += seconds

    def stamp(self, form: str) -> str:
        now = BEGAN + timedelta(seconds=self.now_s)
        return now.strftime(form).replace("%3", f"{now.microsecond // 1000:03d}")


def hms(seconds: float) -> str:
    whole = int(seconds)
    h, m, s = whole // 3600, whole // 60 % 60, whole % 60
    return f"{h}:{m:02d}:{s:02d}" if h else f"{m:02d}:{s:02d}"


def long_hms(seconds: float) -> str:
    return str(timedelta(seconds=int(seconds)))


def bar(n: int, total: int, elapsed_s: float, step_s: float, more: str = "") -> str:
    """As tqdm's format_meter prints it."""
    filled = "█" * (10 * n // total)
    rate = "?it/s" if n == 0 else f"{step_s:5.2f}s/it" if step_s > 1 else f"{1 / step_s:5.2f}it/s"
    left = "?" if n == 0 else hms((total - n) * step_s)
    return (
        f"{100 * n // total:3d}%|{filled:<10}| {n}/{total} [{hms(elapsed_s)}<{left}, {rate}{more}]"
    )


def tqdm_run(step_s: float = 1.3, at: int = 370, total: int = 1000) -> Stream:
    clock, parts = Clock(step_s), []
    for n in range(at + 1):
        loss = f", loss={3 / (n + 1):.3f}"
        parts.append("\rTrain: " + bar(n, total, clock.now_s, step_s, loss))
        clock.step()
    return Stream(
        text="".join(parts), unit="step", rate_s=step_s, at=at, remaining_s=(total - at) * step_s
    )


def tqdm_epochs(step_s: float = 0.4, epoch: int = 3, epochs: int = 10, n: int = 150) -> Stream:
    clock, parts, length = Clock(step_s), [], 200
    for e in range(1, epoch + 1):
        began_s = clock.now_s
        for i in range((length if e < epoch else n) + 1):
            elapsed_s = clock.now_s - began_s
            parts.append(
                f"\rEpoch {e}/{epochs}: " + bar(i, length, elapsed_s, step_s, ", loss=0.1")
            )
            clock.step()
        parts.append("\n")
    left = (epochs - epoch) * length + length - n
    return Stream(
        text="".join(parts),
        unit="step",
        rate_s=step_s,
        at=(epoch - 1) * length + n,
        remaining_s=left * step_s,
    )


def trainer(step_s: float = 3.0, at: int = 130, total: int = 1000) -> Stream:
    clock = Clock(step_s)
    parts = ["***** Running training *****\n", f"  Total optimization steps = {total:,}\n"]
    for n in range(at + 1):
        parts.append("\r" + bar(n, total, clock.now_s, step_s))
        if n and n % 10 == 0:
            told = {"loss": 2.0 / n, "grad_norm": 0.8, "learning_rate": 4e-05, "epoch": n / 300}
            parts.append(f"\n{told}\n")
        if n and n % 50 == 0:
            for k in range(5):
                parts.append("\r" + bar(k, 31, k * 0.5, 0.5))
            parts.append(f"\n{{'eval_loss': 1.1, 'eval_runtime': 4.0, 'epoch': {n / 300}}}\n")
        clock.step()
    return Stream(
        text="".join(parts), unit="step", rate_s=step_s, at=at, remaining_s=(total - at) * step_s
    )


def lightning(step_s: float = 0.6, epoch: int = 2, n: int = 120) -> Stream:
    clock, parts, length = Clock(step_s), ["Sanity Checking: 0it [00:00, ?it/s]\n"], 200
    for e in range(epoch + 1):
        began_s = clock.now_s
        for i in range((length if e < epoch else n) + 1):
            more = ", v_num=4, train_loss=0.310"
            parts.append(f"\rEpoch {e}: " + bar(i, length, clock.now_s - began_s, step_s, more))
            clock.step()
        for i in range(20 if e < epoch else 0):
            parts.append("\rValidation DataLoader 0: " + bar(i, 20, i * 0.2, 0.2))
    return Stream(text="".join(parts), unit="step", rate_s=step_s)


def lightning_rich(step_s: float = 0.6) -> Stream:
    clock, parts = Clock(step_s), []
    for e in range(4):
        began_s = clock.now_s
        for i in range(0, 201 if e < 3 else 101, 5):
            elapsed_s = clock.now_s - began_s
            parts.append(
                f"Epoch {e}/9 ━━━━━━━━━━ {i}/200 {long_hms(elapsed_s)} • "
                f"{long_hms((200 - i) * step_s)} {1 / step_s:.2f}it/s v_num: 4 train_loss: 0.3\n"
            )
            clock.step(5)
    return Stream(
        text="".join(parts), unit="step", rate_s=step_s, at=700, remaining_s=1300 * step_s
    )


def keras_two(step_s: float = 0.9, epoch: int = 3, epochs: int = 20, n: int = 30) -> Stream:
    parts, length = [], 60
    for e in range(1, epoch + 1):
        parts.append(f"Epoch {e}/{epochs}\n")
        last = length if e < epoch else n
        for i in range(1, last + 1):
            if i == length:
                parts.append(
                    f"\b\b\b\r{i}/{length} [{'=' * 30}] - {length * step_s:.0f}s"
                    f" {step_s * 1000:.0f}ms/step - loss: 0.61 - val_loss: 0.66\n"
                )
            else:
                eta = f"{(length - i) * step_s:.0f}s"
                parts.append(
                    f"\r{i:2d}/{length} [{'=' * (i // 3)}>{'.' * (29 - i // 3)}] - ETA: {eta}"
                    " - loss: 0.7000"
                )
    left = (epochs - epoch) * length + length - n
    return Stream(text="".join(parts), unit="step", rate_s=step_s, remaining_s=left * step_s)


def keras_three(step_s: float = 0.25, epoch: int = 4, epochs: int = 12, n: int = 70) -> Stream:
    parts, length = [], 100
    for e in range(1, epoch + 1):
        parts.append(f"Epoch {e}/{epochs}\n")
        for i in range(1, (length if e < epoch else n) + 1):
            left_s = (length - i) * step_s if i < length else length * step_s
            parts.append(
                f"\r\x1b[1m{i}/{length}\x1b[0m \x1b[32m{'━' * 10}\x1b[0m\x1b[37m{'━' * 10}\x1b[0m "
                f"\x1b[1m{left_s:.0f}s\x1b[0m {step_s * 1000:.0f}ms/step - acc: 0.5 - loss: 0.7"
            )
        parts.append("\n")
    left = (epochs - epoch) * length + length - n
    return Stream(text="".join(parts), unit="step", rate_s=step_s, remaining_s=left * step_s)


def by_line(
    line: Callable[[Clock, int, int], str | None],
    *,
    step_s: float,
    length: int,
    epochs: int,
    every: int,
    stop: tuple[int, int],
    pause_s: float = 0.0,
    after: Callable[[Clock, int], str] | None = None,
) -> Iterator[str]:
    """Lines of a loop over epochs and steps that ends in the middle, with a pause an epoch."""
    clock = Clock(step_s)
    for e in range(epochs):
        for i in range(length):
            clock.step()
            if i % every == 0 and (text := line(clock, e, i)) is not None:
                yield text + "\n"
            if (e, i) == stop:
                return
        clock.pause(pause_s)
        if after is not None:
            yield after(clock, e) + "\n"


def torchvision(step_s: float = 0.48) -> Stream:
    def line(clock: Clock, e: int, i: int) -> str:
        slow = 30 if i == 0 else step_s
        return (
            f"Epoch: [{e}]  [{i:4d}/500]  eta: {long_hms((500 - i) * slow)}  lr: 0.1  img/s: 66.1"
            f"  loss: 2.1011 (2.3522)  time: {slow:.4f}  data: 0.0102  max mem: 9000"
        )

    text = "".join(by_line(line, step_s=step_s, length=500, epochs=9, every=10, stop=(1, 300)))
    return Stream(text=text, unit="step", rate_s=step_s)


def imagenet(step_s: float = 0.35) -> Stream:
    first = 20.0

    def line(clock: Clock, e: int, i: int) -> str:
        mean = (first + i * step_s) / (i + 1)
        value = first if i == 0 else step_s * (0.7 if i % 20 else 1.6)
        return (
            f"Epoch: [{e}][{i:4d}/1001]\tTime {value:6.3f} ({mean:6.3f})\tData  0.010 ( 0.060)\t"
            "Loss 2.1e+00 (2.3e+00)\tAcc@1  48.00 ( 46.10)"
        )

    text = "".join(by_line(line, step_s=step_s, length=1001, epochs=9, every=10, stop=(1, 600)))
    return Stream(text=text, unit="step", rate_s=step_s)


def hrnet(step_s: float = 0.66) -> Stream:
    def line(clock: Clock, e: int, i: int) -> str:
        return f"Epoch: [{e}/484] Iter:[{i}/247], Time: {step_s:.2f}, lr: [0.01], Loss: 3.547237"

    text = "".join(by_line(line, step_s=step_s, length=247, epochs=9, every=10, stop=(1, 200)))
    left = 484 * 247 - 447
    return Stream(text=text, unit="step", rate_s=step_s, at=447, remaining_s=left * step_s)


def timm(step_s: float = 0.5) -> Stream:
    def line(clock: Clock, e: int, i: int) -> str:
        return (
            f"Train: {e} [{i:>4d}/1251 ({100 * i // 1250:>3d}%)]  Loss: 3.1 (3.30)  "
            f"Time: {step_s:.3f}s,  {256 / step_s:.2f}/s  ({step_s * 1.01:.3f}s,  "
            f"{256 / step_s:.2f}/s)  LR: 1.000e-03  Data: 0.010 (0.060)"
        )

    text = "".join(by_line(line, step_s=step_s, length=1251, epochs=9, every=50, stop=(2, 600)))
    return Stream(text=text, unit="step", rate_s=step_s)


def swin(step_s: float = 0.45) -> Stream:
    def line(clock: Clock, e: int, i: int) -> str:
        stamp = clock.stamp("%Y-%m-%d %H:%M:%S")
        return (
            f"[{stamp} swin_tiny](main.py 205): INFO Train: [{e}/300][{i}/1251]\t"
            f"eta {long_hms((1251 - i) * step_s)} lr 0.000001\ttime {step_s:.4f} ({step_s:.4f})\t"
            "loss 6.9 (6.9)\tgrad_norm 1.2 (1.4)\tmem 9000MB"
        )

    text = "".join(by_line(line, step_s=step_s, length=1251, epochs=300, every=10, stop=(1, 400)))
    left = 300 * 1251 - 1251 - 400
    return Stream(text=text, unit="step", rate_s=step_s, at=1651, remaining_s=left * step_s)


def megatron(step_s: float = 0.8, first: int = 0, at: int = 900) -> Stream:
    lines = []
    for n in range(first + 10, at + 1, 10):
        value = step_s * (20 if n == first + 10 else 1) * 1000
        lines.append(
            f" iteration {n:8d}/    5000 | consumed samples: {n * 256:12d} | elapsed time per "
            f"iteration (ms): {value:.1f} | learning rate: 1.000E-05 | global batch size:   256 | "
            "lm loss: 6.1E+00 | loss scale: 1.0 | grad norm: 1.1 | skipped iterations: 0 |"
        )
        if n % 200 == 0:
            lines.append(
                f" validation loss at iteration {n} | lm loss value: 2.1E+00 | lm loss PPL: 9"
            )
    return Stream(
        text="\n".join(lines) + "\n",
        unit="step",
        rate_s=step_s,
        at=at,
        remaining_s=(5000 - at) * step_s,
    )


def nemo(step_s: float = 5.4) -> Stream:
    def line(clock: Clock, e: int, i: int) -> str:
        return (
            f"Training epoch 0, iteration {i}/999 | lr: 1e-05 | global_batch_size: 512 | "
            f"global_step: {i} | reduced_train_loss: 9.1 | train_step_timing in s: {step_s:.3f} | "
            f"consumed_samples: {(i + 1) * 512}"
        )

    text = "".join(by_line(line, step_s=step_s, length=1000, epochs=1, every=1, stop=(0, 240)))
    return Stream(text=text, unit="step", rate_s=step_s)


def deepspeed(step_s: float = 2.2) -> Stream:
    def line(clock: Clock, e: int, i: int) -> str:
        stamp = clock.stamp("%Y-%m-%d %H:%M:%S,%3")
        return (
            f"[{stamp}] [INFO] [logging.py:96:log_dist] [Rank 0] step={i}, skipped=2, lr=[1e-05], "
            f"mom=[(0.9, 0.95)]\n[{stamp}] [INFO] [timer.py:215:stop] epoch=0/micro_step={4 * i}/"
            f"global_step={i}, RunningAvgSamplesPerSec=64.1, CurrSamplesPerSec=66.0"
        )

    text = "".join(by_line(line, step_s=step_s, length=2000, epochs=1, every=10, stop=(0, 400)))
    return Stream(text=text, unit="step", rate_s=step_s, at=400)


def fairseq(step_s: float = 0.82) -> Stream:
    def line(clock: Clock, e: int, i: int) -> str:
        told = {
            "epoch": e + 1,
            "update": f"{e + i / 2000:.3f}",
            "loss": "5.1",
            "ups": f"{1 / step_s:.2f}",
            "num_updates": str(e * 2000 + i),
            "lr": "0.0004",
            "train_wall": f"{100 * step_s:.0f}",
            "wall": f"{clock.now_s:.0f}",
        }
        stamp = clock.stamp("%Y-%m-%d %H:%M:%S")
        return f"{stamp} | INFO | train_inner | {json.dumps(told)}"

    text = "".join(by_line(line, step_s=step_s, length=2000, epochs=9, every=100, stop=(1, 700)))
    return Stream(text=text, unit="step", rate_s=step_s, at=2700)


def mmengine(step_s: float = 0.37) -> Stream:
    def line(clock: Clock, e: int, i: int) -> str:
        left_s = (40000 - i) * step_s
        return (
            f"{clock.stamp('%m/%d %H:%M:%S')} - mmengine - INFO - Iter(train) [{i:5d}/40000]  lr: "
            f"9.0e-03  eta: {long_hms(left_s)}  time: {step_s:.4f}  data_time: 0.0080  "
            "memory: 9000  loss: 1.2000"
        )

    text = "".join(by_line(line, step_s=step_s, length=40000, epochs=1, every=50, stop=(0, 3000)))
    return Stream(text=text, unit="step", rate_s=step_s, at=3000, remaining_s=37000 * step_s)


def mmengine_epochs(step_s: float = 0.5) -> Stream:
    def line(clock: Clock, e: int, i: int) -> str:
        left_s = (12 * 400 - e * 400 - i) * step_s
        return (
            f"{clock.stamp('%Y/%m/%d %H:%M:%S')} - mmengine - INFO - Epoch(train)  [{e + 1}]"
            f"[{i:4d}/400]  lr: 2.0e-02  eta: {long_hms(left_s)}  time: {step_s:.4f}  data_time: "
            "0.0120  memory: 5000  loss: 1.2000"
        )

    def after(clock: Clock, e: int) -> str:
        head = f"{clock.stamp('%Y/%m/%d %H:%M:%S')} - mmengine - INFO - Epoch(val)"
        return f"{head} [{e + 1}][50/62]    eta: 0:00:01  time: 0.1000  data_time: 0.0010"

    made = by_line(
        line, step_s=step_s, length=400, epochs=12, every=50, stop=(2, 200), pause_s=15, after=after
    )
    return Stream(
        text="".join(made), unit="step", rate_s=step_s, remaining_s=(4800 - 1000) * step_s
    )


def detectron(step_s: float = 0.4) -> Stream:
    def line(clock: Clock, e: int, i: int) -> str:
        return (
            f"[{clock.stamp('%m/%d %H:%M:%S')} d2.utils.events]:  eta: "
            f"{long_hms((18000 - i) * step_s)}  iter: {i}  total_loss: 0.61  loss_cls: 0.2  "
            f"time: {step_s:.4f}  last_time: {step_s * 1.02:.4f}  data_time: 0.0100  lr: 0.01  "
            "max_mem: 9000M"
        )

    text = "".join(by_line(line, step_s=step_s, length=18000, epochs=1, every=20, stop=(0, 3000)))
    return Stream(text=text, unit="step", rate_s=step_s, at=3000, remaining_s=15000 * step_s)


def yolox(step_s: float = 0.31) -> Stream:
    def line(clock: Clock, e: int, i: int) -> str:
        left_s = (300 * 118 - e * 118 - i) * step_s
        return (
            f"{clock.stamp('%Y-%m-%d %H:%M:%S')} | INFO     | yolox.core.trainer:260 - epoch: "
            f"{e + 1}/300, iter: {i + 1}/118, mem: 9000Mb, iter_time: {step_s:.3f}s, data_time: "
            f"0.001s, total_loss: 9.1, lr: 1.0e-03, size: 640, ETA: {long_hms(left_s)}"
        )

    text = "".join(by_line(line, step_s=step_s, length=118, epochs=300, every=10, stop=(3, 60)))
    return Stream(
        text=text, unit="step", rate_s=step_s, remaining_s=(300 * 118 - 3 * 118 - 61) * step_s
    )


def ultralytics(step_s: float = 0.38, first: int = 1, epochs: int = 100) -> Stream:
    clock, parts = Clock(step_s), []
    shown = epochs if first else epochs - 1
    for e in range(4):
        began_s = clock.now_s
        parts.append(
            "\n      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n"
        )
        for i in range(119 if e < 3 else 61):
            elapsed_s = clock.now_s - began_s
            head = f"{e + first:>7}/{shown}      6.1G     0.051     0.032     0.011   210   640: "
            parts.append("\r" + head + bar(i, 118, elapsed_s, step_s))
            clock.step()
        if e < 3:
            for i in range(11):
                head = "\r                 Class     Images  Instances      Box(P      mAP50: "
                parts.append(head + bar(i, 10, i * 0.5, 0.5))
            parts.append("\n                   all        128        929      0.64       0.53\n")
    left = (epochs - 3) * 118 - 60
    return Stream(text="".join(parts), unit="step", rate_s=step_s, remaining_s=left * step_s)


def nanogpt(step_s: float = 0.31) -> Stream:
    lines = ["max_iters = 5000"]
    for n in range(0, 1201, 10):
        slow = 9 if n % 250 == 0 else 1
        if n % 250 == 0:
            lines.append(f"step {n}: train loss 2.9012, val loss 3.0011")
        lines.append(f"iter {n}: loss 3.1000, time {step_s * slow * 1000:.2f}ms, mfu 21.40%")
    return Stream(
        text="\n".join(lines) + "\n", unit="step", rate_s=step_s, at=1200, remaining_s=3800 * step_s
    )


def nanochat(step_s: float = 0.31) -> Stream:
    lines = []
    for n in range(0, 700):
        left = f" | eta: {(2000 - n) * step_s / 60:.1f}m" if n > 10 else ""
        lines.append(
            f"step {n:05d}/02000 ({n / 20:.2f}%) | loss: 3.1 | dt: {step_s * 1000:.2f}ms"
            f" | tok/sec: 100,100 | mfu: 41.20 | total time: {n * step_s / 60:.2f}m{left}"
        )
    return Stream(
        text="\n".join(lines) + "\n", unit="step", rate_s=step_s, at=699, remaining_s=1301 * step_s
    )


def torchtitan(step_s: float = 1.7) -> Stream:
    def line(clock: Clock, e: int, i: int) -> str:
        stamp = clock.stamp("%Y-%m-%d %H:%M:%S,%3")
        return (
            f"[rank0]:[titan] {stamp} - root - INFO - \x1b[31mstep: {i:2d}  \x1b[32mloss: 3.1000  "
            f"\x1b[33mmemory: 40.10GiB(50.00%)  \x1b[34mtps: {8192 / step_s:,.0f}  "
            "\x1b[35mmfu: 41.20%\x1b[39m"
        )

    text = "".join(by_line(line, step_s=step_s, length=1000, epochs=1, every=10, stop=(0, 300)))
    return Stream(text=text, unit="step", rate_s=step_s, at=300)


def litgpt(step_s: float = 0.4) -> Stream:
    lines = [
        f"Epoch 1 | iter {n} step {n // 4} | loss train: 2.1, val: n/a | iter time: "
        f"{step_s * 1000:.2f} ms{' (step)' if n % 4 == 0 else ''}"
        for n in range(1, 500)
    ]
    return Stream(text="\n".join(lines) + "\n", unit="step", rate_s=step_s)


def paddle(step_s: float = 0.31) -> Stream:
    def line(clock: Clock, e: int, i: int) -> str:
        left_s = (100 * 200 - e * 200 - i) * step_s
        return (
            f"[{clock.stamp('%Y/%m/%d %H:%M:%S')}] ppocr INFO: epoch: [{e + 1}/100], global_step: "
            f"{e * 200 + i}, lr: 0.001000, loss: 1.2, avg_reader_cost: 0.00100 s, avg_batch_cost: "
            f"{step_s:.5f} s, avg_samples: 64.0, ips: {64 / step_s:.5f} samples/s, "
            f"eta: {long_hms(left_s)}"
        )

    text = "".join(by_line(line, step_s=step_s, length=200, epochs=100, every=10, stop=(3, 100)))
    return Stream(text=text, unit="step", rate_s=step_s, at=700, remaining_s=19300 * step_s)


def maxtext(step_s: float = 1.2) -> Stream:
    lines = [
        f"completed step: {n}, seconds: {40 if n == 0 else step_s:.3f}, TFLOP/s/device: 210.1, "
        "Tokens/s/device: 6800.1, total_weights: 65536, loss: 4.100"
        for n in range(200)
    ]
    return Stream(text="\n".join(lines) + "\n", unit="step", rate_s=step_s)


def llm_c(step_s: float = 0.31) -> Stream:
    lines = [
        f"step {n:5d}/19560 | loss 5.100000 (+0.10z)| norm 0.9000 (-0.10z)| lr 1.00e-04 | "
        f"{step_s * 1000:.2f} ms | 50.1% bf16 MFU | 1688000 tok/s"
        for n in range(1, 900)
    ]
    return Stream(
        text="\n".join(lines) + "\n", unit="step", rate_s=step_s, at=899, remaining_s=18661 * step_s
    )


def openpi(step_s: float = 0.48) -> Stream:
    lines = []
    for n in range(100, 3001, 100):
        left, gone = long_hms((30000 - n) * step_s), long_hms(n * step_s)
        rate = f"rate:{1 / step_s:.1f}it/s remaining:{left} elapsed:{gone} postfix:-"
        lines.append(
            f"Progress on: {n / 1000:.2f}kit/30.0kit {rate}\nStep {n}: loss=0.1, grad_norm=1"
        )
    return Stream(
        text="\n".join(lines) + "\n", unit="step", rate_s=step_s, remaining_s=27000 * step_s
    )


def opennmt(step_s: float = 0.25) -> Stream:
    def line(clock: Clock, e: int, i: int) -> str:
        return (
            f"[{clock.stamp('%Y-%m-%d %H:%M:%S,%3')} INFO] Step {i}/100000; acc: 41.2; ppl:  21.1; "
            f"xent: 3.0; lr: 0.0004; sents:    9000; bsz: 3100/2900/40; 30500/29100 tok/s;"
            f" {clock.now_s:6.0f} sec;"
        )

    text = "".join(by_line(line, step_s=step_s, length=100000, epochs=1, every=50, stop=(0, 2000)))
    return Stream(text=text, unit="step", rate_s=step_s, at=2000, remaining_s=98000 * step_s)


def own_epochs(epoch_s: float = 34.0) -> Stream:
    lines = [
        f"Epoch {n}/100, Loss {3 / n:.4f}, Val Acc {n}.10, time {epoch_s + n % 2:.1f}s"
        for n in range(1, 13)
    ]
    return Stream(
        text="\n".join(lines) + "\n", unit="epoch", rate_s=epoch_s, at=12, remaining_s=88 * epoch_s
    )


def own_epochs_stamped(epoch_s: float = 95.0) -> Stream:
    clock, lines = Clock(epoch_s), []
    for n in range(1, 15):
        clock.step()
        lines.append(
            f"{clock.stamp('%H:%M:%S')} INFO epoch={n:03d} train_loss={3 / n:.4f} lr=0.001"
        )
    return Stream(text="\n".join(lines) + "\n", unit="epoch", rate_s=epoch_s, at=14)


def own_epochs_cumulative(epoch_s: float = 12.0) -> Stream:
    clock, lines = Clock(epoch_s), ["Namespace(batch_size=64, epochs=50, lr=0.1)"]
    for n in range(20):
        clock.step()
        lines.append(f"Epoch: {n} | Train Loss: 0.31 | Elapsed: {clock.now_s:.1f}s")
    return Stream(
        text="\n".join(lines) + "\n", unit="epoch", rate_s=epoch_s, at=20, remaining_s=30 * epoch_s
    )


def own_brackets(step_s: float = 0.7) -> Stream:
    def line(clock: Clock, e: int, i: int) -> str:
        return f"{clock.stamp('%b %d %H:%M:%S')} [{e + 1}/20][{i}/300] Loss_D: 0.5 Loss_G: 1.2"

    text = "".join(by_line(line, step_s=step_s, length=300, epochs=20, every=10, stop=(2, 150)))
    return Stream(
        text=text, unit="step", rate_s=step_s, remaining_s=(20 * 300 - 2 * 300 - 150) * step_s
    )


def word_language_model(step_s: float = 0.0123) -> Stream:
    def line(clock: Clock, e: int, i: int) -> str | None:
        if i == 0:
            return None
        ms = step_s * 1000
        return (
            f"| epoch {e + 1:3d} | {i:5d}/ 2983 batches | lr 20.00 | ms/batch {ms:5.2f} | "
            "loss  5.10 | ppl   164.02"
        )

    text = "".join(by_line(line, step_s=step_s, length=2983, epochs=9, every=200, stop=(2, 1000)))
    return Stream(text=text, unit="step", rate_s=step_s)


def slim(step_s: float = 0.09) -> Stream:
    lines = [
        f"INFO:tensorflow:global step {n}: loss = 0.4012 ({step_s:.3f} sec/step)"
        for n in range(1, 500)
    ]
    return Stream(text="\n".join(lines) + "\n", unit="step", rate_s=step_s, at=499)


def caffe(step_s: float = 0.32) -> Stream:
    def line(clock: Clock, e: int, i: int) -> str:
        head = f"I{clock.stamp('%m%d %H:%M:%S')}.678901  1234 solver.cpp:218] Iteration {i} "
        return head + f"({1 / step_s:.5g} iter/s, {100 * step_s:.5g}s/100 iters), loss = 0.61"

    text = "max_iter: 20000\n" + "".join(
        by_line(line, step_s=step_s, length=20000, epochs=1, every=100, stop=(0, 4000))
    )
    return Stream(text=text, unit="step", rate_s=step_s, at=4000, remaining_s=16000 * step_s)


def mnist(step_s: float = 0.05) -> Stream:
    def line(clock: Clock, e: int, i: int) -> str:
        done = f"{64 * i}/60000 ({100 * i / 938:.0f}%)"
        return f"[{clock.stamp('%Y-%m-%d %H:%M:%S')}] Train Epoch: {e + 1} [{done}]\tLoss: 0.3"

    text = "".join(by_line(line, step_s=step_s, length=938, epochs=14, every=10, stop=(3, 500)))
    return Stream(text=text, unit="sample", rate_s=step_s / 64)


def by_steps_and_elapsed(step_s: float = 1.5) -> Stream:
    clock, lines = Clock(step_s), []
    for n in range(1, 301):
        clock.step()
        if n % 25 == 0:
            gone = long_hms(clock.now_s)
            lines.append(f"step {n} of 4000 - loss 2.31 - elapsed {gone} - lr 3e-4")
    return Stream(
        text="\n".join(lines) + "\n", unit="step", rate_s=step_s, at=300, remaining_s=3700 * step_s
    )


def nested_bars(step_s: float = 0.4) -> Stream:
    """A bar of epochs above a bar of batches without a name."""
    parts = []
    for e in range(6):
        parts.append("\rEpochs: " + bar(e, 12, e * 100 * step_s, 100 * step_s))
        for i in range(101 if e < 5 else 51):
            parts.append("\r" + bar(i, 100, i * step_s, step_s, ", loss=0.1"))
    return Stream(text="".join(parts), unit="step", rate_s=step_s, at=550, remaining_s=650 * step_s)


def bars_at_their_end(step_s: float = 0.0128) -> Stream:
    """Only the last refresh of a bar without a name, then the line of the epoch."""
    parts = []
    for e in range(1, 12):
        parts.append("\r" + bar(938, 938, 938 * step_s, step_s))
        parts.append(f"\nEpoch {e}/20 loss: 0.3 acc: 0.9\n")
    left = 9 * 938 * step_s
    return Stream(text="".join(parts), unit="step", rate_s=step_s, at=11 * 938, remaining_s=left)


def keras_by_epoch(step_s: float = 0.013) -> Stream:
    parts = [
        f"Epoch {e}/50\n938/938 - 12s - loss: 0.3 - val_loss: 0.4 - 12s/epoch - 13ms/step\n"
        for e in range(1, 20)
    ]
    left = 31 * 938 * step_s
    return Stream(text="".join(parts), unit="step", rate_s=step_s, at=19 * 938, remaining_s=left)


def stable_baselines(step_s: float = 24 / 2048) -> Stream:
    parts = [
        f"{'-' * 40}\n| rollout/            |          |\n|    ep_rew_mean      | {n}.5     |\n"
        f"| time/               |          |\n|    fps              | 85       |\n"
        f"|    iterations       | {n}      |\n|    time_elapsed     | {24 * n} |\n"
        f"|    total_timesteps  | {2048 * n} |\n| train/              |          |\n"
        f"|    loss             | 0.1      |\n{'-' * 40}\n"
        for n in range(1, 30)
    ]
    return Stream(text="".join(parts), unit="step", rate_s=step_s, at=29 * 2048)


def own_eta_of_the_run(step_s: float = 0.4) -> Stream:
    """The time left is longer than the epoch still takes: it is that of the run."""
    lines = [
        f"epoch [3][{n}/500] loss 0.3 eta: {long_hms(40000 - n * step_s)} time/iter: {step_s:.2f}s"
        for n in range(10, 400, 10)
    ]
    left = 40000 - 390 * step_s
    return Stream(text="\n".join(lines) + "\n", unit="step", rate_s=step_s, remaining_s=left)


def episodes(step_s: float = 4.0) -> Stream:
    clock, lines = Clock(step_s), []
    for n in range(1, 80):
        clock.step()
        stamp = clock.stamp("%d/%m/%Y %I:%M:%S %p")
        lines.append(f"{stamp} Episode {n}/500 reward: {n * 1.1:.2f} epsilon: 0.10")
    return Stream(
        text="\n".join(lines) + "\n", unit="step", rate_s=step_s, at=79, remaining_s=421 * step_s
    )


def catboost(step_s: float = 7.0) -> Stream:
    def spent(count: int) -> str:
        minutes, seconds = divmod(int(count * step_s), 60)
        return f"{minutes // 60}h {minutes % 60}m {seconds}s"

    lines = [
        f"{n}:\tlearn: {0.7 - n / 5000:.7f}\ttest: 0.6\tbest: 0.6 ({n})\ttotal: {spent(n + 1)}"
        f"\tremaining: {spent(999 - n)}"
        for n in range(600, 700, 10)
    ]
    return Stream(
        text="\n".join(lines) + "\n", unit="step", rate_s=step_s, at=690, remaining_s=309 * step_s
    )


def marian(step_s: float = 0.12) -> Stream:
    clock, lines = Clock(step_s * 500), []
    for n in range(1, 50):
        clock.step()
        words = f"Ep. 1 : Up. {500 * n} : Sen. {16000 * n} : Cost 5.1 : Time 60s : 45000 words/s"
        lines.append(f"[{clock.stamp('%Y-%m-%d %H:%M:%S')}] {words}")
    return Stream(text="\n".join(lines) + "\n", unit="step", rate_s=step_s, at=24500)


REGULAR: dict[str, Callable[[], Stream]] = {
    made.__name__: made
    for made in (
        tqdm_run,
        tqdm_epochs,
        trainer,
        lightning,
        lightning_rich,
        keras_two,
        keras_three,
        torchvision,
        imagenet,
        timm,
        swin,
        hrnet,
        megatron,
        nemo,
        deepspeed,
        fairseq,
        mmengine,
        mmengine_epochs,
        detectron,
        yolox,
        ultralytics,
        nanogpt,
        nanochat,
        torchtitan,
        litgpt,
        paddle,
        maxtext,
        llm_c,
        openpi,
        opennmt,
        own_epochs,
        own_epochs_stamped,
        own_epochs_cumulative,
        own_brackets,
        word_language_model,
        slim,
        caffe,
        mnist,
        by_steps_and_elapsed,
        nested_bars,
        bars_at_their_end,
        keras_by_epoch,
        stable_baselines,
        own_eta_of_the_run,
        episodes,
        catboost,
        marian,
    )
}
