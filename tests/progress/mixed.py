"""Outputs where a training stands beside what looks like one, each with what is true of it."""

from __future__ import annotations

from collections.abc import Callable

from streams import Clock, Stream, bar, long_hms


def unnamed_bars(step_s: float = 0.5, at: int = 660) -> Stream:
    """The bar of the run, and inside it bars of evaluations, all without a name."""
    now_s, parts = 0.0, []
    for n in range(1, at + 1):
        now_s += step_s
        parts.append("\r" + bar(n, 1000, now_s, step_s))
        if n % 60 == 0:
            now_s += 15
            parts.append("it/s]".join(("\r" + bar(n, 1000, now_s, step_s)).split("it/s]")))
            parts += ["\r" + bar(i, 30, i * 0.25, 0.25) for i in range(1, 31)]
            parts += [f"\r{i}it [00:{i // 4:02d},  4.00it/s]" for i in range(1, 30)]
            parts.append(f"\n{{'eval_loss': 0.4, 'eval_f1': 0.9, 'epoch': {n / 60}}}\n")
            parts.append(f"INFO - ***** Epoch {n // 60}: best results *****\n")
        if n % 250 == 0:
            parts.append(f"\n{{'loss': 0.5, 'learning_rate': 3e-5, 'epoch': {n / 60}}}\n")
    left = (1000 - at) * (step_s + 0.25)
    return Stream(text="".join(parts), unit="step", rate_s=step_s, at=at, remaining_s=left)


def losses_of_a_gan(step_s: float = 0.6, at: int = 300) -> Stream:
    """No word for a loss: the two networks that play against each other have one each."""
    parts = (f"\rD: -0.{n}; G: 1.{n}: " + bar(n, 2000, n * step_s, step_s) for n in range(1, at))
    text = "".join(parts)
    left = (2001 - at) * step_s
    return Stream(text=text, unit="step", rate_s=step_s, at=at - 1, remaining_s=left)


def an_epoch_in_brackets(step_s: float = 0.6) -> Stream:
    """Bars of an epoch, whose times left are not the run's, and parts of a step beside it."""
    lines = [
        f"\rmot |train: [{e}][{i}/400]|Tot: {long_hms(i * step_s)} |ETA: "
        f"{long_hms((400 - i) * step_s)} |loss 3.{i} |Data 0.001s(0.003s) |Net {step_s - 0.002}s"
        for e in range(1, 4)
        for i in range(400 if e < 3 else 301)
    ]
    return Stream(text="".join(lines) + "\n", unit="step", rate_s=step_s, at=1100)


def ever_slower(at: int = 900) -> Stream:
    """A model that grows: each step takes longer than the one before, as the bar says too."""
    parts, now_s = [], 0.0
    for n in range(1, at + 1):
        now_s += 2 * n / 3000
        parts.append(f"\r{bar(n, 3000, now_s, 2 * n / 3000)[:-1]}, loss=0.{n}]")
    rate_s = 2 * 0.95 * at / 3000
    return Stream(text="".join(parts), unit="step", rate_s=rate_s, at=at, remaining_s=2100 * rate_s)


def evaluated_at_the_end(step_s: float = 2.0) -> Stream:
    """Bars without a name of an evaluation, before the training and after it."""
    evaluation = "".join("\r" + bar(i, 100, i * 0.4, 0.4) for i in range(1, 101)) + "\n"
    parts = [evaluation]
    for n in range(1, 181):
        parts.append("\r" + bar(n, 180, n * step_s, step_s))
        if n % 40 == 0:
            parts.append(f"\n{{'loss': 0.5, 'learning_rate': 3e-5, 'epoch': {n / 180}}}\n")
    text = "".join([*parts, "\n", evaluation])
    return Stream(text=text, unit="step", rate_s=step_s, at=180, remaining_s=0.0)


def saved_epochs_evaluated(step_s: float = 0.5) -> Stream:
    """After its training a program prints the same lines for each saved epoch, without losses."""
    clock, lines = Clock(step_s), []
    for e in range(6):
        for i in range(0, 500, 50):
            lines.append(f"{clock.stamp('%Y-%m-%d %H:%M:%S')} epoch: {e}, step: {i}, loss: 0.3")
            clock.step(50)
    for e in range(6):
        lines.append(f"{clock.stamp('%Y-%m-%d %H:%M:%S')} epoch: {e}, step: 0, acc: 0.9")
        clock.step(20)
    return Stream(text="max_epochs=6\n" + "\n".join(lines) + "\n", unit="step", rate_s=step_s)


def times_at_the_end_of_epochs(epoch_s: float = 271.8078498840332) -> Stream:
    """Lines of steps without a time; those at the end of an epoch have one of many digits."""
    parts = []
    for e in range(1, 9):
        parts += [
            f"[epoch: {e}/20, iter: {i}/90] total: 1.{i}, loss: 0.4\n" for i in range(9, 91, 9)
        ]
        parts.append(f"saving model at the end of epoch {e}\n")
        parts.append(f"End of epoch {e} / 20   Time Taken: {epoch_s + e / 7} sec\n")
    return Stream(text="".join(parts), unit="epoch", rate_s=epoch_s, at=8, remaining_s=12 * epoch_s)


def compiled_first(step_s: float = 0.25) -> Stream:
    """The first of few lines holds a compilation of a minute."""
    lines = [
        "step 00000/00900 (0.00%) | loss: 10.3 | dt: 60162.03ms | epoch: 1",
        f"step 00100/00900 (11.1%) | loss: 4.8 | dt: {step_s * 1000:.2f}ms | epoch: 1",
    ]
    return Stream(
        text="\n".join(lines) + "\n", unit="step", rate_s=step_s, at=100, remaining_s=800 * step_s
    )


def a_sweep_of_one_run_after_another(step_s: float = 0.25) -> Stream:
    """Runs of the same length in one file; the counter of the run names an epoch too."""
    lines = [
        f"step {n:05d}/00900 | loss: 4.{n} | dt: {step_s * 1000:.2f}ms | epoch: 1"
        for runs in range(4)
        for n in range(0, 900 if runs < 3 else 301, 100)
    ]
    return Stream(
        text="\n".join(lines) + "\n", unit="step", rate_s=step_s, at=300, remaining_s=600 * step_s
    )


def options_of_what_does_not_happen(step_s: float = 1.1) -> Stream:
    """A total in one statement and stamps in another, below a configuration of nothing."""
    clock = Clock(step_s)
    lines = ["config  curriculum ... {'enabled': False, 'seed': 1, 'num_epochs': 1000}"]
    for n in range(1, 60):
        clock.step()
        stamp = clock.stamp("%Y-%m-%d %H:%M:%S,%3")
        lines.append(f"[{stamp}] [INFO] [log.py:9:log_dist] [Rank 0] step={n}, lr=[1e-05]")
        lines.append(f"[{stamp}] [INFO] [timer.py:4:stop] micro_step={n}, mem=3")
        lines.append(f"[Step {n}/100] Loss: 5.1 | Tokens/s: 2571.06")
    left = 41 * step_s
    return Stream(text="\n".join(lines) + "\n", unit="step", rate_s=step_s, at=59, remaining_s=left)


def total_used_time(step_s: float = 0.3) -> Stream:
    lines = [
        f"Step {n}/2000, total used time {n * step_s + 7:.9f} (s), avg loss so far is 0.02{n}"
        for n in range(0, 800, 25)
    ]
    return Stream(
        text="\n".join(lines) + "\n", unit="step", rate_s=step_s, at=775, remaining_s=1225 * step_s
    )


def iterations_inside_a_bar_of_epochs(step_s: float = 1.2) -> Stream:
    """Bars called Iteration say nothing of losses; the bar of epochs does not either."""
    parts = ["\rEpoch:   0%|          | 0/3 [00:00<?, ?it/s]"]
    for e in range(2):
        parts += ["\rIteration: " + bar(i, 200, i * step_s, step_s) for i in range(201 - 100 * e)]
        parts.append("\rEpoch: " + bar(1, 3, 200 * step_s, 200 * step_s) if e == 0 else "")
    return Stream(text="".join(parts), unit="step", rate_s=step_s, at=300, remaining_s=300 * step_s)


def glued_epochs(step_s: float = 0.25) -> Stream:
    """The line of an epoch without a break behind the bar of its batches."""
    parts = []
    for e in range(1, 8):
        parts.append("\r" + bar(400, 400, 400 * step_s, step_s))
        parts.append(f"Epoch {e}/20, Training Loss: 0.5, Accuracy: 0.9\n")
    left = 13 * 400 * step_s
    return Stream(text="".join(parts), unit="step", rate_s=step_s, at=2800, remaining_s=left)


def validation_takes_half(step_s: float = 0.5) -> Stream:
    """The time left holds the validation after each epoch, which has a bar of its own."""
    parts = []
    for e in range(1, 7):
        stop = 101 if e < 6 else 2
        parts += [
            f"\rEpoch {e}/12 [train]: " + bar(i, 100, i * step_s, step_s) for i in range(stop)
        ]
        if e < 6:
            parts += [f"\rEpoch {e}/12 [val]: " + bar(i, 20, i * 1.25, 1.25) for i in range(21)]
    left = 699 * (step_s + 0.25)
    return Stream(text="".join(parts), unit="step", rate_s=step_s, at=501, remaining_s=left)


def sessions_that_died(epoch_s: float = 530.0) -> Stream:
    """Each session of a file counted one epoch and died; the last one goes on."""
    clock, lines = Clock(epoch_s), []
    for last in (1, 1, 4):
        lines.append(clock.stamp("[%Y-%m-%d %H:%M:%S]") + " new session")
        for e in range(1, last + 1):
            clock.step()
            lines.append(clock.stamp("[%Y-%m-%d %H:%M:%S]") + f" Epoch {e}/10, training loss: 0.3")
        clock.pause(5000)
    left = 6 * epoch_s
    return Stream(
        text="\n".join(lines) + "\n", unit="epoch", rate_s=epoch_s, at=4, remaining_s=left
    )


def table_with_two_counters(step_s: float = 24 / 2048) -> Stream:
    """Iterations and steps in rows of one table, which are two counters."""
    rows = [
        f"| reward | {n}.5 |\n| iterations | {n} |\n| time_elapsed | {24 * n} |\n"
        f"| total_timesteps | {2048 * n} |\n| loss | 0.1 |\n"
        for n in range(1, 30)
    ]
    return Stream(text="".join(rows), unit="step", rate_s=step_s, at=29 * 2048)


def stamped_ratios(step_s: float = 0.6) -> Stream:
    """A ratio behind one word, in lines with the stamp of absl."""
    clock, lines = Clock(step_s), []
    for n in range(10, 800, 10):
        clock.step(10)
        stamp = clock.stamp("I%m%d %H:%M:%S.%f")
        lines.append(f"{stamp} 1396 train.py:577] [Train {n}/1882] {{'train_loss': 0.{n}}}")
    left = 1092 * step_s
    return Stream(
        text="\n".join(lines) + "\n", unit="step", rate_s=step_s, at=790, remaining_s=left
    )


def a_bar_seen_once(step_s: float = 36.0) -> Stream:
    """A bar that was flushed once, whose rate holds the start, beside lines that go on."""
    parts = []
    for n in range(1, 80):
        parts.append(f"step:{n} - actor/pg_loss:0.{n} - perf/time_per_step:{step_s + n % 2}\n")
        if n == 9:
            parts.append("Training Progress: " + bar(n, 5000, 9 * 90.0, 90.0) + "\n")
    return Stream(text="".join(parts), unit="step", rate_s=step_s + 0.5, at=79)


def some_steps_with_losses(step_s: float = 40.0) -> Stream:
    """The few steps that were validated print a loss and no time, those between them the rest."""
    lines = [
        f"step:{n} - actor/lr:0.001 - "
        + (f"val/loss:0.{n}" if n % 10 == 0 else f"timing_s/step:{step_s}")
        for n in range(1, 60)
    ]
    return Stream(text="\n".join(lines) + "\n", unit="step", rate_s=step_s, at=59)


def epoch_behind_its_number(step_s: float = 0.4) -> Stream:
    """``3-epoch (120/800)``: the number stands before the word."""
    clock, lines = Clock(step_s), []
    for e in range(3):
        for n in range(20, 801, 20):
            clock.step(20)
            stamp = clock.stamp("%Y-%m-%d %H:%M:%S")
            lines.append(f"{stamp} INFO:{e}-epoch ({n}/800): total loss 1.{n}, lr 1e-4")
    return Stream(text="\n".join(lines) + "\n", unit="step", rate_s=step_s, at=2400)


def short_words(step_s: float = 0.8) -> Stream:
    """``ep3 it150/500``, with stamps."""
    clock, lines = Clock(step_s), []
    for e in range(4):
        for n in range(0, 500, 50):
            stamp = clock.stamp("%H:%M:%S")
            lines.append(f"{stamp} ep{e} it{n}/500 loss 0.{n + 1}")
            clock.step(50)
    return Stream(text="\n".join(lines) + "\n", unit="step", rate_s=step_s, at=1950)


def scores_at_iterations(step_s: float = 0.8) -> Stream:
    """The listener of a Java library prints a score and no loss."""
    clock, lines = Clock(step_s), []
    for n in range(0, 6000, 100):
        stamp = clock.stamp("%H:%M:%S.%f")[:-3]
        lines.append(f"{stamp} [main] INFO ScoreListener - Score at iteration {n} is 0.{n + 7}")
        clock.step(100)
    return Stream(text="\n".join(lines) + "\n", unit="step", rate_s=step_s, at=5900)


def best_epochs_only(epoch_s: float = 0.19) -> Stream:
    """Lines of the epochs that were better than all before: the time of each is of one epoch."""
    lines = [
        f"[BEST] Epoch #{n}: train_loss=1.{n}, time={epoch_s}s"
        for n in (1, 2, 3, 5, 6, 9, 12, 15, 18, 22, 25, 29, 31, 36, 40, 45)
    ]
    return Stream(text="\n".join(lines) + "\n", unit="epoch", rate_s=epoch_s, at=45)


def batch_before_epoch(step_s: float = 0.25) -> Stream:
    """A counter of the epoch, which stands before it in the line."""
    clock, lines = Clock(step_s), []
    for e, i in [(e, i) for e in range(1, 6) for i in range(2, 152, 10)][:-4]:
        stamp = clock.stamp("%Y-%m-%d %H:%M:%S,%3")
        lines.append(f"{stamp} - INFO - [batch {i}/152, epoch {e}/15]: loss_rmse:0.04")
        clock.step(10)
    left = (15 * 152 - 4 * 152 - 102) * step_s
    text = "\n".join(lines) + "\n"
    return Stream(text=text, unit="step", rate_s=step_s, at=4 * 152 + 102, remaining_s=left)


def tasks_of_epochs(epoch_s: float = 3.0) -> Stream:
    """Bars of epochs for one task after another: how many tasks there are, nobody says."""
    parts = [
        f"\rTask {t}, Epoch {e}/20 => Loss 0.{e}: {bar(n, 20, n * epoch_s, epoch_s)}"
        for t in range(4)
        for e in range(1, 21)
        for n in (e - 1, e)
    ]
    return Stream(text="".join(parts[:-16]), unit="epoch", rate_s=epoch_s, at=12)


def folds_by_ratio(step_s: float = 2.0) -> Stream:
    """A bar of batches behind a ratio of epochs, in each fold again."""
    parts = [
        f"\r[fold_{f}] {e:03d}/200: {bar(i, 4, i * step_s, step_s, ', loss=0.9')}"
        for f in range(2)
        for e in range(1, 101)
        for i in range(1, 5)
    ]
    return Stream(text="".join(parts), unit="step", rate_s=step_s, at=400)


def minutes_in_a_label(step_s: float = 0.7) -> Stream:
    clock, lines = Clock(step_s), []
    for n in range(1, 400):
        clock.step()
        took = f"Time (mins): {clock.now_s / 60:.3f}"
        lines.append(f"Epoch [2/2], Step [{n}/1000], Loss: 2.3, Perplexity: 10.0, {took}")
    left = (1000 - 399) * step_s
    text = "\n".join(lines) + "\n"
    return Stream(text=text, unit="step", rate_s=step_s, at=1399, remaining_s=left)


def speed_on_a_line_of_its_own(step_s: float = 0.53) -> Stream:
    lines = [
        line
        for n in range(20, 2000, 20)
        for line in (
            f"iter: {n} / 50000, total loss: 0.20{n}",
            " >>> rpn_loss_cls: 0.03",
            f"speed: {step_s:.3f}s / iter",
        )
    ]
    left = (50000 - 1980) * step_s
    text = "\n".join(lines) + "\n"
    return Stream(text=text, unit="step", rate_s=step_s, at=1980, remaining_s=left)


def keras_by_whole_epochs(epoch_s: int = 13) -> Stream:
    """``verbose=2``: the time behind a count that stands at its end is of all of them."""
    text = "".join(f"Epoch {e}/100\n19/19 - {epoch_s}s - loss: 0.0{e}\n" for e in range(1, 41))
    return Stream(text=text, unit="step", rate_s=epoch_s / 19, at=760, remaining_s=60.0 * epoch_s)


def two_lines_an_epoch(epoch_s: float = 3.9) -> Stream:
    """Steps so far apart that the length of an epoch is anybody's guess."""
    text = "".join(
        f"Epoch {e:05d} | Step {i:05d} | Loss 0.4384 | Train Acc 0.8496\n"
        + f"Epoch Time(s): {epoch_s + e % 3 / 100:.4f} Load 39.6439 Forward 22.7\n" * (i > 0)
        for e in range(28)
        for i in (0, 100)
    )
    return Stream(text=text, unit="epoch", rate_s=epoch_s, at=28)


def images_counted_beside_the_bar(step_s: float = 1.0) -> Stream:
    """A GAN whose line of losses says how many images, and what one took at that moment."""
    text = "".join(
        f"\rEpoch {e}/100: {bar(i, 150, i * step_s, step_s)}"
        + f"\n(epoch: {e}, iters: 750, time: 1.{e}, data: 0.04) G_A: 0.4, idt_A: 0.2, D_A: 0.2\n"
        * (i == 150)
        for e in range(1, 9)
        for i in range(1, 151 if e < 8 else 91)
    )
    return Stream(text=text, unit="step", rate_s=step_s, at=1140, remaining_s=13860 * step_s)


def losses_of_two_networks_by_image(image_s: float = 0.3) -> Stream:
    """The same lines without a bar, an epoch at a time."""
    text = "".join(
        f"(epoch: {e}, iters: {i}, time: 0.{300 + i % 7}, data: 0.002) D_A: 0.1 G_A: 0.2 \n"
        + f"End of epoch {e} / 50 \t Time Taken: {900 * image_s:.0f} sec\n" * (i == 900)
        for e in range(1, 6)
        for i in range(100, 901 if e < 5 else 401, 100)
    )
    return Stream(text=text, unit="step", rate_s=image_s, at=4200, remaining_s=43300 * image_s)


def told_beside_its_options(step_s: float = 1.5) -> Stream:
    """What a program works out itself counts, not the option of the same name."""
    text = "Namespace(max_epochs=60, max_iterations=30000, seed=3)\n"
    text += "40 iterations per epoch. 2400 max iterations \n" + "".join(
        f"[2024-03-04 0{long_hms(n * step_s)}] iteration {n} : loss : 0.4{n}, loss_ce: 0.2\n"
        for n in range(10, 601, 10)
    )
    return Stream(text=text, unit="step", rate_s=step_s, at=600, remaining_s=1800 * step_s)


def steps_of_its_schedule(step_s: float = 0.7) -> Stream:
    """Where the learning rate falls is told in steps too; the time left has no evaluations."""
    text = "SOLVER:\n  MAX_ITER: 9000\n  STEPS: (6000, 8000)\n" + "".join(
        f"[03/04 0{long_hms(n * step_s + n // 500 * 100)} d2.utils.events]:  "
        f"eta: {long_hms((9000 - n) * step_s)}  iter: {n}  total_loss: 0.41  time: {step_s}\n"
        for n in range(19, 3000, 20)
    )
    return Stream(text=text, unit="step", rate_s=step_s, at=2999, remaining_s=6001 * (step_s + 0.2))


def two_epochs_of_a_second_phase(step_s: float = 0.09) -> Stream:
    """The bars of a phase that ended, and of the next one those of two epochs."""
    text = "".join(
        f"\n{phase}Epoch {e}/{of}: {bar(7000, 7000, 7000 * step_s, step_s)}"
        f"\n{phase}Epoch {e} | Train Loss: 1.2{e} | Val Loss: 1.1{e}"
        for phase, of, seen in (("", 5, 5), ("Fine-Tune ", 4, 2))
        for e in range(1, seen + 1)
    )
    left = 14000 * step_s
    return Stream(text=text + "\n", unit="step", rate_s=step_s, at=14000, remaining_s=left)


def cost_of_a_batch_beside_its_epoch(epoch_s: float = 1100.0) -> Stream:
    """Lines so far apart that only epochs are sure, and what a batch costs, which none does."""
    lines = [
        f"2024-03-04 0{long_hms(e * epoch_s + i * 0.56)} - INFO - epoch: {e}, batch_id: {i}, "
        f"loss: 0.1, avg_batch_cost: {0.56 if i else 0.0017} sec\n"
        for e in range(2)
        for i in range(0, 2000, 500)
    ]
    return Stream(text="".join(lines[:6]), unit="epoch", rate_s=epoch_s, at=1)


def two_lines_of_the_first_epoch(epoch_s: float = 52.0) -> Stream:
    """The first line of the second epoch tells what the first took, its middle does not."""
    text = "".join(
        f"2024-03-04 0{long_hms(e * epoch_s + i / 100 * epoch_s)} - INFO: [Epoch {e}][Batch {i}], "
        "CrossEntropy=1.69e+00, Acc=0.4\n"
        for e, i in ((0, 0), (0, 50), (1, 0))
    )
    return Stream(text=text, unit="epoch", rate_s=epoch_s, at=1)


def batches_that_name_their_epoch_alone(epoch_s: float = 500.0) -> Stream:
    """The second epoch has begun: the first took as long as from its first line to that one."""
    text = "".join(
        f"2024-03-04 0{long_hms(e * epoch_s + i)} - INFO - Epoch {e + 1} - Batch loss: 0.{i:03d}\n"
        for e in range(2)
        for i in range(0, 500 if e == 0 else 60, 2)
    )
    return Stream(text=text, unit="epoch", rate_s=epoch_s)


def long_after_the_start(step_s: float = 2.34) -> Stream:
    """Times since the start, of which the end of the file shows the last tenth only."""
    text = "".join(
        f"{n}/10105 in 0 epoch finished at time {long_hms(n * step_s)}.467726 from start, "
        "Loss is 0.499185\n"
        for n in range(9000, 9900)
    )
    left = (10105 - 9899) * step_s
    return Stream(text=text, unit="step", rate_s=step_s, at=9899, remaining_s=left)


def batches_of_each_epoch(step_s: float = 1.6) -> Stream:
    """Options that hold the words of counters."""
    options = "INFO: Num batches each epoch = 100\nINFO: Total optimization steps = 1000\n" * 4
    bars = (f"\rSteps: {bar(n, 1000, n * step_s, step_s, ', loss=0.1')}" for n in range(1, 97))
    return Stream(
        text=options + "".join(bars),
        unit="step",
        rate_s=step_s,
        at=96,
        remaining_s=904 * step_s,
    )


def a_second_phase(epoch_s: float = 40.0) -> Stream:
    """What another statement counts, after the first one came to its end."""
    first = "".join(f"[pretrain] epoch {e}/50 loss 0.{e} time 12.{e % 9}s\n" for e in range(1, 51))
    then = "".join(f"finetune Epoch: {e} ce_loss 0.{e} time {epoch_s}s\n" for e in range(1, 5))
    return Stream(text=first + then, unit="epoch", rate_s=epoch_s, at=4)


def a_phase_that_says_its_steps(epoch_s: float = 40.0) -> Stream:
    """Epochs came to their end; those of the next phase tell their steps too."""
    first = "".join(f"Epoch {e:03d}/050 | Loss: 0.{e} | Time: 12.{e % 9}s\n" for e in range(1, 51))
    form = "Epoch {:03d}/050 | Loss: 0.4 | LR: 6.8e-05 | Time: {}s | Step: {}\n"
    then = "".join(form.format(e, epoch_s, 118 * e) for e in range(1, 9))
    return Stream(text=first + then, unit="epoch", rate_s=epoch_s, at=8, remaining_s=42 * epoch_s)


def a_letter_for_epochs(epoch_s: float = 24.0) -> Stream:
    """Epochs by their first letter, and the minutes that are left of all."""
    form = "E{:3d}/500 | Loss:0.4 | VAcc:80.00% | ETA:{:.1f}min\n"
    text = "".join(form.format(e, (500 - e) * epoch_s / 60) for e in range(1, 200))
    return Stream(text=text, unit="epoch", rate_s=epoch_s, at=199, remaining_s=301 * epoch_s)


def steps_in_the_plural(step_s: float = 0.012) -> Stream:
    """A total that only a line before says."""
    form = "Step {} | reward 0.4 | elapsed {:.0f}s\n"
    text = "".join(form.format(n, n * step_s) for n in range(1000, 31_000, 1000))
    text, left = "Timesteps: 100000\n" + text, 70_000 * step_s
    return Stream(text=text, unit="step", rate_s=step_s, at=30_000, remaining_s=left)


def tabs_and_seconds(step_s: float = 0.7) -> Stream:
    """A table by tabs, a column of which has its unit in its name."""
    rows = (f"{n}\t{1 / n:.4f}\t{n * step_s:.1f}\n" for n in range(10, 310, 10))
    text = "step\tloss\telapsed_s\n" + "".join(rows)
    return Stream(text=text, unit="step", rate_s=step_s, at=300)


def images_of_many_sizes(step_s: float = 14.0) -> Stream:
    """Ten steps of one image size each, half or double as long as the next ten."""
    sizes = [0.5, 1.5, 0.6, 1.4, 0.9, 1.1]
    lines = [
        f" {n}: 1.95, 1.15 avg loss, 0.0001 rate, {step_s * sizes[n // 10 % 6]:f} seconds, 64 im"
        for n in range(1, 600)
    ]
    return Stream(text="\n".join(lines) + "\n", unit="step", rate_s=step_s, at=599)


def _epochs_by_stamp(form: str, epoch_s: float, more: str = "") -> Stream:
    clock, lines = Clock(epoch_s), []
    for e in range(1, 31):
        lines.append(f"[{clock.stamp(form)}] Training epoch: {e}\n\tmean_loss: 0.{e}{more}")
        clock.step()
    return Stream(text="\n".join(lines) + "\n", unit="epoch", rate_s=epoch_s, at=29)


def day_before_month() -> Stream:
    """The third of a month, over midnight: no month passes."""
    return _epochs_by_stamp("%d/%m/%y %H:%M:%S", 700.0)


def dots_in_the_date() -> Stream:
    return _epochs_by_stamp("%m.%d.%y|%H:%M:%S", 20.0)


def tested_after_each_epoch() -> Stream:
    """The model is tested after each epoch, from memory."""
    return _epochs_by_stamp("%Y-%m-%d %H:%M:%S", 65.0, "\nTesting model on 100 images")


def time_of_an_epoch_on_the_next_line(epoch_s: float = 54.5) -> Stream:
    lines = [
        f"Epoch {e} Loss 1.4{e} Accuracy 0.46\nTime taken for 1 epoch: {epoch_s} secs\n"
        for e in range(1, 9)
    ]
    return Stream(text="\n".join(lines), unit="epoch", rate_s=epoch_s, at=8)


def time_left_beside_the_epoch(epoch_s: float = 9.0) -> Stream:
    minutes = [(200 - e) * epoch_s / 60 for e in range(1, 60)]
    text = "".join(
        f"Epoch #{e}: train_loss=2.2, time={epoch_s:.2f}s, remaining={left:.2f}min\n"
        for e, left in enumerate(minutes, start=1)
    )
    left_s = minutes[-1] * 60
    return Stream(text=text, unit="epoch", rate_s=epoch_s, at=59, remaining_s=left_s)


def bare_counter_with_spaces(step_s: float = 0.0142) -> Stream:
    clock, lines = Clock(step_s), ["I0301 train.py:90] max_steps : 400000"]
    for n in range(5000, 65000, 5000):
        clock.step(5000)
        stamp = clock.stamp("%m%d %H:%M:%S")
        lines.append(
            f"I{stamp}.385 1393 train_trans.py:298] [{n:>6}] | gnorm 0.62 lr 0.02 | loss 5.5"
        )
    left = (400000 - 60000) * step_s
    text = "\n".join(lines) + "\n"
    return Stream(text=text, unit="step", rate_s=step_s, at=60000, remaining_s=left)


def evaluated_by_the_same_words(step_s: float = 3.0) -> Stream:
    """One statement counts the steps of an epoch and those of its evaluation."""
    text = "".join(
        f"Epoch {e}/10\n"
        + "".join(f"step {i}/614 - loss: 0.1{i} - 3s/step\n" for i in range(10, 620, 10))
        + "Eval begin...\n"
        + "".join(f"step {i}/88 - loss: 0.1{i} - 3s/step\n" for i in range(8, 89, 8))
        for e in range(1, 5)
    )
    at = 4 * 614 - 4
    return Stream(text=text, unit="step", rate_s=step_s, at=at, remaining_s=(6140 - at) * step_s)


def seconds_and_losses_below_the_epoch(epoch_s: int = 7) -> Stream:
    text = "".join(f"Epoch {e}/300\n{epoch_s}s - loss: 1.7{e} - acc: 0.7\n" for e in range(1, 76))
    left = 226.0 * epoch_s
    return Stream(text=text, unit="epoch", rate_s=epoch_s, at=74, remaining_s=left)


def epochs_under_a_second(step_s: float = 0.02) -> Stream:
    """Bars of 30 steps that begin slowly, in whole seconds; the epochs before were slower."""
    parts = []
    for e in range(60):
        of_epoch_s = step_s * (4 if e < 30 else 1)
        for n in range(1, 31):
            mean_s = of_epoch_s + (0.2 - of_epoch_s / 5) * (1 / n - 1 / 30)
            parts.append(f"\rEpoch {e}: {bar(n, 30, n * mean_s, mean_s, ', train_loss=0.4')}")
    return Stream(text="".join(parts), unit="step", rate_s=step_s, at=1800)


def a_bar_that_just_began(step_s: float = 0.12) -> Stream:
    """Its first rates are means that hold its start."""
    rates = (step_s + 0.3 / 2**n for n in range(9))
    parts = (f"\rTrain: {bar(n, 20000, n * s, s, ', loss=9.1')}" for n, s in enumerate(rates, 1))
    left = 19991 * step_s
    return Stream(text="".join(parts), unit="step", rate_s=step_s, at=9, remaining_s=left)


def total_times_of_epochs(step_s: float = 4.0) -> Stream:
    """What each of a few epochs took in total is longer than the one before by chance."""
    text = "max_epoch: 10\n"
    for e in range(4):
        text += "".join(
            f"Train: epoch: [{e}]  [{n:4d}/2000]  eta: {long_hms((2000 - n) * step_s)}  "
            f"lr: 0.00002  loss: 0.7{n}  time: {step_s}  data: 0.0001  max mem: 2100\n"
            for n in range(0, 2000 if e < 3 else 1500, 50)
        )
        took_s = (2000 + 40 * e) * step_s
        text += f"Train: epoch: [{e}] Total time: {long_hms(took_s)} ({step_s:.4f} s / it)\n" * (
            e < 3
        )
    left = (20000 - 7450) * step_s
    return Stream(text=text, unit="step", rate_s=step_s, at=7450, remaining_s=left)


def options_beside_the_length(step_s: float = 2.0) -> Stream:
    """The total of the options is not the one worked out; the time left is of the latter."""
    text = "  total_iter: 9000\n  warmup_iter: -1\n\tTotal epochs: 50; iters: 2800.\n"
    text += "".join(
        f"2024-03-04 0{long_hms(3600 + n * step_s)},120 INFO: [run..][epoch: {n // 56:2d}, "
        f"iter: {n:7,d}, lr:(1e-04,)] [eta: {long_hms((2800 - n) * step_s)}, "
        f"time (data): {step_s} (0.1)] l_pix: 2.1e-02\n"
        for n in range(100, 1500, 100)
    )
    return Stream(text=text, unit="step", rate_s=step_s, at=1400, remaining_s=1400 * step_s)


def rollouts_beside_their_steps(step_s: float = 0.0004) -> Stream:
    """How many rollouts there are is no length of the steps in all environments."""
    text = "args.num_iterations=900000 args.num_envs=64\n" + "".join(
        f"Epoch: {n}, global_step={n * 6400}\nSPS: {1 / step_s:.0f}, pg_loss=0.01, v_loss=0.2\n"
        for n in range(1, 40)
    )
    return Stream(text=text, unit="step", rate_s=step_s, at=39 * 6400)


def results_of_rllib(step_s: float = 1.25) -> Stream:
    """A block a result: its time stands some lines before its counter."""
    block = (
        "Result for DQN_game_1:\n  episode_reward_mean: 0.1\n  time_total_s: {s}\n  timers:\n"
        "    learn_time_ms: 20.5\n    update_time_ms: 19.3\n  timestamp: 16505\n"
        "  timesteps_total: {n}00\n  training_iteration: {n}\n  trial_id: '1_0'\n\n"
    )
    text = "".join(block.format(n=n, s=7 + n * step_s) for n in range(1, 60))
    return Stream(text=text, unit="step", rate_s=step_s, at=59)


def passes_of_paddle(step_s: float = 0.03) -> Stream:
    """The dots of a line, then batches of a pass and their cost."""
    text = "".join(
        f"{'.' * 40}\nI0304 1{long_hms(n * step_s)}.250000  35 TrainerInternal.cpp:165]  Batch={n} "
        f"samples={n * 128} AvgCost=9.2 CurrentCost=9.1{n}\n"
        for n in range(1000, 9000, 1000)
    )
    return Stream(text=text, unit="step", rate_s=step_s, at=8000)


def epoch_is_and_batch_is(step_s: float = 0.9) -> Stream:
    """A verb between the word and its counter."""
    text = "".join(
        f"2024-03-04 10:{int(n * step_s) // 60:02d}:{n * step_s % 60:06.3f} [INFO ]  Epoch is [1/6]"
        f", mini-batch is [{n}/500], batch_loss is 1{n}.2\n"
        for n in range(1, 60)
    )
    left = (3000 - 59) * step_s
    return Stream(text=text, unit="step", rate_s=step_s, at=59, remaining_s=left)


def numbers_of_batches(step_s: float = 2.5) -> Stream:
    text = "".join(
        f"2024-03-04 10:{int(n * step_s) // 60:02d}:{int(n * step_s) % 60:02d},100 - INFO - "
        f"Training batch num: {n}\n"
        for n in range(0, 200, 10)
    )
    return Stream(text=text, unit="step", rate_s=step_s, at=190)


def epochs_of_a_fold(epoch_s: float = 2.1) -> Stream:
    """Short for epoch, after the fold it is of."""
    text = "".join(
        f"  [Fold 2 Ep {n:03d}] tr_loss=0.2{n} tr_auc=0.51 | val_auc=0.42 thr=0.6 | {epoch_s}s\n"
        for n in range(1, 40)
    )
    return Stream(text=text, unit="epoch", rate_s=epoch_s, at=39)


def steps_of_colbert(step_s: float = 2.0) -> Stream:
    """A stamp, a step and its mean loss, and a length that is the most there may be."""
    text = '    "maxsteps": 500000,\n' + "".join(
        f"#>>>    5.{n} 5.66\n"
        f"[Mar 04, 10:{n * 2 // 60:02d}:{n * 2 % 60:02d}] {n} 5.92321205970{n}\n"
        for n in range(300)
    )
    return Stream(text=text, unit="step", rate_s=step_s, at=299)


def begun_again_lower(step_s: float = 1.5) -> Stream:
    """The tail begins late in a run; the next one has not come as far yet."""

    def line(n: int, s: float) -> str:
        return f"2024-03-04 0{long_hms(s)} INFO: [epoch: {n // 50}, iter: {n}] loss: 0.4\n"

    text = "".join(line(n, n * step_s) for n in range(3000, 3600, 100))
    text += "".join(line(n, 9000 + n * step_s) for n in range(100, 900, 100))
    return Stream(text=text, unit="step", rate_s=step_s, at=800)


MIXED: dict[str, Callable[[], Stream]] = {
    made.__name__: made
    for made in (
        epochs_under_a_second,
        a_bar_that_just_began,
        total_times_of_epochs,
        options_beside_the_length,
        rollouts_beside_their_steps,
        results_of_rllib,
        passes_of_paddle,
        epoch_is_and_batch_is,
        numbers_of_batches,
        epochs_of_a_fold,
        steps_of_colbert,
        begun_again_lower,
        unnamed_bars,
        losses_of_a_gan,
        an_epoch_in_brackets,
        ever_slower,
        evaluated_at_the_end,
        times_at_the_end_of_epochs,
        compiled_first,
        a_sweep_of_one_run_after_another,
        options_of_what_does_not_happen,
        total_used_time,
        iterations_inside_a_bar_of_epochs,
        glued_epochs,
        validation_takes_half,
        sessions_that_died,
        table_with_two_counters,
        stamped_ratios,
        a_bar_seen_once,
        some_steps_with_losses,
        epoch_behind_its_number,
        short_words,
        scores_at_iterations,
        best_epochs_only,
        batch_before_epoch,
        tasks_of_epochs,
        folds_by_ratio,
        minutes_in_a_label,
        speed_on_a_line_of_its_own,
        keras_by_whole_epochs,
        two_lines_an_epoch,
        images_counted_beside_the_bar,
        losses_of_two_networks_by_image,
        told_beside_its_options,
        steps_of_its_schedule,
        two_epochs_of_a_second_phase,
        cost_of_a_batch_beside_its_epoch,
        two_lines_of_the_first_epoch,
        batches_that_name_their_epoch_alone,
        long_after_the_start,
        batches_of_each_epoch,
        a_second_phase,
        a_phase_that_says_its_steps,
        a_letter_for_epochs,
        steps_in_the_plural,
        tabs_and_seconds,
        images_of_many_sizes,
        day_before_month,
        dots_in_the_date,
        tested_after_each_epoch,
        time_of_an_epoch_on_the_next_line,
        time_left_beside_the_epoch,
        bare_counter_with_spaces,
        evaluated_by_the_same_words,
        seconds_and_losses_below_the_epoch,
    )
}


def _rows(form: str, numbers: range = range(1, 60)) -> str:
    return "\n".join(form.format(n=n, f=n * 0.37, t=long_hms(n * 7)) for n in numbers) + "\n"


SEARCHES_AND_REPORTS = {
    "ray tune": (
        "== Status ==\nNumber of trials: 59/60 (1 RUNNING, 58 TERMINATED)\n"
        "| Trial name | status | lr | epochs | iter | total time (s) | loss |\n"
        + _rows("| train_ab_{n:05d} | TERMINATED | 0.00{n} | 10 | {n} | {f:.3f} | 0.{n} |")
    ),
    "ray tune results": _rows(
        "Result for train_ab_{n:05d}:\n  date: 2024-03-04_12-{n:02d}-01\n  done: true\n"
        "  time_total_s: {f:.2f}\n  mean_loss: 0.{n}\n"
    ),
    "optuna": _rows(
        "[I 2024-03-04 12:{n:02d}:07,123] Trial {n} finished with value: 0.{n} and parameters: "
        "{{'epochs': {n}, 'lr': 0.01, 'loss': 'mse'}}. Best is trial 3 with value: 0.1."
    ),
    "optuna bar": "".join(
        f"\rBest trial: 3. Best value: 0.{n}: " + bar(n, 100, n * 9.0, 9.0) for n in range(1, 60)
    ),
    "wandb summary": (
        "wandb: Run history:\nwandb:      epoch 1234\nwandb: train/loss 4321\n"
        "wandb: Run summary:\nwandb:            epoch 12\nwandb:       train/loss 0.31\n"
        "wandb: train/global_step 4000\nwandb: Synced 6 files\n"
    ),
    "wandb sweep": _rows(
        "wandb: Agent Starting Run: ab{n} with config:\nwandb: \tepochs: {n}\nwandb: \tlr: 0.0{n}"
    ),
    "grid search": _rows(
        "[CV {n}/60] END epochs={n}, loss=log_loss;, score=0.9{n} total time=   {f:.1f}s"
    ),
    "table of options": _rows(
        "| {n} | epochs={n} | lr=0.0{n} | batch={n} | loss 0.{n} | 12.{n} s |"
    ),
    "evaluated checkpoints": _rows(
        "2024-03-04 12:{n:02d}:07 evaluating checkpoint of epoch {n}/60: test loss 0.{n}, {f:.1f} s"
    ),
    "tested epochs": _rows("Test: epoch {n}/60 acc 0.9{n} loss 0.{n} time {f:.2f}s"),
    "each epoch loaded": _rows(
        "2024-03-04 12:{n:02d}:07 - INFO - start load model from output/{n}\n"
        "2024-03-04 12:{n:02d}:09 - INFO - epoch: {n}, batch_id: 0, auc: 0.9{n}, loss: 0.{n}\n"
        "2024-03-04 12:{n:02d}:50 - INFO - epoch: {n} done, auc: 0.9{n}, epoch time: 41.{n} s"
    ),
    "each epoch loaded, one line": _rows(
        "[2024-03-04 12:{n:02d}:07] Loading checkpoint runs/a/epoch_{n}.pth\n"
        "[2024-03-04 12:{n:02d}:37] Epoch {n}: loss 0.{n} acc 0.9"
    ),
    "bars of each model loaded": "".join(
        f"load weights/model_{e}.pth\n"
        + "".join("\r" + bar(i, 100, i * 0.1, 0.1, ", loss=0.4") for i in range(10, 101, 10))
        + "\n"
        for e in range(1, 9)
    ),
    "evaluation harness": "".join(
        "\rEvaluating mmlu: " + bar(n, 500, n * 0.4, 0.4) for n in range(1, 300)
    )
    + "\n| task | acc |\n| mmlu | 0.61 |\nppl: 4.3\n",
    "inference server": _rows(
        "INFO 03-04 12:{n:02d}:07 metrics.py:3] Avg prompt throughput: {n}.1 tokens/s, "
        "Running: {n} reqs, step time 0.{n} s"
    ),
    "ping": _rows("64 bytes from 10.0.0.1: icmp_seq={n} time={f:.2f} ms")
    + "59 packets transmitted, 59 received, 0% packet loss, time 58012ms\n",
    "answers with steps": _rows(
        "**Step 1:** profit and loss of 12 s.\n**Step 2:** {n} / 3 hours (10 s)\n"
        "**Step 3:** so the speed is {n} m/s.\n**Step 1:** add them. The loss is {n}."
    ),
    "spark": "".join(f"\r[Stage {n}:=====>   ({n} + 8) / 200]" for n in range(1, 60)),
    "apt": _rows("Get:{n} http://deb.example.org/debian stable/main amd64 lib{n} [12.1 kB]"),
    "blast": _rows("Processing query {n}/60 ... hits {n}, e-value 1e-{n}, {f:.1f} s"),
    "wrf": _rows(
        "Timing for main: time 2024-03-04_12:{n:02d}:00 on domain 1: {f:.5f} elapsed seconds"
    ),
    "denoising": "".join(
        f"2024-03-04 12:{i:02d}:07 INFO: step: {n} lr_xt 0.00{n}\nLoss Change: 6.{n} -> 5.{n}\n"
        for i, n in enumerate([*range(50, 29, -1), *range(35, 29, -1), 35])
    ),
    "slices of a volume": "".join("\rslices: " + bar(n, 300, n * 0.4, 0.4) for n in range(1, 200)),
}
