"""A rate within 10 %, the time left within 20 %, and no rate where there is no training."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hostile import NOT_TRAINING, hostile
from hypothesis import given, settings
from hypothesis import strategies as st
from mixed import MIXED, SEARCHES_AND_REPORTS, saved_epochs_evaluated
from streams import BEGAN, REGULAR, Stream, hms, megatron, own_epochs, tqdm_run

from predictor.site.progress.reader import (
    HEAD_BYTES,
    TAIL_BYTES,
    ProgressKind,
    ProgressReading,
    read_bytes,
)

HOSTILE = dict(hostile())
FALSE_ALARMS = NOT_TRAINING | SEARCHES_AND_REPORTS


def read(text: str) -> ProgressReading:
    raw = text.encode("utf-8", "surrogatepass")
    return read_bytes(raw[:HEAD_BYTES], raw[-TAIL_BYTES:], whole=len(raw) <= TAIL_BYTES)


def check(stream: Stream) -> None:
    found = read(stream.text)
    assert (found.kind, found.unit) == (ProgressKind.TRAINING, stream.unit)
    assert found.seconds_per_unit == pytest.approx(stream.rate_s, rel=0.1)
    if stream.remaining_s is None:
        assert found.remaining_s is None
    else:
        assert found.remaining_s == pytest.approx(stream.remaining_s, rel=0.2)
    if stream.at is not None:
        assert found.at == stream.at
    assert found.confidence is not None
    assert 0.5 <= found.confidence <= 1


def test_the_streams_are_sixty_and_half_of_them_hostile() -> None:
    assert len(REGULAR) + len(HOSTILE) >= 60
    assert len(HOSTILE) >= 30
    assert len(NOT_TRAINING) >= 30


@pytest.mark.parametrize("name", REGULAR)
def test_the_output_of_a_training_tells_its_rate_and_the_time_left(name: str) -> None:
    check(REGULAR[name]())


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_output_tells_the_same(name: str) -> None:
    check(HOSTILE[name])


@pytest.mark.parametrize("name", MIXED)
def test_a_training_beside_what_looks_like_one_is_told_from_it(name: str) -> None:
    check(MIXED[name]())


def test_a_pass_over_saved_epochs_is_not_the_training() -> None:
    stream = saved_epochs_evaluated()
    found = read(stream.text)
    assert found.kind is ProgressKind.TRAINING
    assert found.at == pytest.approx(2950, rel=0.05)
    assert found.seconds_per_unit == pytest.approx(stream.rate_s, rel=0.1)


def test_a_first_step_alone_tells_no_rate() -> None:
    found = read("\rTraining:   0%|          | 1/3746 [00:36<37:53:58, 36.42s/it]")
    assert (found.kind, found.total) == (ProgressKind.TRAINING, 3746)
    assert (found.seconds_per_unit, found.remaining_s) == (None, None)


@pytest.mark.parametrize("name", FALSE_ALARMS)
def test_what_is_no_training_has_no_rate(name: str) -> None:
    found = read(FALSE_ALARMS[name])
    assert found.kind is not ProgressKind.TRAINING
    assert (found.unit, found.at, found.total, found.seconds_per_unit) == (None,) * 4
    assert (found.remaining_s, found.confidence) == (None, None)


@pytest.mark.parametrize("name", ["evaluation", "inference"])
def test_an_evaluation_is_told_as_one(name: str) -> None:
    assert read(NOT_TRAINING[name]).kind is ProgressKind.EVALUATION


def test_of_a_run_that_only_printed_its_options_nothing_is_known() -> None:
    """Another run began in the same file: what the one before counted is not where it stands."""
    options = "2024-03-04 12:00:00 - INFO - max_epoch      : 50\n"
    run = "".join(f"2024-03-04 12:{n:02d}:00 epoch {n} loss 0.{n}\n" for n in range(1, 40))
    assert read(options + run).at == 39
    found = read(options + run + options)
    assert found.kind is ProgressKind.TRAINING
    assert (found.unit, found.at, found.seconds_per_unit, found.remaining_s) == (None,) * 4


def test_what_goes_on_long_after_the_last_counter_is_not_that_training() -> None:
    """As long as nothing was printed for as long before."""
    run = "".join(f"step {n}/1000 loss 0.{n} step_time 0.50s\n" for n in range(0, 400, 10))
    other = "".join(f"face {chr(97 + n % 26)}{chr(97 + n // 26)} found\n" for n in range(500))
    assert read(run).at == 390
    found = read(run + other)
    assert found.kind is ProgressKind.TRAINING
    assert (found.at, found.seconds_per_unit, found.remaining_s) == (None, None, None)
    went_on = "".join(f"step {n}/1000 loss 0.{n} step_time 0.50s\n" for n in range(400, 800, 10))
    assert read(run + other + went_on + other).at == 790


def test_folds_that_come_to_their_end_are_not_the_whole_run() -> None:
    """A counter that ended and began anew may do so again."""
    lines = [f"epoch {n}/30 loss 0.{n} time 2.0s\n" for n in range(1, 31)]
    assert read("".join(lines)).remaining_s == 0
    found = read("".join(lines + lines[:20]))
    assert (found.at, found.total, found.remaining_s) == (20, None, None)
    assert found.seconds_per_unit == 2.0


def test_a_stated_length_is_no_counter() -> None:
    """``epochs: 3`` of a configuration makes no epoch of the steps after it."""
    lines = [f"step {n}/1000 loss 0.3 step_time 0.50s" for n in range(0, 400, 10)]
    found = read("epochs: 3\nNum Epochs = 3\n" + "\n".join(lines) + "\n")
    assert (found.unit, found.at, found.total) == ("step", 390, 1000)


def test_dictionaries_of_trainer_without_its_bar_tell_the_epoch() -> None:
    lines = [f"{{'loss': 1.9, 'learning_rate': 4e-05, 'epoch': {n * 0.04:.2f}}}" for n in range(40)]
    found = read("  Num Epochs = 3\n" + "\n".join(lines) + "\n")
    assert (found.unit, found.at, found.total) == ("epoch", 1.56, 3)
    assert (found.seconds_per_unit, found.remaining_s) == (None, None)


@settings(max_examples=15, deadline=None)
@given(scale=st.floats(0.2, 50), at=st.integers(60, 900))
def test_the_rate_scales_with_the_time_that_a_step_takes(scale: float, at: int) -> None:
    check(megatron(step_s=scale, at=at // 10 * 10))
    check(tqdm_run(step_s=max(0.3, scale), at=at))
    check(own_epochs(epoch_s=10 + 10 * scale))


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=400), st.binary(max_size=400))
def test_no_text_and_no_bytes_break_the_reader(text: str, raw: bytes) -> None:
    for given_text in (text, (text + "\n") * 3, "loss 1/2 " + text):
        read(given_text)
    read_bytes(raw, raw)


# --- several sessions in one file, and frameworks that print no rate ------------------------------


def session(day: int, first: int, lines: int, every_s: int) -> str:
    """Every ten steps a stamped line, from a step on."""
    return "".join(
        f"2026-01-{day:02d} 10:{n * every_s // 60:02d}:{n * every_s % 60:02d} INFO "
        f"step {first + 10 * n}/1000 loss 2.0\n"
        for n in range(lines)
    )


@pytest.mark.parametrize(
    ("second", "at"),
    [(session(2, 0, 40, 6), 390), (session(2, 500, 20, 6), 690), (session(2, 600, 20, 6), 790)],
    ids=["from the start", "from a checkpoint", "where it stopped"],
)
def test_of_several_sessions_the_last_one_tells_the_rate(second: str, at: int) -> None:
    found = read(session(1, 0, 60, 3) + "slurmstepd: error: *** JOB 7 REQUEUED ***\n" + second)
    assert found.at == at
    assert found.seconds_per_unit == pytest.approx(0.6, rel=0.1)
    assert found.remaining_s == pytest.approx((1000 - at) * 0.6, rel=0.2)


def test_rare_pauses_are_still_pauses() -> None:
    """A validation of two minutes after every hundred steps of a second."""
    at_s, lines = 0, []
    for step in range(0, 1000, 10):
        clock = f"{at_s // 3600:02d}:{at_s // 60 % 60:02d}:{at_s % 60:02d}"
        lines.append(f"2026-01-02 {clock} INFO step {step}/2000 loss 2.0\n")
        at_s += 10 + 120 * (step % 100 == 90)
    found = read("".join(lines))
    assert found.seconds_per_unit == pytest.approx(1.0, rel=0.1)
    assert found.remaining_s == pytest.approx(1010 * 2.2, rel=0.2)


SILENT = {
    "slowfast": 'json_stats: {"_type": "train_epoch", "dt": 0.81021, "dt_data": 0.8, "epoch": '
    '"{n}/400", "gpu_mem": "17.91G", "loss": 2.{n}, "lr": 0.0000378}\n',
    "xgboost": "[{n}]\ttrain-rmse:0.{n}1\tvalid-rmse:0.{n}2\n",
    "lightgbm": "[{n}]\tvalid_0's l2: 0.{n}1\tvalid_0's auc: 0.7{n}\n",
    "sklearn": "Iteration {n}, loss = 0.{n}\n",
    "kaldi": "LOG (nnet3-train[5.5]:Print():nnet-training.cc:284) Overall average objective "
    "function for 'output' is -0.{n} over {n}6400 frames.\n",
}


@pytest.mark.parametrize("line", SILENT.values(), ids=list(SILENT))
def test_a_training_that_prints_no_time_has_no_rate(line: str) -> None:
    found = read("".join(line.replace("{n}", str(n)) for n in range(1, 120)))
    assert found.seconds_per_unit is None
    assert found.remaining_s is None


TIMED = {
    "llm.c": (
        "step {n:4d}/18865 | loss 3.1 (+0.12z)| norm 1.23 (-0.3z)| lr 8.57e-07 | 3056.36 ms"
        " | 42.6% bf16 MFU | 171537 tok/s\n",
        3.056,
    ),
    "nanochat": (
        "step {n:05d}/21400 (0.55%) | loss: 8.12 | grad norm: 0.5012 | lrm: 1.00 | dt: 480.23ms"
        " | tok/sec: 1,091,736 | mfu: 48.56 | total time: {m:.2f}m\n",
        0.48,
    ),
    "diffusers": (
        "\rSteps:   3%|3         | {n}/1000 [{e}<16:11,  2.00s/it, lr=1e-5, step_loss=0.031]",
        2.0,
    ),
}


@pytest.mark.parametrize(("line", "rate_s"), TIMED.values(), ids=list(TIMED))
def test_newer_trainers_are_read(line: str, rate_s: float) -> None:
    lines = (
        line.format(n=n, m=n * 0.48 / 60, e=f"{n // 30:02d}:{2 * n % 60:02d}")
        for n in range(1, 120)
    )
    assert read("".join(lines)).seconds_per_unit == pytest.approx(rate_s, rel=0.1)


def test_the_first_epoch_of_timm_is_not_the_run() -> None:
    lines = (
        f"Train: 0 [{n:>4d}/1251 ({n // 13:>3d}%)]  Loss: 3.1 (3.3)  Time: 0.480s,  533.10/s  "
        "(0.501s,  511.0/s)  LR: 1.0e-03  Data: 0.010 (0.050)\n"
        for n in range(0, 900, 50)
    )
    text = "".join(lines)
    assert (read(text).total, read(text).remaining_s) == (None, None)
    found = read("Scheduled epochs: 300. LR stepped per epoch.\n" + text)
    assert (found.at, found.total) == (850, 300 * 1251)


def test_prints_beside_a_bar_of_epochs_do_not_shift_it() -> None:
    """The bar says how many are done, a print which one was; the output begins with a print."""
    parts = []
    for epoch in range(3, 15):
        parts.append(f"Epoch {epoch}: val_loss=0.4 val_acc=0.9\n")
        parts.append(f"\rEpochs:  {5 * epoch}%|## | {epoch}/20 [01:00<02:00, 20.0s/it]\n")
        for n in range(1, 101, 3):
            parts.append(f"\r{n:3d}%|## | {n}/100 [00:{n // 5:02d}<00:09,  5.00it/s, loss=0.5]")
        parts.append("\n")
    found = read("".join(parts))
    assert (found.at, found.total) == (1500, 2000)


def test_what_windows_writes_is_read() -> None:
    text = REGULAR["tqdm"]().text if "tqdm" in REGULAR else next(iter(REGULAR.values()))().text
    raw = text.encode("utf-16")
    assert read_bytes(raw, raw) == read(text)


def test_a_bar_without_losses_is_of_the_training_whose_length_it_has() -> None:
    bar = "".join(f"\r {n}/300 [00:{n:02d}<04:00,  1.00it/s]" for n in range(1, 60)).encode()
    assert read_bytes(b"", bar).kind is ProgressKind.OTHER
    found = read_bytes(b"", bar, stated="total_epochs=3")
    assert (found.kind, found.total) == (ProgressKind.TRAINING, 300)
    assert found.seconds_per_unit == pytest.approx(1.0, rel=0.1)


def test_the_pace_is_that_of_late() -> None:
    times = [10.0 * n for n in range(100)] + [990.0 + 20.0 * n for n in range(1, 45)]
    clocks = (f"{int(t) // 3600:02d}:{int(t) // 60 % 60:02d}:{int(t) % 60:02d}" for t in times)
    text = "".join(f"[{c}] step {10 * n}/5000 loss 0.{n}\n" for n, c in enumerate(clocks))
    assert read(text).seconds_per_unit == pytest.approx(2.0, rel=0.1)


# --- what public logs printed that nobody had thought of ------------------------------------------


def test_a_time_that_is_left_is_no_time_that_was_taken() -> None:
    """CatBoost counts its first iterations in milliseconds, and what is left always in seconds."""
    taken = [f"{26 * n + 26}ms" if n < 38 else f"{0.026 * n + 0.026:.3g}s" for n in range(300)]
    lines = (
        f"{n}:\tlearn: {9000 - n}.1\ttotal: {s}\tremaining: {0.026 * (999 - n):.3g}s\n"
        for n, s in enumerate(taken)
    )
    found = read("".join(lines))
    assert found.seconds_per_unit == pytest.approx(0.026, rel=0.1)
    assert found.remaining_s == pytest.approx(0.026 * 700, rel=0.2)


def test_of_two_counters_of_steps_the_one_with_a_total_stands_in_the_other() -> None:
    lines = (
        f"2024-03-04 12:{s // 60:02d}:{s % 60:02d} INFO iteration:{s // 100 + 1} "
        f"step:{s % 100 + 1}/100, loss: 0.{s}\n"
        for s in range(0, 1000, 7)
    )
    found = read("".join(lines))
    assert (found.unit, found.at, found.total) == ("step", 995, None)
    assert found.seconds_per_unit == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize("first", [0, 1])
def test_epochs_count_from_where_the_output_began(first: int) -> None:
    """Of a long output only the end is read, and its first lines."""
    text = "".join(
        f"epoch: {e + first:04d} step: {s}/100 time: 7.50 sec loss: -0.05 {'.' * 40}\n"
        for e in range(60)
        for s in range(1, 101)
    )
    assert len(text) > TAIL_BYTES + HEAD_BYTES
    assert read(text).at == 6000


def test_an_epoch_that_began_at_nothing_and_reached_its_total_was_the_last() -> None:
    lines = [f"epoch {e}/2 [{i}/8] loss 0.4 time: 2.0s\n" for e in range(3) for i in range(1, 9)]
    found = read("".join(lines))
    assert (found.at, found.total) == (24, 24)


def test_bars_that_say_only_what_is_left_tell_the_rate() -> None:
    bars = "".join(
        f"{n:4d}/1875 [====>.......] - ETA: {(1875 - n) // 50}s - loss: 0.4{' ' * 9}\r"
        for n in range(60, 1100, 20)
    )
    found = read("Epoch 1/10\n" + bars)
    assert (found.at, found.total) == (1080, 18750)
    assert found.seconds_per_unit == pytest.approx(0.02, rel=0.1)


def test_at_the_end_of_an_epoch_keras_tells_what_it_took_and_not_what_is_left() -> None:
    epochs = "".join(
        f"Epoch {e}/3\n1875/1875 [======] - 44s 23ms/step - loss: 0.2\n" for e in (1, 2, 3)
    )
    assert read(epochs).remaining_s == 0
    assert read(epochs + epochs).remaining_s is None


def test_an_epoch_that_every_line_names_is_a_training_without_numbers() -> None:
    found = read("".join(f"[Epoch    1] Loss: 2.{n} Acc: 2{n}.0%\n" for n in range(9)))
    assert found.kind is ProgressKind.TRAINING
    assert (found.at, found.seconds_per_unit) == (None, None)


def test_the_search_of_architectures_tells_its_steps() -> None:
    lines = (
        f"05/31 03:{n // 60:02d}:{n % 60:02d} PM train {n * 2:03d} 2.09{n % 10}e+00 21.29 73.62\n"
        for n in range(0, 200, 25)
    )
    found = read("05/31 03:00:00 PM epoch 0 lr 2.498816e-02\n" + "".join(lines))
    assert (found.at, found.seconds_per_unit) == (350, pytest.approx(0.5, rel=0.1))


def test_a_bar_beside_what_trainer_says_at_its_first_step_is_of_the_training() -> None:
    said = "`use_cache=True` is incompatible with gradient checkpointing. Setting it off.\n"
    bar = [
        f"{n}/90 [{n // 6:02d}:{n % 6}0<{(90 - n) // 6:02d}:{-n % 6}0, 10.00s/it]"
        for n in range(41)
    ]
    found = read(f"Loading shards: 1/2 [00:01<00:01, 1.0s/it]\n{bar[0]}{said}" + "\n".join(bar[1:]))
    assert (found.at, found.total, found.seconds_per_unit) == (40, 90, pytest.approx(10, rel=0.1))
    assert read("\n".join(bar)).kind == ProgressKind.OTHER  # nothing says what it counts


def test_the_average_time_beside_the_memory_is_of_a_step() -> None:
    line = "[{}, {:5d}/ 500] loss: 2.5 - [wd: 1.2e-01] [lr: 2.3e-04] [mem: 6.5e+04] (120.1 ms)\n"
    found = read(
        "epochs: 10\n" + "".join(line.format(e, n) for e in (1, 2) for n in range(0, 500, 25))
    )
    assert (found.at, found.total, found.seconds_per_unit) == (975, 5000, pytest.approx(0.1201))


def test_counters_in_braces_are_counters() -> None:
    found = read(
        "".join(
            f"2022-02-15 17:55:{2 * n + m:02d} INFO epoch: {{{n + 1}/300}}, step: {{{m + 1}/2}},"
            f" loss : {{1.{n}}}\n"
            for n in range(9)
            for m in range(2)
        )
    )
    assert (found.at, found.total, found.seconds_per_unit) == (18, 600, pytest.approx(1.0, rel=0.1))


def test_ticks_of_images_tell_a_rate_with_what_is_between_them() -> None:
    line = "tick {:<5d} kimg {:<8.1f} time {}m {:02d}s  sec/tick 30.1  sec/kimg 7.5 maint 0.1\n"
    found = read("".join(line.format(n, 4.0 * n, *divmod(40 * n, 60)) for n in range(1, 15)))
    assert (found.at, found.total, found.seconds_per_unit) == (14, None, pytest.approx(40, rel=0.1))


def test_a_time_left_at_the_ends_of_epochs_is_of_the_run() -> None:
    line = "05/03 21:{:02d}:{:02d} - mmengine - INFO - Epoch(train) [{}][8/8] lr: 1e-2 eta: 0:{} "
    lines = []
    for n in range(1, 30):
        left = "{:02d}:{:02d}".format(*divmod((400 - n) * 8, 60))
        lines.append(line.format(*divmod(8 * n, 60), n, left) + "time: 1.0 loss: 60.1\n")
    found = read("".join(lines))
    assert (found.at, found.remaining_s) == (8 * 29, pytest.approx(371 * 8, rel=0.05))


# --- tables, and what one statement says of another ----------------------------------------------


@pytest.mark.parametrize(
    ("head", "row", "rate_s"),
    [
        ("epoch     train_loss  valid_loss  time", "{n}   0.4{n}   0.3{n}   01:2{m}", 80.5),
        (
            "  epoch    train_loss    dur\n-------  ------------  -----",
            "  {n}  0.6{n}  2.0{m}",
            2.0,
        ),
        ("epoch,accuracy,loss,val_loss", "{n},0.5{n},1.2{n},1.5", None),
        ("epoch;accuracy;loss;val_loss", "{n};0.5{n};1.2{n};1.5", None),
    ],
    ids=["fastai", "skorch", "csv", "csv of Europe"],
)
def test_rows_under_names_are_counters_with_losses(
    head: str, row: str, rate_s: float | None
) -> None:
    found = read(head + "\n" + "".join(row.format(n=n, m=n % 2) + "\n" for n in range(20)))
    assert (found.kind, found.unit, found.at) == (ProgressKind.TRAINING, "epoch", 20)
    assert found.seconds_per_unit == (rate_s and pytest.approx(rate_s, rel=0.05))


def test_rows_of_a_simulation_are_no_training() -> None:
    rows = "".join(f"  {n}  300.{n}  -4.{n}  1.2{n}\n" for n in range(0, 900, 10))
    assert read("  Step  Temp  E_pair  Press\n" + rows).kind is ProgressKind.NONE


def test_a_bar_that_was_flushed_twice_tells_the_total_of_the_lines_that_go_on() -> None:
    bar = "Training Progress:  1%|  | {0}/5600 [{1}:00:00<99:00:00, 240.0s/it]"
    bars = {
        n: bar.format(n, n // 15) for n in (15, 60)
    }  # before the lines, which wait for a buffer
    line = "step:{} - actor/lr:1e-06 - timing_s/step:240.1\n{}\n"
    found = read("".join(line.format(n, bars.get(n + 18, "")) for n in range(1, 73)))
    assert (found.at, found.total) == (72, 5600)
    assert found.seconds_per_unit == pytest.approx(240, rel=0.01)


def test_a_bar_is_left_behind_by_epochs_that_go_on() -> None:
    bar = "".join(
        f"\r{n}/40 [00:{n:02d}<00:{40 - n:02d}, 1.00it/s, loss=0.5]" for n in range(1, 41)
    )
    epochs = "".join(f"[2024-01-02 10:{n:02d}:00] Epoch {n}/30 loss 0.{n}\n" for n in range(1, 20))
    found = read(bar + "\n" + epochs)
    assert (found.unit, found.at, found.total) == ("epoch", 19, 30)
    assert found.seconds_per_unit == pytest.approx(60)


@pytest.mark.parametrize(
    ("head", "line", "at", "total"),
    [
        ("Total Episodes: 250", "Episode {n} - Mean Loss 0.{n} - Time Delta 9.5", 29, 250),
        ("Starting training for 31 epochs...", "Epoch {n}/30 loss 0.{n}", 30, 31),
        ("Namespace(batch_size=32, epoch=120, lr=0.1)", "epoch {n} loss 0.{n}", 30, 120),
        ("batch size: 500, training epoch: 200.", "Epoch {n:04d} in KGE | Loss: 7.{n}", 30, 200),
    ],
)
def test_the_head_states_how_many(head: str, line: str, at: int, total: int) -> None:
    found = read(head + "\n" + "".join(line.format(n=n) + "\n" for n in range(30)))
    assert (found.at, found.total) == (at, total)


def test_of_a_count_in_another_unit_nothing_is_taken() -> None:
    lines = "".join(f"step {n} loss 0.{n}\n" for n in range(30))
    assert read("Total Episodes: 250\n" + lines).total is None


def test_returns_of_episodes_are_of_a_training() -> None:
    lines = "".join(f"global_step={97 * n}, episodic_return=[{n}.]\nSPS: 50\n" for n in range(90))
    found = read(lines)
    assert (found.kind, found.at) == (ProgressKind.TRAINING, 97 * 89)
    assert found.seconds_per_unit == pytest.approx(0.02)


def test_a_time_that_only_falls_is_what_is_left() -> None:
    lines = (f"Epoch:[1/2]({n}/900) loss:2.{n} epoch_Time:{90 - n // 10}.0min\n" for n in range(99))
    found = read("".join(lines))
    assert (found.at, found.total, found.seconds_per_unit) == (98, 1800, None)


def test_the_pace_that_changed_long_ago_is_not_that_of_now() -> None:
    times = [19 * n if n < 300 else 5700 + 60 * (n - 300) for n in range(600)]
    clocks = (
        f"{t // 86400 + 1:02d} {t // 3600 % 24:02d}:{t // 60 % 60:02d}:{t % 60:02d}" for t in times
    )
    lines = (f"2024-01-{c} episode {n} Mean Loss 0.1\n" for n, c in enumerate(clocks))
    assert read("".join(lines)).seconds_per_unit == pytest.approx(60, rel=0.02)


def test_epochs_of_mindspore_tell_what_each_takes() -> None:
    line = (
        "epoch: {n} step: 200, loss is 2.{n}\nepoch time: 24000.123 ms, per step time: 120.0 ms\n"
    )
    found = read("".join(line.format(n=n) for n in range(1, 9)))
    assert (found.unit, found.at, found.seconds_per_unit) == (
        "epoch",
        8,
        pytest.approx(24, rel=0.1),
    )
    line = "Epoch [{n}] total cost: 215045.42 ms, per step: 21504.54 ms, G_loss: 6.64\n"
    found = read("".join(line.format(n=n) for n in range(1, 9)))
    assert (found.at, found.seconds_per_unit) == (8, pytest.approx(215, rel=0.01))


def test_a_time_left_that_was_of_the_run_is_so_in_its_last_epoch() -> None:
    line = "[08/02 04:{:02d}:{:02d}] Epoch: [{}] [{}/100] loss: 2.1 eta: 0:{:02d}:{:02d}\n"
    lines = (
        line.format(*divmod(10 * n, 60), n // 10, n % 10 * 10, *divmod(600 - 10 * n, 60))
        for n in range(58)
    )
    assert read("".join(lines)).remaining_s == 30


def test_what_an_epoch_took_is_said_after_it_without_a_number() -> None:
    line = "Epoch {}/30 started\n{}Epoch train finished, avg_loss=2.1, time=28.8s\n"
    steps = "".join(f"step={n}/144 loss=2.{n}\n" for n in range(20, 145, 20))
    found = read("".join(line.format(e, steps) for e in range(1, 12)))
    assert (found.at, found.total) == (10 * 144 + 140, 4320)
    assert found.seconds_per_unit == pytest.approx(0.2, rel=0.01)


def test_tests_that_say_what_a_step_takes_are_pauses() -> None:
    line = "{}  [{:>3d}/{}]  eta: 0:01:00  loss: 2.1 (2.1)  time: {}  data: 0.01  max mem: 9\n"
    lines = (
        line.format(*((f"Epoch: [{e}]", i, 140, 2.0) if i < 140 else ("Test:", i - 140, 160, 1.5)))
        for e in range(4)
        for i in range(0, 300 if e < 3 else 75, 5)
    )
    found = read("Namespace(epochs=10)\n" + "".join(lines))
    assert (found.at, found.seconds_per_unit) == (3 * 140 + 70, pytest.approx(2, rel=0.05))
    assert found.remaining_s == pytest.approx(910 * 2 + 6.5 * 240, rel=0.15)


def test_a_training_that_says_so_is_complete() -> None:
    lines = "".join(f"Epoch {n}/5\nloss 0.{n}\n" for n in range(1, 6))
    assert read(lines + "--- Training Loop Complete ---\n").remaining_s == 0


def test_a_stated_length_that_was_passed_is_another_one_s() -> None:
    """The configuration of detectron2 holds iterations of batch norms too."""
    head = "SOLVER:\n  MAX_ITER: 9000\nTEST:\n  PRECISE_BN:\n    NUM_ITER: 200\n"
    line = "[11/18 20:{:02d}:{:02d} d2.utils.events]: iter: {}  total_loss: 0.17  lr: 0.04\n"
    lines = [line.format(*divmod(n // 2, 60), n) for n in range(19, 2000, 20)]
    assert read(head + "".join(lines[:9])).total is None
    assert read(head + "".join(lines)).total == 9000


def test_turns_of_two_paces_stay_together() -> None:
    """Of a machine that others use too: the first turn is none of another pace."""
    now_s, lines = 0, []
    for n in range(1000):
        now_s += 3 if n < 200 or n % 250 < 80 else 5
        clock = f"{now_s // 3600:02d}:{now_s // 60 % 60:02d}:{now_s % 60:02d}"
        lines.append(f"2024-01-01 {clock} step {n} loss 0.{n}\n")
    assert read("".join(lines)).seconds_per_unit == pytest.approx(4.1, rel=0.1)


def test_a_pace_that_became_fast_is_that_of_now() -> None:
    """A neighbour left the machine: the fast steps are many, and little of the time."""
    times = [30.0 * n for n in range(20)] + [570.0 + 1.1 * n for n in range(1, 17)]
    clocks = (f"10:{int(t) // 60:02d}:{t % 60:06.3f}" for t in times)
    lines = (f"2024-01-01 {c} Step={20 * n}/4000 loss 0.{n}\n" for n, c in enumerate(clocks))
    assert read("".join(lines)).seconds_per_unit == pytest.approx(0.055, rel=0.02)


def test_of_lines_that_count_by_tens_two_of_five_are_no_pauses() -> None:
    """Episodes end early or late."""
    now_s, lines = 0, []
    for n in range(1, 60):
        now_s += 22 if n % 5 < 3 else 60
        clock = f"{now_s // 3600:02d}:{now_s // 60 % 60:02d}:{now_s % 60:02d}"
        lines.append(f"2024-01-01 {clock} episode {10 * n} reward 0.{n}\n")
    assert read("".join(lines)).seconds_per_unit == pytest.approx(3.72, rel=0.1)


def test_epochs_of_less_than_a_second_have_a_rate_by_stamps_of_whole_seconds() -> None:
    lines = (f"2024-01-01 10:00:{n // 6:02d} Epoch {n}/100 Loss 0.{n}\n" for n in range(1, 32))
    assert read("".join(lines)).seconds_per_unit == pytest.approx(1 / 6, rel=0.1)


def test_bars_of_other_languages_are_read() -> None:
    line = "Training [==>   ] {}% {}/900 | 4.00 it/s | ETA: {} s | loss=3.9\nSaved at step {}\n"
    found = read("".join(line.format(n // 9, n, (900 - n) / 4, n) for n in range(90, 500, 90)))
    assert (found.unit, found.at, found.total) == ("step", 450, 900)
    assert (found.seconds_per_unit, found.remaining_s) == (0.25, pytest.approx(112.5))


def test_small_numbers_before_a_counter_make_no_other_statement() -> None:
    """Nor do all the digits of an epoch in a dictionary."""
    line = "{{'loss': 0.{n}, 'grad_norm': {norm}, 'learning_rate': 4e-05, 'epoch': {e}}}\n"
    norms = "8.789004641585052e-05", "0.0018584581557661295"
    lines = [line.format(n=n, norm=norms[n % 7 > 0], e=repr(n / 139)) for n in range(1, 300)]
    assert read("".join(lines)).at == pytest.approx(299 / 139)


@pytest.mark.parametrize(
    "said",
    [
        "site-packages/torch/_dynamo/eval_frame.py:745: UserWarning: torch.utils.checkpoint: the "
        "use_reentrant parameter should be passed explicitly.",
        "No label_names provided for model class `PeftModelForCausalLM`. Since `PeftModel` hides",
    ],
)
def test_what_trainer_says_in_the_file_of_errors_makes_its_bar_one_of_a_training(said: str) -> None:
    bar = [f"{n}/90 [0{n // 30}:{2 * n % 60:02d}<01:00, 2.00s/it]" for n in range(41)]
    found = read(f"{bar[0]}{said}\n" + "\r".join(bar[1:]))
    assert (found.at, found.total, found.seconds_per_unit) == (40, 90, pytest.approx(2, rel=0.1))


def test_a_line_with_a_counter_may_say_that_the_training_ended() -> None:
    lines = "".join(
        f"step:{n}/20000 train_loss:2.{n} step_avg:43.39ms\n" for n in range(0, 900, 50)
    )
    assert read(lines).remaining_s == pytest.approx(19150 * 0.04339)
    assert read(lines + "stopping_early: wallclock_cap step:850/20000\n").remaining_s == 0


def test_what_is_left_of_a_first_epoch_is_told_best_by_the_last_lines() -> None:
    """Keras tells the mean since a begin that held the start: it falls."""
    left = (
        f"{n:5d}/11408 [...] - ETA: {(8 / n + 0.01) * (11408 - n):.0f}s" for n in range(32, 450, 32)
    )
    found = read("Epoch 1/200\n" + "".join(f"{line} - loss: 1.6\r" for line in left))
    assert found.seconds_per_unit == pytest.approx(8 / 416 + 0.01, rel=0.1)


def test_the_first_of_two_numbers_may_be_the_day() -> None:
    lines = (
        f"{n // 24 + 2:02d}/04/2024 {n % 24:02d}:05:00 epoch {n} loss 0.{n}\n" for n in range(230)
    )
    assert read("".join(lines)).seconds_per_unit == pytest.approx(3600, rel=0.05)


def test_patience_is_no_length_and_a_new_run_takes_its_own() -> None:
    """Epochs without improvement are not counted; another run's lengths replace those before."""
    lines = [f"Epoch [{n}]\nloss 0.{n}\nNo improvement for {n}/20 epochs\n" for n in range(1, 31)]
    found = read("".join(lines))
    assert (found.at, found.total, found.remaining_s) == (29, None, None)
    run = "".join(f"2024-01-02 03:{n:02}:00 Start epoch {n}:\nloss 0.3\n" for n in range(1, 9))
    later = run.replace(" 03:", " 04:")
    found = read(f"num_epochs:        20\n{run}num_epochs:        15\n{later}")
    assert (found.at, found.total, found.remaining_s) == (7, 15, 480)
    assert read(f"num_epochs:  20\n{run}num_epochs:  15\n").at is None


def test_a_line_of_another_day_begins_another_run() -> None:
    """What is appended hours later, and counts nothing yet, ends the reading of the run before."""
    run = "".join(f"2024-01-02 03:{n:02}:00 step {n * 100} loss 0.3\n" for n in range(1, 20))
    assert read(run).at == 1900
    assert read(run + "2024-01-03 09:00:00 loading data\n").at is None
    bars = "".join(
        f"Training: {n}%| | {n}/100 [{n}:00:00<{100 - n}:00:00, 3600.00s/it]\r" for n in range(9)
    )
    bars = f"2024-01-02 03:00:00 training steps follow, loss 0.3\n{bars}\n{{'loss': 0.3}}\n"
    assert read(bars + "2024-01-02 12:00:00 a checkpoint is saved\n").at == 8


def test_the_time_of_a_batch_beside_a_count_of_samples_is_not_one_of_a_sample() -> None:
    """The epochs' own time says otherwise."""
    text = "".join(
        "".join(
            f"Epoch {e}[{i}/5011]: loss:0.2, batch time:0.3077\n" for i in (16, 1616, 3216, 4816)
        )
        + f"Epoch {e} training ends, total 99.13s\n"
        for e in range(1, 8)
    )
    assert read(text).seconds_per_unit == pytest.approx(99.13 / 5011, rel=0.02)


def test_what_a_step_takes_is_not_what_an_epoch_does() -> None:
    said = (f"Epoch {e}/40 iter {e * 500} loss 0.4{e} step time: 0.21\n" for e in range(1, 9))
    found = read("".join(said))
    assert (found.unit, found.at, found.total) == ("epoch", 8, 40)
    assert found.seconds_per_unit is found.remaining_s is None


@pytest.mark.parametrize(
    ("said", "lines"),
    [
        ("Starting GRPO training...\n  weights: 0.7 and 0.25\n  rollouts: 4\n  KL: 0.01\n", ""),
        ("[INFO|trainer.py:23] >>   Total optimization steps = 1,875\n", ""),
        ("", "".join(f"{{'loss': 0.{n}, 'epoch': 0.0{n}}}\n" for n in range(1, 9))),
    ],
)
def test_a_bar_without_words_is_of_the_training(said: str, lines: str) -> None:
    """It begins after what says so, or losses wait in a buffer and come all at once."""
    bars = [f"\r{n // 19}%|#| {n}/1875 [{hms(7 * n)}<3:00:00, 7.00s/it]" for n in range(60)]
    found = read(said + "".join(bars[:40]) + "\n" + lines + "".join(bars[40:]))
    assert (found.kind, found.at, found.total) == (ProgressKind.TRAINING, 59, 1875)
    assert found.seconds_per_unit == pytest.approx(7, rel=0.05)


def epochs_of(day: int, hour: int, epochs: int, until: int) -> str:
    """A run of short epochs that tells each at its begin."""
    return "".join(
        f"2024-05-{day:02} {hour:02}:{n:02}:00 - INFO - Starting epoch {n}/{epochs}\n"
        f"2024-05-{day:02} {hour:02}:{n:02}:40 - INFO - Epoch {n} validation loss: 2.{n}\n"
        for n in range(1, until + 1)
    )


def test_a_short_run_is_not_mixed_with_the_one_before() -> None:
    runs = epochs_of(1, 17, 5, 5) + epochs_of(9, 5, 5, 5)
    found = read(runs + epochs_of(9, 9, 10, 6))
    assert (found.at, found.total) == (5, 10)
    assert found.seconds_per_unit == pytest.approx(60)
    assert found.remaining_s == pytest.approx(300)


def test_the_same_program_hours_later_is_another_run_and_no_fold() -> None:
    again = read(epochs_of(1, 5, 40, 40) + epochs_of(1, 9, 40, 12))
    assert (again.at, again.total) == (11, 40)
    assert again.remaining_s == pytest.approx(29 * 60)
    assert read(epochs_of(1, 5, 40, 40) + epochs_of(1, 6, 40, 12)).total is None


def test_epochs_and_their_number_stand_in_one_bracket() -> None:
    epochs = (
        f"\nEpoch: [{e} | 600] LR: 0.1\n"
        + "".join(
            f"({n}/62) LR: 0.1 | Batch: 1.9{n}s | Total: 1min | ETA: 1min | Loss: 0.08\n"
            for n in (1, 21, 41, 61)
        )
        for e in range(1, 9)
    )
    found = read("".join(epochs))
    assert (found.at, found.total) == (7 * 62 + 61, 600 * 62)
    assert found.seconds_per_unit == pytest.approx(1.94, rel=0.02)


def test_one_of_several_lines_of_an_epoch_says_what_it_took() -> None:
    names = ("CrossEntropy=2.1", "SmoothL1=0.6", "Time cost=43.9")
    lines = (f"Epoch[{e}] {name}\n" for e in range(8) for name in (f"Train-{n}" for n in names))
    text = "".join(lines).replace("Train-Time", "Time")
    assert read(text).seconds_per_unit == pytest.approx(43.9)


@pytest.mark.parametrize(
    "line",
    [
        "Epoch: [3][{n}/500] Time 0.834 DataTime 0.006, loss 2.7",
        "epoch id: 3, batch step: {n}, g_loss: 2.7\n g_A_loss: 5.1; Batch_time_cost: 0.834",
    ],
)
def test_what_a_batch_takes_is_said_in_other_words(line: str) -> None:
    found = read("".join(line.format(n=n) + "\n" for n in range(1, 60)))
    assert found.seconds_per_unit == pytest.approx(0.834)


def test_a_line_of_all_metrics_is_of_the_training_though_it_tests_too() -> None:
    tested = ", ".join(f'"test_loss_bbox_{n}": 0.5' for n in range(12))
    lines = (f'{{"train_loss": 2.1, {tested}, "epoch": {e}}}\n' for e in range(5))
    assert read("".join(lines)).kind is ProgressKind.TRAINING


def test_times_that_only_grow_are_no_durations() -> None:
    """They are the time of day, written as one number."""
    lines = "".join(
        f" Iteration: {n}  Time: {120019.6 + 2.6 * n:.3f}\n loss 0.{n}\n" for n in range(6)
    )
    assert read(lines).seconds_per_unit is None


def test_a_pace_that_hardly_changed_makes_no_other_counter_better() -> None:
    """Of two statements that count alike the one that was printed last tells where it stands."""
    lines = []
    for n in range(500, 14500, 500):
        stamp = (
            BEGAN + timedelta(seconds=0.145 * min(n, 9000) + 0.144 * max(0, n - 9000))
        ).isoformat()
        lines.append(f"{stamp} INFO - epoch {n} | loss 0.{n}\n")
        if n % 3000 == 0:
            lines.append(f"{stamp} INFO - Checkpoint saved -> last.pt (epoch {n}, loss 0.{n})\n")
    found = read("max_epochs: 15000\n" + "".join(lines))
    assert (found.at, found.total) == (14000, 15000)
    assert found.remaining_s == pytest.approx(144, rel=0.05)


def test_a_line_that_begins_the_training_of_an_epoch_states_no_length() -> None:
    lines = []
    for n in range(3000):
        stamp = (BEGAN + timedelta(seconds=0.5 * n)).isoformat(" ")
        if n % 300 == 0:
            lines.append(f"{stamp} Now training epoch {n // 300 + 1}. LR=0.00{n}\n")
        if n % 100 == 0:
            at = f"Epoch[{n // 300 + 1:03d}/020], Step[{n % 300:04d}/0300]"
            lines.append(f"{stamp} {at}, Avg Loss: 1.{n}\n")
    for text in ("".join(lines), "".join(lines[:-3])):  # after such a line too
        found = read(text)
        assert (found.total, found.seconds_per_unit) == (6000, pytest.approx(0.5))


def test_the_epoch_stands_in_brackets_before_a_count_of_steps() -> None:
    lines = []
    for n in range(0, 1200, 50):
        stamp = (BEGAN + timedelta(seconds=0.4 * n)).isoformat(" ")
        at = f"Train: [{n // 300 + 1:2d}/9] "
        lines.append(f"{stamp} {at}Step {n % 300:03d}/300 Loss 2{n}.8\n")
        if n % 300 == 250:
            lines.append(f"{stamp} {at}Final Loss 2{n}.7\n")
    found = read("".join(lines))
    assert (found.unit, found.at, found.total) == ("step", 1150, 2700)
    assert found.seconds_per_unit == pytest.approx(0.4)


def test_rows_of_epoch_batch_and_losses_without_their_names_are_of_a_training() -> None:
    lines = []
    for n in range(0, 1600, 40):
        stamp = (BEGAN + timedelta(seconds=2.0 * n)).isoformat(" ")
        row = f"{n // 160:6d}/29 {n % 160:7d}/160 {0.01 * n:9.3g}    0.03     4.6   -12.{n}     8.2"
        lines.append(f"{stamp} [INFO]: {row}\n")
    found = read("".join(lines))
    assert (found.kind, found.at, found.total) == (ProgressKind.TRAINING, 1560, 4800)
    assert found.seconds_per_unit == pytest.approx(2.0)


def test_a_time_stands_before_the_next_value_of_its_line() -> None:
    lines = "".join(
        f"epoch : 0 [{n}/900] Train loss: 0.{n},Valid: 0.4, time : {12.5 + n % 2 / 100} lr : 1\n"
        for n in range(60)
    )
    assert read(lines).seconds_per_unit == pytest.approx(12.5, rel=0.01)


def test_what_an_epoch_took_so_far_is_not_what_it_takes() -> None:
    lines = "".join(
        f"Epoch {n // 200 + 1} Loss 0.{n}\nTime taken for 1 epoch: {30 + n % 200}.5 secs\n"
        for n in range(500)
    )
    assert read(lines).seconds_per_unit is None


def test_a_bar_that_was_written_once_tells_a_rate_where_its_times_agree() -> None:
    for left, rate in (("20:00", 3.0), ("43:20", None)):
        line = f" 43%|███  | 300/700 [15:00<{left}, {rate or 6.5}s/it]\n"
        said = "***** Running training *****\n{'loss': 2.4, 'epoch': 0.3}\n"
        assert read(said + line).seconds_per_unit == rate


def test_a_bar_that_goes_on_past_its_total_is_the_same() -> None:
    parts = []
    for epoch in range(1, 4):
        for n in range(1, 20):  # two in 30 s, one of them at once
            at = f"{n}/14" if n < 15 else f"{n}it"
            left = "<01:00" if n < 15 else ""
            gone = hms(30 * (n // 2 + 1))
            parts.append(f"Epoch {epoch}: {at} [{gone}{left}, 15.00s/it, loss=87.{n}]\r")
        parts.append(f"\nEpoch {epoch} Loss: 8{epoch}.1\n")
    assert read("".join(parts)).seconds_per_unit == pytest.approx(15, rel=0.1)


def test_a_time_left_that_is_of_steps_alone_grows_by_the_pauses() -> None:
    """Of 40 epochs of 400 steps at 0.5 s, which the output does not say, with 100 s after each."""
    lines = []
    for n in range(0, 8000, 100):
        stamp = (BEGAN + timedelta(seconds=0.5 * n + 100 * (n // 400))).isoformat(" ")
        left = hms((16000 - n) * 0.5)
        at = f"Epoch: [{n // 400}] [{n % 400:3d}/400]"
        lines.append(f"{stamp} {at} loss: 2.{n} eta: {left} batch_cost: 0.5000\n")
    assert read("".join(lines)).remaining_s == pytest.approx(8100 * 0.75, rel=0.05)


def test_the_mean_of_an_epoch_of_one_batch_that_counts_from_one_is_of_one() -> None:
    lines = (
        f"epoch [{n}/100][1/1]\ttime 0.9 (0.90)\tdata 0.7 (0.70)\tloss 2.{n}\n"
        for n in range(1, 12)
    )
    found = read("".join(lines))
    assert found.seconds_per_unit == pytest.approx(0.9, rel=0.05)
    assert found.remaining_s == pytest.approx(80, rel=0.05)


def test_what_waits_for_data_or_the_optimizer_is_not_what_a_step_takes() -> None:
    lines = (
        f"[gpu01:0/2] {(BEGAN + timedelta(seconds=305 * n)).isoformat(' ')} (trainer:464) INFO:"
        f" 1epoch:train:{682 * n + 1}-{682 * n + 682}batch: iter_time=2.878e-04,"
        f" forward_time=0.134, loss=6{n}.9, optim_step_time=0.030, train_time=1.79\n"
        for n in range(3)
    )
    assert read("".join(lines)).seconds_per_unit == pytest.approx(305 / 682, rel=0.05)


def test_a_print_and_a_clock_that_contradict_each_other_tell_no_rate() -> None:
    lines = (
        f"{(BEGAN + timedelta(seconds=60 * n)).isoformat(' ')} step {n} loss 2.{n} step_time: 0.5\n"
        for n in range(3)
    )
    assert read("".join(lines)).seconds_per_unit is None


def test_pauses_that_are_alike_are_of_the_program_though_they_are_most_of_its_time() -> None:
    lines = (
        f"{(BEGAN + timedelta(seconds=1.3 * n + 13 * ((n - 1) // 4))).isoformat(' ')}"
        f" Step {50 * n}/ 1000; loss 1.{n}\n"
        for n in range(1, 15)
    )
    assert read("".join(lines)).remaining_s == pytest.approx(6 * 1.3 + 2 * 13, rel=0.2)


def test_a_night_between_two_sessions_is_not_what_an_epoch_takes() -> None:
    lines = (
        f"{(BEGAN + timedelta(seconds=1800 * n + 7 * 3600 * (n > 1))).isoformat(' ')}"
        f" Epoch {n}/30 | loss 4.{n}\n"
        for n in range(26)
    )
    found = read("".join(lines))
    assert found.total is not None
    assert found.at is not None
    assert found.remaining_s == pytest.approx(1800 * (found.total - found.at), rel=0.05)


def test_of_bars_that_were_only_written_at_their_end_the_last_is_of_now() -> None:
    text = "***** Running training *****\n"
    for each_s in (1.4, 1.3, 1.17):
        text += f"100% 8/8 [00:{round(8 * each_s):02d}<00:00,  {each_s}s/it]\n"
        text += "{'train_runtime': 9.3, 'train_loss': 1.5, 'epoch': 1.0}\n\n"
    assert read(text).seconds_per_unit == pytest.approx(1.17)


def test_data_in_a_folder_named_for_a_model_is_no_saved_model() -> None:
    lines = []
    for n in range(120):
        stamp = (BEGAN + timedelta(seconds=66 * n)).isoformat(" ")
        if n and n % 20 == 0:
            lines += ["INFO - Loading line idx from data/model_0060000/features.lineidx\n"] * 3
        lines.append(f"{stamp} - INFO - Epoch: [{n // 20}], step: [{n % 20 * 100}], loss: 0.{n}\n")
    found = read("".join(lines))
    assert found.kind is ProgressKind.TRAINING
    assert found.seconds_per_unit == pytest.approx(0.66, rel=0.05)


@pytest.mark.parametrize(
    ("line", "rate"),
    [
        ("step {n} | train 2.5{n} | val 2.6{n} |  {s}s\n", 0.05),
        ("ep=00 step={n} loss=3.5{n} dl=0.4ms fwd=43.0ms opt=107.5ms iter=187.7ms\n", 0.1877),
    ],
)
def test_own_prints_tell_their_rate(line: str, rate: float) -> None:
    text = "".join(line.format(n=n, s=round(0.05 * n)) for n in range(250, 3000, 250))
    assert read(text).seconds_per_unit == pytest.approx(rate, rel=0.05)


def test_lines_that_end_an_epoch_say_less_of_where_it_stands_than_those_of_steps() -> None:
    lines = []
    for n in range(10, 3000, 10):
        stamp = (BEGAN + timedelta(seconds=0.5 * n)).strftime("[%H:%M:%S]")
        lines.append(f"{stamp} Batch {n}/10000 | Loss: 9.{n} | Time: 0.5s\n")
        if n % 800 == 0:
            lines.append(f"{stamp} Epoch {n // 800} complete | Loss: 9.1 | Batches: 800/800\n")
            lines.append(f"{stamp} Epoch {n // 800 + 1}/50 starting...\n")
    assert read("".join(lines)).at == 2990


def test_a_time_that_falls_as_the_steps_that_are_left_do_tells_what_one_takes() -> None:
    """As minimind prints it, in whole minutes and not quite evenly, and called the epoch's."""
    for share, rate in ((1.0, 0.15), (3.0, None)):
        lines = []
        for n in range(10, 12000, 10):
            left_s = share * 0.15 * (40000 - n) + 70 * (n == 40)
            lines.append(f"Epoch:[1/1]({n}/40000), loss: 2.{n}, epoch_time: {left_s // 60}min\n")
            lines[-1:] = lines[-1:] if share == 1.0 else [lines[-1].replace("/40000", "/20000")]
        found = read("".join(lines))
        assert found.seconds_per_unit == (rate and pytest.approx(rate, rel=0.1))


def test_a_score_of_the_last_episodes_is_of_a_training() -> None:
    lines = "".join(
        f"Episode {n}\tFrame {20 * n} \tAverage100 Score: 2{n}.3\n" for n in range(1, 90)
    )
    assert read(lines).kind is ProgressKind.TRAINING


@pytest.mark.parametrize(
    "line",
    [
        "{stamp} - INFO - ---Epoch.{n} Train negative log-loss per event: 2.{n}\n",
        "{stamp} ----------Epoch: {n}---------- Loss: 0.{n}\n",
        "[{stamp}] Training epoch: {n}\n[{stamp}] mean_loss: 1.{n}\n",
    ],
)
def test_an_epoch_after_a_rule_or_with_its_training_is_a_counter(line: str) -> None:
    found = read("".join(line.format(stamp=BEGAN + timedelta(minutes=n), n=n) for n in range(9)))
    assert (found.unit, found.total, found.remaining_s) == ("epoch", None, None)
    assert found.seconds_per_unit == pytest.approx(60)


def test_epochs_and_steps_of_them_stand_in_brackets_before_a_step_of_the_run() -> None:
    """As DBNet prints it, resumed with more samples than before."""
    lines = "".join(
        f"{BEGAN + timedelta(seconds=2 * n)} INFO: [38/200], [{n}/604], global_step: {13100 + n},"
        f" loss: 0.95\n"
        for n in range(1, 90)
    )
    found = read(lines)
    assert (found.at, found.total) == (37 * 604 + 89, 200 * 604)


def test_a_frame_rate_is_of_the_steps_in_all_environments() -> None:
    """As the trainers of multi-agent reinforcement learning print it."""
    lines = "".join(
        f" Algo mappo updates {n}/1000 episodes, total num timesteps {300 * n}/300000, FPS 42.\n"
        f"  average reward: -{n}.1\n"
        for n in range(1, 90)
    )
    found = read(lines)
    assert (found.at, found.total) == (300 * 89, 300_000)
    assert found.seconds_per_unit == pytest.approx(1 / 42)


def _bar(n: int, of: int, elapsed_s: float, each_s: float, before: str = "") -> str:
    left_s = each_s * (of - n)
    return f"{before}{n}/{of} [{hms(elapsed_s)}<{hms(left_s)}, {1 / each_s:.2f}it/s, loss=0.4]\r"


def test_a_bar_that_has_just_begun_goes_at_the_pace_of_those_before_it() -> None:
    text = "".join(
        _bar(n, 60_000, 1 + 4e-5 * n, 0.027 if n < 600 else 4e-5)
        for epoch in range(4)
        for n in range(64, 60_000 if epoch < 3 else 200, 64 * (30 if epoch < 3 else 1))
    )
    found = read(text)
    assert found.at == 192
    assert found.seconds_per_unit == pytest.approx(4e-5, rel=0.5)


def test_an_evaluation_inside_a_bar_is_in_the_time_of_the_bar() -> None:
    """Epochs of 600 steps of 0.2 s, and an evaluation of 30 s after each 300 of them."""
    text = "Num epochs = 10\n"
    for epoch in range(3):
        text += f"Epoch: {epoch}/10 [{hms(180 * epoch)}<{hms(1800)}, 180.0s/it]\r"
        for n in range(5, 605 if epoch < 2 else 55, 5):
            text += _bar(n, 600, 0.2 * n + 30 * (n > 300), 0.2, "Iteration: ")
            if n % 300 == 0:
                text += "".join(_bar(k, 60, k / 2, 0.5, "Evaluating: ") for k in range(1, 61))
    found = read(text)
    assert found.seconds_per_unit == pytest.approx(0.2, rel=0.1)
    assert found.remaining_s == pytest.approx((6000 - 1250) * 0.3, rel=0.2)


def test_what_an_epoch_took_is_no_pause_of_its_steps() -> None:
    text = "max_epoch: 10\n"
    for epoch in range(3):
        text += "".join(
            f"Train: data epoch: [{epoch}]  [{n:4d}/1000]  loss: 0.98  time: 2.0  data: 0.0\n"
            for n in range(0, 1000 if epoch < 2 else 300, 50)
        )
        text += f"Train: data epoch: [{epoch}] Total time: 0:33:20 (2.0 s / it)\n" * (epoch < 2)
    assert read(text).remaining_s == pytest.approx(7750 * 2, rel=0.05)


def test_a_bar_without_words_counts_the_epochs_that_lines_beside_it_count() -> None:
    text = "".join(
        f" {n}/100 [{hms(1866 * n)}<{hms(1866 * (100 - n))}, 1866.0s/it]Epoch {n + 1}, Training"
        f" loss: 0.{n}, Validation loss: 0.{n}\n"
        for n in range(20)
    )
    found = read(text)
    assert (found.unit, found.at, found.total) == ("epoch", 19, 100)


def test_stamps_of_underscores_and_words_in_brackets_are_read() -> None:
    lines = (f"2026_08_19_16_{n:02d}_07 [Epoch] {n:03d} [Loss] loss_a 0.8\n" for n in range(1, 30))
    found = read("".join(lines))
    assert (found.unit, found.at) == ("epoch", 29)
    assert found.seconds_per_unit == pytest.approx(60)


@pytest.mark.parametrize("between", [", ", " : "])
def test_an_epoch_and_a_step_in_brackets_before_a_loss_are_a_training(between: str) -> None:
    counted = [(e, n) for e in range(3) for n in range(100, 1300, 100)]
    untimed = read("\n".join(f"[{e}{between}{n:6d}] loss: 2.17" for e, n in counted))
    assert (untimed.kind, untimed.seconds_per_unit) == (ProgressKind.TRAINING, None)
    stamped = (f"10:{m:02d}:00 [{e}{between}{n:6d}] loss: 2.17" for m, (e, n) in enumerate(counted))
    assert read("\n".join(stamped)).seconds_per_unit == pytest.approx(0.6, rel=0.1)


def test_long_lines_of_one_statement_are_one_whatever_is_left_out_of_them() -> None:
    """As DETR writes a line of JSON an epoch, of thousands of characters."""
    lines = []
    for n in range(20):
        metrics = "".join(f'"train_loss_{k}": {k}.{n}, ' for k in range(150))
        boxes = ", ".join(f"0.{(n + 2) ** (k + 4)}" for k in range(14))
        lines.append(f'{{{metrics}"test_coco_bbox": [{boxes}], "epoch": {n}, "n": 4}}\n')
    assert read("".join(lines)).at == 19


def test_what_was_right_in_percent_is_no_step_beside_a_bar() -> None:
    lines = []
    for n in range(8):
        lines.append(f"\nEpoch: {n}\n")
        for total, right in ((500, 20_000), (80, 4_000)):
            drawn = f" [=========== {total}/{total} ==========>]  Step: 60ms | Tot: {n}s302ms"
            lines.append(f"{drawn} | Loss: 1.{n} | Acc: 6{n}.2% ({right + n}/50000)\n")
    found = read("".join(lines)[:-120])  # in the line before the last
    assert (found.at, found.total) == (4000, None)


def test_a_counter_that_leaps_is_of_another_run() -> None:
    began, parts = BEGAN, []
    for first in (119_900, 179_880):
        for n in range(first, first + 120, 20):
            stamp = (began + timedelta(seconds=0.34 * (n - first))).isoformat(" ")
            parts.append(f"{stamp} Iteration {n}, loss = 0.{n}\n")
        began += timedelta(hours=2.9)
    assert read("".join(parts)).seconds_per_unit == pytest.approx(0.34, rel=0.05)


def test_a_number_of_epochs_may_have_a_comma() -> None:
    said = "***** Running training *****\n  Num Epochs = 1,000\n"
    lines = (
        f"[INFO|{(BEGAN + timedelta(seconds=100 * n)).isoformat(' ')}] logging.py:157 >>"
        f" {{'loss': 2.{n}, 'learning_rate': 3e-05, 'epoch': {n / 4}}}\n"
        for n in range(1, 30)
    )
    assert read(said + "".join(lines)).total == 1000


def test_an_epoch_that_a_bar_names_itself_is_counted_from_one_beside_a_bar_of_epochs() -> None:
    parts = ["net | 2 GPU(s):   0%|          | 0/150 [00:00<?, ?ep/s]\n"]
    for n in range(1, 60):
        done = f"{n}/1000 [{hms(2 * n)}<{hms(2000 - 2 * n)}, 0.50batch/s, loss 5.{n}]"
        parts.append(f"  Epoch 001:   1%|▏   | {done}\r")
    found = read("".join(parts))
    assert (found.at, found.total) == (59, 150_000)


def test_the_ratio_before_a_bar_is_not_that_of_another_bar() -> None:
    glued = (f" {n}%|#  | {n}/100 [{hms(n)}<{hms(100 - n)}, 1.00it/s, loss=0.4]" for n in range(50))
    found = read("".join(glued))
    assert (found.at, found.total, found.remaining_s) == (49, 100, pytest.approx(51))


def test_lines_that_were_printed_as_one_string_are_lines() -> None:
    lines = (f"Epoch {n}/2000 loss: 0.{n} time: 12.{n % 9}s" for n in range(1, 400))
    found = read("b'" + "\\n".join(lines) + "\\n'\n")
    assert (found.at, found.total) == (399, 2000)
    assert found.seconds_per_unit == pytest.approx(12.4, rel=0.05)


@pytest.mark.parametrize("said", ["gpu time 35.{}", "GPU time: 35.{} s", "GPU time: 35.{}s |"])
def test_the_time_of_the_gpu_is_not_what_a_step_takes(said: str) -> None:
    lines = (f"iter {n}: loss 2.{n}, {said.format(n % 9)}\n" for n in range(1, 60))
    found = read("".join(lines))
    assert (found.at, found.seconds_per_unit) == (59, None)


def test_epochs_of_a_run_before_are_not_those_of_the_run_that_just_began() -> None:
    def epoch(n: int) -> str:
        batches = "".join(f"Epoch[{n}] Batch [{b}]\tSpeed: 36.1 samples/sec\n" for b in (20, 40))
        return f"{batches}Epoch[{n}] Train-Acc=0.{n}\nEpoch[{n}] Time cost=98.{n}\n"

    before = "".join(map(epoch, range(12)))
    assert read(before).at == 12
    found = read(before + "Epoch[0] Batch [20]\tSpeed: 12.3 samples/sec\n")
    assert (found.kind, found.at) == (ProgressKind.TRAINING, None)


def test_a_stamp_may_have_a_date_without_signs() -> None:
    lines = (
        f"{(BEGAN + timedelta(seconds=640 * n)):%Y%m%d-%H:%M:%S} Train Epoch: {n}/70 ...\n"
        for n in range(1, 9)
    )
    assert read("".join(lines)).remaining_s == pytest.approx(63 * 640, rel=0.02)


def test_batches_before_any_epoch_was_named_are_not_the_whole_run() -> None:
    def batches(epoch: int) -> str:
        return "".join(
            f"{BEGAN + timedelta(seconds=300 * epoch + 0.16 * n)} INFO : train --- Current"
            f" batch:{n}/1600  loss:[ 0.{n}]\n"
            for n in range(200, 1601, 200)
        )

    assert (read(batches(0)).at, read(batches(0)).total) == (1600, None)
    ended = "Epoch [0]/[9] \t Training Phase Loss: 0.07\n"
    found = read(batches(0) + ended + batches(1) + ended.replace("[0]", "[1]") + batches(2))
    assert (found.at, found.total) == (4800, 16_000)


def test_a_solver_that_is_done_has_nothing_left() -> None:
    lines = (
        f"{(BEGAN + timedelta(seconds=4 * n)).isoformat(' ')} Iteration {500 * n}, loss = 1.{n}\n"
        for n in range(40)
    )
    text = "max_iter: 20000\n" + "".join(lines)
    assert read(text).remaining_s == pytest.approx(4)
    assert read(text + "Solving done ...\n").remaining_s == 0


def test_whole_seconds_a_step_are_told_better_by_what_the_epoch_took() -> None:
    text = "".join(
        f"Epoch {n}/40\n300/300 [=====] - {450 + n % 3}s 2s/step - loss: 0.{n}\n"
        for n in range(1, 9)
    )
    assert read(text).seconds_per_unit == pytest.approx(1.5, rel=0.02)


def test_the_seconds_of_a_stamp_are_no_epoch() -> None:
    lines = (
        f"{(BEGAN + timedelta(seconds=7 * n)).isoformat(' ')} epoch: {1 + n // 50}/200"
        f" iters:{10 * n:5d}/100000, loss:0.7{n}\n"
        for n in range(1, 200)
    )
    found = read("".join(lines))
    assert (found.at, found.total) == (1990, 100_000)
    assert found.seconds_per_unit == pytest.approx(0.7, rel=0.05)


def test_what_is_told_of_a_training_that_ended_names_no_epoch() -> None:
    """Its totals are text, and evaluations follow that have an end too."""
    text = "".join(_bar(n, 3723, 0.36 * n, 0.36) for n in range(0, 3724, 3))
    text += "\n{'train_runtime': '880.9', 'train_loss': '0.03', 'epoch': '3'}\n" * 2
    found = read(text)
    assert (found.at, found.total, found.remaining_s) == (3723, 3723, 0)


def test_the_time_left_of_a_bar_is_of_its_epoch_however_often_it_is_longer() -> None:
    text = "".join(
        f"Epoch {epoch}:  50%|###   | {n}/395 [{hms(0.4 * n)}<{hms(9000)}, 2.50it/s, loss=0.4]\r"
        for epoch in range(3)
        for n in range(0, 395 if epoch < 2 else 300, 5)
    )
    assert read(text).remaining_s is None


def test_a_pace_that_changed_is_that_of_the_last_lines_as_they_say_it() -> None:
    text, now = "", BEGAN
    for n in range(100, 30_000, 100):
        each_s = 0.19 if n < 27_000 else 0.057
        now += timedelta(seconds=100 * each_s)
        at = f"Epoch [{1 + n // 5005}][{n % 5005}/5005]"
        text += (
            f"{now.isoformat(' ')} - INFO - {at} time: {each_s:.3f}, data_time: 0.0, loss: 0.9\n"
        )
    assert read(text).seconds_per_unit == pytest.approx(0.057, rel=0.05)


def test_a_time_that_counts_in_hundredths_of_minutes_is_no_time_of_a_step() -> None:
    lines = (
        f"step {n:05d} (0.00%) | loss: 5.{n} | dt: {5 + n % 3 / 10:.2f}ms | epoch: 1"
        f" | total time: {n * 0.0051 / 60:.2f}m\n"
        for n in range(1, 133)
    )
    assert read("".join(lines)).seconds_per_unit == pytest.approx(0.0051, rel=0.05)


def test_epochs_that_were_printed_without_line_ends_are_lines() -> None:
    lines = (f"epoch: {n}/300, train_loss: 1.{n}, train_acc: 0.{n}" for n in range(1, 90))
    found = read("".join(lines))  # the last one may be cut
    assert (found.at, found.total) == (88, 300)


def test_an_epoch_with_its_steps_is_a_training_without_a_word_for_losses() -> None:
    lines = (
        f"{(BEGAN + timedelta(seconds=350 * n)).isoformat(' ')} INFO Epoch{n // 50}"
        f" [{n % 50 * 100}/5000] stage 0 = 5.{n} stage 1 = 2.{n}\n"
        for n in range(1, 120)
    )
    found = read("".join(lines))
    assert (found.kind, found.at) == (ProgressKind.TRAINING, 2 * 5000 + 1900)
    assert found.seconds_per_unit == pytest.approx(3.5, rel=0.05)
    tests = (f"Epoch {n} test [{n}/50]: 5.{n}\n" for n in range(1, 30))
    assert read("".join(tests)).kind != ProgressKind.TRAINING


def test_two_runs_in_one_file_are_told_apart_by_the_words_of_their_lines() -> None:
    lines = []
    for n in range(600):  # the teacher began 25 epochs before
        now = (BEGAN + timedelta(seconds=5 * n)).isoformat(" ")
        for name, epoch in (("Teacher", 26 + n // 10), ("Student", 1 + n // 10)):
            if n % 10 == 0:
                lines.append(f"{now} INFO - {name} Epoch {epoch}/100\n")
            lines.append(f"{now} INFO - {name} - Batch {n % 10 * 100}/1000, Loss: 0.5\n")
    found = read("".join(lines))
    assert found.at in {59_900, 84_900}
    assert found.seconds_per_unit == pytest.approx(0.05, rel=0.1)


def test_a_number_before_the_losses_of_training_and_validation_is_an_epoch() -> None:
    lines = (f"{n:3} \ttrain loss=0.6{n} \ttrain acc=0.5 \tvalid loss=0.7{n}\n" for n in range(60))
    found = read("".join(lines))
    assert (found.kind, found.unit, found.at) == (ProgressKind.TRAINING, "epoch", 60)
    other = (f"{n} trains of {n} wagons were valued, loss {n} tons\n" for n in range(1, 60))
    assert read("".join(other)).kind != ProgressKind.TRAINING


def test_a_stated_length_that_was_reached_before_is_that_of_one_run_of_several() -> None:
    text, now = "steps per scale: 2000\nnum_steps: 2000\n", BEGAN
    for scale in range(3):
        text += f"Scale #{scale}\n"
        for n in range(0, 2001 if scale < 2 else 1401, 200):
            now += timedelta(seconds=24)
            text += f"{now.isoformat(' ')} - INFO - Iteration {n}, D: -0.1, G: 1.41, loss 0.{n}\n"
    found = read(text)
    assert (found.at, found.total, found.remaining_s) == (1400, None, None)
    assert found.seconds_per_unit == pytest.approx(0.12, rel=0.05)


def test_pauses_of_a_bar_before_what_was_read_of_it_come_again() -> None:
    text, now = "", 0.0
    for n in range(1, 4001):
        now += 10.0 + 2000 * (n % 500 == 0)  # an evaluation that prints much
        text += f" 40%|####   | {n}/10000 [{hms(now)}<{hms(10 * (10_000 - n))}, 10.0s/it]\r"
        text += f"{{'loss': 0.{n}, 'learning_rate': 1e-05}}\n" + "-" * 400 + "\n"
    found = read(text[: -480 * 300])
    assert found.seconds_per_unit == pytest.approx(10, rel=0.02)
    assert found.at is not None
    assert found.remaining_s == pytest.approx(14 * (10_000 - found.at), rel=0.05)


def test_the_seconds_of_a_bar_that_is_full_are_what_its_epoch_took() -> None:
    lines = (
        f"Epoch {n}/40\n127/127 [==============================] - {7 + n % 2}s - loss: 0.{n}\n"
        for n in range(1, 21)
    )
    found = read("".join(lines))
    assert (found.at, found.total) == (20 * 127, 40 * 127)
    assert found.remaining_s == pytest.approx(20 * 7.5, rel=0.1)


def test_epochs_of_a_few_seconds_are_told_by_the_rate_of_their_bars() -> None:
    text = "epochs: 20\n"
    for epoch in range(12):
        for n in range(1, 666):
            done = f"Epoch {epoch}:  9%|#  | {n}/665 [{hms(n * 0.0059)}<{hms((665 - n) * 0.0059)}"
            text += f"{done}, {1 / 0.0059 + n % 5:.2f}it/s, loss=0.{n}]\r"
    found = read(text)
    assert found.seconds_per_unit == pytest.approx(0.0059, rel=0.05)
    assert found.remaining_s == pytest.approx(8 * 665 * 0.0059, rel=0.1)


def test_lines_of_validation_are_of_another_statement_than_those_of_training() -> None:
    text, now = "", BEGAN
    for n in range(3):
        for what, took_s in (("Train", 250), ("Val", 80)):
            now += timedelta(seconds=took_s)
            text += f"[{now.isoformat(' ')}] [INFO] [Epoch {n}] {what}  loss=0.07 f1=0.9{n}\n"
    cut = text[: text.rindex("[2")]  # before the last validation
    assert read(cut).seconds_per_unit == pytest.approx(330, rel=0.02)


def test_what_went_on_after_an_end_has_not_ended() -> None:
    run = (f"{BEGAN + timedelta(seconds=4 * n)} INFO - Epoch {n}: loss 1.{n}\n" for n in (0, 1))
    run_text = "".join(run)
    assert read(f"{run_text}INFO - Training completed!\n").remaining_s == 0
    assert read(f"{run_text}INFO - Training completed!\n{run_text}").remaining_s is None


def test_a_total_that_is_one_less_than_was_stated_is_of_epochs_from_zero() -> None:
    lines = (
        f"   {epoch}/499   1.2G  0.05  0.03  0.01  21  640:  9%|# | {n}/33"
        f" [{hms(12 * n)}<{hms(9)}, 12.0s/it]\r"
        for epoch in range(226, 240)
        for n in range(1, 34)
    )
    found = read("Namespace(adam=False, batch_size=16, epochs=500)\n" + "".join(lines))
    assert (found.at, found.total) == (240 * 33, 500 * 33)


def test_the_slow_begin_of_an_epoch_is_no_change_of_pace() -> None:
    text = ""
    for epoch in range(9):
        for n in range(1, 593 if epoch < 8 else 99):
            now = 2.0 + 0.05 * n  # its workers start
            each = f"{15.5 + n % 3 / 10:.2f}it/s, loss=3.{n}, " + 25 * "metric=0.1 "
            text += f"Epoch {epoch} [Train]:  9%|# | {n}/592 [{hms(now)}<{hms(9)}, {each}]\r"
    assert read(text).seconds_per_unit == pytest.approx(0.0534, rel=0.07)


def test_a_run_of_two_epochs_before_is_another_run() -> None:
    text, now = "", BEGAN
    for epochs, took_s in ((2, 2000), (5, 1600)):
        now += timedelta(seconds=3000)
        for n in range(1, epochs + 1):
            now += timedelta(seconds=took_s)
            text += f"{now.isoformat(' ')} - Epoch {n}: Train Loss = 1.{n}, Val Loss = 2.{n}\n"
    found = read(text)
    assert found.at == 5
    assert found.seconds_per_unit == pytest.approx(1600, rel=0.02)


def test_hours_between_two_steps_that_come_once_are_no_pause_of_the_program() -> None:
    text, now = "total iterations 9000, max iterations: 9000\n", BEGAN
    for n in range(20, 6000, 20):
        now += timedelta(seconds=40 + 9000 * (n == 400) + 40 * (n % 600 == 0))
        text += f"{now.isoformat(' ')} INFO iter: {n} total_loss: 0.{n} lr: 0.01\n"
    assert read(text).remaining_s == pytest.approx(3020 * 41 / 20, rel=0.1)
