"""A training that only sleeps, and prints what real ones print; run by jobs, not by tests.

``FORMAT=trainer SECONDS=300 SEED=7 python training.py run_glue.py --num_train_epochs 3``: what it
is called with is for those who read the job; its length is drawn. It starts up, its first step is
slow, steps vary and some are late, each epoch waits for its loader, evaluates and saves, and the
end exports. Lines are written as by the programs themselves: bars by tqdm to stderr, own prints
through the buffer of stdout where Python buffers it.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

START, EVALUATION, EXPORT = (0.02, 0.06), (0.02, 0.10), (0.0, 0.01)  # shares of a run
SPREAD, LATE, LATE_FACTOR, LEAST_STEPS = 0.08, 0.01, 4.0, 12
EPOCHS = {
    "tqdm": (5, 20),
    "trainer": (3, 6),
    "lightning": (5, 20),
    "keras": (5, 20),
    "imagenet": (5, 20),
    "timm": (5, 20),
    "megatron": (1, 1),
    "nanogpt": (1, 1),
}
FORMATS = tuple(EPOCHS)


class Training:
    """What takes how long: ``seconds`` in all but for chance, drawn by ``seed``."""

    def __init__(self, form: str, seed: int, seconds: float) -> None:
        self.rng = random.Random(f"{form} {seed}")
        self.epochs = self.rng.randint(*EPOCHS[form])
        shares = (self.rng.uniform(*share) for share in (START, EVALUATION, EXPORT))
        start, evaluation, export = shares
        work_s = seconds * (1 - start - export)
        epoch_s = work_s * (1 - evaluation) / self.epochs
        self.step_s = min(self.rng.uniform(0.05, 0.25), epoch_s / LEAST_STEPS)
        self.steps = round(epoch_s / self.step_s)
        self.start_s, self.export_s = seconds * start, seconds * export
        self.evaluation_s = work_s * evaluation / (8 if self.epochs == 1 else self.epochs)
        self.evaluations = max(2, round(self.evaluation_s / (0.6 * self.step_s)))
        self.first_s = self.rng.uniform(5, 15) * self.step_s
        self.loss = 7.0
        self._begun_s = self._now_s = time.monotonic()
        self._next = self.first_s

    @property
    def total(self) -> int:
        return self.epochs * self.steps

    def wait(self, seconds: float) -> float:
        """Sleep so long after what was last slept: being late does not add up."""
        self._now_s += seconds
        time.sleep(max(0.0, self._now_s - time.monotonic()))
        return seconds

    def step(self) -> float:
        """One step; the seconds it took."""
        took_s = self.step_s * self.rng.lognormvariate(0.0, SPREAD) + self._next
        self._next = 0.0
        if self.rng.random() < LATE:
            took_s *= LATE_FACTOR
        self.loss = 0.999 * self.loss + 0.001 * self.rng.uniform(0.5, 1.5)
        return self.wait(took_s)

    def loader(self) -> None:
        """A new epoch waits for its workers."""
        self.wait(self.rng.uniform(0.5, 3.0) * self.step_s)

    def batches(self) -> Iterator[int]:
        """The batches of one evaluation, and saving after it."""
        for batch in range(self.evaluations):
            self.wait(self.evaluation_s / self.evaluations * self.rng.lognormvariate(-0.01, 0.1))
            yield batch
        self.wait(self.step_s)

    def evaluate(self, **options: Any) -> None:
        """One evaluation, with a bar where options of one are given."""
        for _ in (
            bar(self.batches(), total=self.evaluations, **options) if options else self.batches()
        ):
            pass


def log(text: str) -> None:
    """By a logger: to stderr, at once."""
    print(text, file=sys.stderr, flush=True)


def bar(count: Iterable[int] | None = None, **options: Any) -> Any:
    """A bar of the real tqdm."""
    from tqdm import tqdm

    return tqdm(count, **options)


def own_loop(t: Training) -> None:
    """A bar over epochs, one over the steps of each inside, and a print after it."""
    print(f"Loading data from /data/train ({t.steps * 32} samples)")
    for _ in bar(range(200), desc="Caching images"):
        time.sleep(0.001)
    for epoch in bar(range(t.epochs), desc="Epochs"):
        t.loader()
        steps = bar(range(t.steps), leave=False)
        for _ in steps:
            t.step()
            steps.set_postfix(loss=f"{t.loss:.4f}")
        t.evaluate(desc="Validation", leave=False)
        print(f"Epoch {epoch + 1}: val_loss={t.loss:.4f} val_acc={1 / t.loss:.3f}")


def trainer(t: Training) -> None:
    """Transformers' Trainer: a bar over all steps, dictionaries of losses, bars of evaluations."""
    for _ in bar(range(9), desc="Map"):
        time.sleep(0.01)
    steps = bar(total=t.total)
    for number in range(1, t.total + 1):
        t.step()
        steps.update(1)
        epoch = round(number / t.steps, 2)
        if number % max(1, t.total // 60) == 0:
            told = {"loss": round(t.loss, 4), "learning_rate": 4.8e-05, "epoch": epoch}
            steps.write(str(told))
        if number % t.steps == 0:
            t.evaluate(leave=False)
            steps.write(str({"eval_loss": round(t.loss, 4), "epoch": epoch}))
    steps.close()


def lightning(t: Training) -> None:
    """Lightning: the bar of an epoch, and one of its validation under it."""
    form = "{desc}{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} "
    form += "[{elapsed}<{remaining}, {rate_noinv_fmt}{postfix}]"
    log("GPU available: True (cuda), used: True\n  | Name | Type | Params\n0 | net | Net | 11 M")
    for _ in bar(range(2), desc="Sanity Checking DataLoader 0", bar_format=form):
        t.wait(t.step_s)
    steps = bar(total=t.steps, bar_format=form)
    for epoch in range(t.epochs):
        t.loader()
        steps.reset()
        steps.set_description(f"Epoch {epoch}", refresh=False)
        for _ in range(t.steps):
            t.step()
            steps.set_postfix_str(f"v_num=3, train_loss={t.loss:.3f}", refresh=False)
            steps.update(1)
        t.evaluate(desc="Validation DataLoader 0", bar_format=form, leave=False)
    steps.close()
    log(f"`Trainer.fit` stopped: `max_epochs={t.epochs}` reached.")


def keras(t: Training) -> None:
    """Keras 3: a line for each epoch, and a bar that is written anew after each step."""
    for epoch in range(t.epochs):
        print(f"Epoch {epoch + 1}/{t.epochs}", flush=True)
        t.loader()
        gone_s, started_s = 0.0, time.monotonic()
        for step in range(1, t.steps + 1):
            gone_s = 0.0 if step == 2 else gone_s  # the first step is not in the mean
            gone_s += t.step()
            each_s, full = gone_s / max(1, step - 1), round(20 * step / t.steps)
            print(
                f"\r\x1b[1m{step}/{t.steps}\x1b[0m "
                f"\x1b[32m{'━' * full}\x1b[0m\x1b[37m{'━' * (20 - full)}\x1b[0m "
                f"\x1b[1m{each_s * (t.steps - step):.0f}s\x1b[0m {each_s * 1000:.0f}ms/step"
                f" - accuracy: 0.5 - loss: {t.loss:.4f}",
                end="",
                flush=True,
            )
        t.evaluate()
        took_s = time.monotonic() - started_s
        print(
            f"\r{t.steps}/{t.steps} {'━' * 20} {took_s:.0f}s {1000 * took_s / t.steps:.0f}ms/step"
            f" - accuracy: 0.5 - loss: {t.loss:.4f} - val_loss: {t.loss:.4f}",
            flush=True,
        )


def imagenet(t: Training) -> None:
    """PyTorch's ImageNet example."""
    print("=> creating model 'resnet50'")
    loss, every = f"Loss {t.loss:.4e} ({t.loss:.4e})", max(1, t.steps // 10)
    for epoch in range(t.epochs):
        t.loader()
        times: list[float] = []
        for step in range(t.steps):
            times.append(t.step())
            if step % every == 0:
                print(
                    f"Epoch: [{epoch}][{step + 1:4d}/{t.steps}]\t"
                    f"Time {times[-1]:6.3f} ({sum(times) / len(times):6.3f})\t"
                    f"Data  0.001 ( 0.010)\t{loss}\tAcc@1  10.1 (  9.5)"
                )
        for batch in t.batches():
            if batch % 10 == 0:
                print(f"Test: [{batch + 1:3d}/{t.evaluations}]\tTime  0.1 ( 0.1)\t{loss}")
        print(" *   Acc@1 10.000 Acc@5 30.000")


def timm(t: Training) -> None:
    """timm's train.py."""
    log(f"Scheduled epochs: {t.epochs}. LR stepped per epoch.")
    every = max(1, t.steps // 8)
    for epoch in range(t.epochs):
        t.loader()
        times: list[float] = []
        for step in range(t.steps):
            times.append(t.step())
            if step % every == 0 or step == t.steps - 1:
                mean_s, share = sum(times) / len(times), 100 * step / (t.steps - 1)
                log(
                    f"Train: {epoch} [{step:>4d}/{t.steps} ({share:>3.0f}%)]  Loss: {t.loss:#.3g}"
                    f" ({t.loss:#.3g})  Time: {times[-1]:.3f}s, {128 / times[-1]:>7.2f}/s  "
                    f"({mean_s:.3f}s, {128 / mean_s:>7.2f}/s)  LR: 1.000e-03  Data: 0.010 (0.012)"
                )
        for batch in t.batches():
            if batch % 10 == 0:
                log(
                    f"Test: [{batch:>4d}/{t.evaluations - 1}]  Time: 0.100 (0.100)  Loss: 6.9 (6.9)"
                )
        log(f"*** Best metric: {10 + epoch} (epoch {epoch})")


def megatron(t: Training) -> None:
    """Megatron-LM, with an evaluation every eighth of its iterations."""
    print("------------------------ arguments ------------------------", flush=True)
    print(f"  train_iters ..................................... {t.total}", flush=True)
    every, pause = max(1, t.total // 100), max(1, t.total // 8)
    stamped = t.rng.random() < 0.5
    times: list[float] = []
    for number in range(1, t.total + 1):
        times.append(t.step())
        if number % every == 0:
            mean_ms = 1000 * sum(times) / len(times)
            times.clear()
            stamp = f"[{datetime.now():%Y-%m-%d %H:%M:%S}] " if stamped else ""
            print(
                f" {stamp}iteration {number:8d}/{t.total:8d} | consumed samples: "
                f"{number * 256:12d} | elapsed time per iteration (ms): {mean_ms:.1f} | "
                f"learning rate: 1.000000E-05 | global batch size:   256 | lm loss: {t.loss:.6E} | "
                "loss scale: 1.0 | grad norm: 0.9 | number of skipped iterations:   0 |",
                flush=True,
            )
        if number % pause == 0:
            t.evaluate()
            print(f" validation loss at iteration {number} | lm loss value: 6.9E+00 |", flush=True)


def nanogpt(t: Training) -> None:
    """nanoGPT: evaluates at step 0 and every eighth, and times an iteration with it."""
    print(f"Overriding: max_iters = {t.total}\ntokens per iteration will be: 491,520")
    every, pause = max(1, t.total // 500), max(1, t.total // 8)
    for number in range(t.total + 1):
        took_s = 0.0
        if number % pause == 0:
            began_s = time.monotonic()
            t.evaluate()
            took_s = time.monotonic() - began_s
            print(f"step {number}: train loss {t.loss:.4f}, val loss {t.loss:.4f}")
        took_s += t.step()
        if number % every == 0:
            print(f"iter {number}: loss {t.loss:.4f}, time {1000 * took_s:.2f}ms, mfu 21.40%")


PROGRAMS: dict[str, Callable[[Training], None]] = {
    "tqdm": own_loop,
    "trainer": trainer,
    "lightning": lightning,
    "keras": keras,
    "imagenet": imagenet,
    "timm": timm,
    "megatron": megatron,
    "nanogpt": nanogpt,
}


if __name__ == "__main__":
    run = Training(os.environ["FORMAT"], int(os.environ["SEED"]), float(os.environ["SECONDS"]))
    run.wait(run.start_s)
    PROGRAMS[os.environ["FORMAT"]](run)
    run.wait(run.export_s)
