"""What happens to outputs on their way into a file, and outputs of what is no training."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from streams import REGULAR, Stream, bar, megatron


def ranks(stream: Stream) -> Stream:
    """Eight ranks print the same, a line behind each other, with the tag of srun -l."""
    lines = stream.text.split("\n")
    tagged = [f"{r}: {lines[i]}" for i in range(len(lines)) for r in range(8)]
    return replace(stream, text="\n".join(tagged))


def torchrun_ranks(stream: Stream) -> Stream:
    lines = stream.text.split("\n")
    late = ["", *lines]
    pairs = zip(lines, late, strict=False)
    return replace(stream, text="\n".join(f"[rank0]: {a}\n[rank1]: {b}" for a, b in pairs))


def coloured(stream: Stream) -> Stream:
    """Colours before every digit run, and the cursor moved up between lines."""
    text = stream.text.replace("\n", "\x1b[0m\n\x1b[A\x1b[2K")
    return replace(stream, text=text.replace(" ", " \x1b[1;32m"))


def noise(stream: Stream) -> Stream:
    """NUL bytes and bytes of no encoding between the lines, as after a crash of the node."""
    dice = random.Random(3)
    junk = "".join(chr(dice.choice((0, 1, 7, 27, 127, 0xFFFD, 200))) for _ in range(60))
    return replace(stream, text=stream.text.replace("\n", f"\n{junk}\n"))


def huge_lines(stream: Stream) -> Stream:
    """A line of a megabyte before the end."""
    head, _, end = stream.text.rstrip("\n").rpartition("\n")
    return replace(stream, text=f"{'x' * 1_000_000}\n{head}\n{'[1/2' * 20_000}\n{end}\n")


def windows(stream: Stream) -> Stream:
    return replace(stream, text=stream.text.replace("\n", "\r\n"))


def cut(stream: Stream) -> Stream:
    """The begin is missing, and a line that is not finished ends it."""
    begin = len(stream.text) // 3
    return replace(stream, text=stream.text[begin:] + "\nEpoch 1/10, step 1")


def chatter(stream: Stream) -> Stream:
    """Warnings, paths, versions and dates between the lines."""
    said = (
        "\n/opt/env/lib/python3.11/site-packages/torch/nn/functional.py:1961: UserWarning: 3/4"
        "\nSaved checkpoint at step_1000/epoch=3-step=120.ckpt (12/24/2024, 1 of 3)"
        "\nMemory: 12/80 GB used, temperature 61 C, 250W / 300W\n"
    )
    lines = stream.text.split("\n")
    return replace(
        stream, text="\n".join(x + (said if i % 7 == 3 else "") for i, x in enumerate(lines))
    )


def restarted(stream: Stream) -> Stream:
    """The same file holds the run before, which ended elsewhere and was slower."""
    return replace(
        stream, text=megatron(step_s=9.0, at=400).text.split("\n")[0] + "\n" + stream.text
    )


def evaluated(stream: Stream) -> Stream:
    """An evaluation is under way after the last line."""
    bars = "".join("\rEvaluating: " + bar(i, 500, i * 0.02, 0.02) for i in range(1, 200))
    return replace(stream, text=stream.text + "\n" + bars)


def requeued() -> Stream:
    """A run at another speed before, and this one resumed at its checkpoint."""
    before, after = megatron(step_s=3.0, at=700), megatron(step_s=0.8, first=600, at=1500)
    return replace(
        after, text=before.text + "slurmstepd: error: *** JOB CANCELLED ***\n" + after.text
    )


def resumed_bar() -> Stream:
    """A bar that begins high: its elapsed time is of this part only."""
    text = "".join("\rtrain " + bar(800 + n, 1000, n * 2.0, 2.0, ", loss=0.1") for n in range(120))
    return Stream(text=text, unit="step", rate_s=2.0, at=919, remaining_s=81 * 2.0)


def glued() -> Stream:
    """The last refresh of a bar without a break before the next text."""
    parts = ["\rTrain " + bar(n, 400, n * 1.5, 1.5, ", loss=0.2") for n in range(100)]
    parts[50] += "INFO saved to out/epoch_3/ 1/2"
    parts[80] += "[rank0]: W loss is finite"
    return Stream(text="".join(parts), unit="step", rate_s=1.5, at=99, remaining_s=301 * 1.5)


def slow_validation() -> Stream:
    """The smoothed rate of the bar is that of the last seconds, after a pause."""
    now_s, parts = 0.0, []
    for n in range(301):
        shown_s = 40.0 if n % 100 == 1 and n > 1 else 1.0
        parts.append("\rtraining: " + bar(n, 1000, now_s, shown_s, ", lr=0.1"))
        now_s += 1.0 + (60 if n % 100 == 0 and n else 0)
    return Stream(text="".join(parts), unit="step", rate_s=1.0, at=300, remaining_s=700 * 1.4)


WRAPPERS: dict[str, tuple[Callable[[Stream], Stream], tuple[str, ...]]] = {
    "ranks": (ranks, ("megatron", "swin", "own_brackets")),
    "torchrun_ranks": (torchrun_ranks, ("detectron", "own_epochs_stamped", "caffe")),
    "coloured": (coloured, ("yolox", "tqdm_epochs", "opennmt")),
    "noise": (noise, ("paddle", "lightning_rich", "nanogpt")),
    "huge_lines": (huge_lines, ("mmengine", "own_epochs", "fairseq")),
    "windows": (windows, ("torchvision", "keras_two", "own_epochs_cumulative")),
    "cut": (cut, ("deepspeed", "by_steps_and_elapsed", "llm_c")),
    "chatter": (chatter, ("imagenet", "word_language_model", "episodes")),
    "restarted": (restarted, ("nanochat", "torchtitan", "slim")),
    "evaluated": (evaluated, ("trainer", "lightning", "ultralytics")),
}
ALONE = (requeued, resumed_bar, glued, slow_validation)


def hostile() -> Iterator[tuple[str, Stream]]:
    """Every wrapped stream by its name."""
    for name, (wrapper, inner) in WRAPPERS.items():
        for one in inner:
            yield f"{name}-{one}", wrapper(REGULAR[one]())
    for made in ALONE:
        yield made.__name__, made()


def _bars(text: str, total: int = 200, step_s: float = 0.3, unit: str = "it") -> str:
    shown = (bar(n, total, n * step_s, step_s).replace("it/s", f"{unit}/s") for n in range(total))
    return "".join(f"\r{text}{one}" for one in shown)


def _lines(form: str, numbers: range = range(1, 60)) -> str:
    return "\n".join(form.format(n=n, f=n * 0.37, t=f"{n // 60:02d}:{n % 60:02d}") for n in numbers)


NOT_TRAINING = {
    "map of a data set": _bars("Map (num_proc=8): ", unit="examples"),
    "tokenising": _bars("Running tokenizer on dataset: "),
    "download bar": _bars("model-00001-of-00003.safetensors: ", unit="MB").replace("s/it", "s/MB"),
    "checkpoint shards": _bars("Loading checkpoint shards: ", total=33),
    "pip": "Collecting torch\n" + _lines("   ━━━━━━━━━ {n}.1/766.7 MB 45.1 MB/s eta 0:00:12"),
    "wget": _lines("{n}50K .......... .......... .......... {n}% 12.1M {n}s"),
    "curl": _lines(
        " {n} 766M   {n}  100M    0     0  45.1M      0  0:00:17  0:00:{n:02d}  0:00:12 45.1M"
    ),
    "git clone": _lines("Receiving objects:  {n}% ({n}/100), 12.1 MiB | 4.2 MiB/s"),
    "rsync": _lines("     32,768 {n}%    1.1MB/s    0:00:{n:02d} (xfr#{n}, to-chk={n}/1200)"),
    "cmake": _lines("[ {n}%] Building CXX object src/CMakeFiles/core.dir/file{n}.cpp.o"),
    "ninja": _lines("[{n}/800] Compiling CXX object lib/file{n}.o"),
    "cargo": _lines("   Compiling crate{n} v0.{n}.1 ({n}/59)"),
    "ctest": _lines("{n}/60 Test  #{n}: unit_case_{n} ..........   Passed    0.{n:02d} sec"),
    "pytest": _lines("tests/test_{n}.py::test_case PASSED                       [ {n}%]"),
    "unit tests of training": _lines(
        "test_train_step_{n} (tests.test_train.TestLoss) ... ok {n}/59"
    ),
    "gromacs": _lines(
        "           Step           Time\n         {n}00        {f:.5f}\n\n imb F  2%"
    ),
    "lammps": "Step Temp E_pair TotEng Press\n"
    + _lines("   {n}00    1.44   -5.{n}   -4.6   0.{n}"),
    "openmm": '#"Step","Time (ps)","Speed (ns/day)","Time Remaining"\n'
    + _lines("{n}000,{f:.2f},251,0:{t}"),
    "vasp": _lines("DAV:  {n}    -0.1{n}E+02   -0.3E-04   -0.2E-05  1234   0.2E-02"),
    "openfoam": _lines("Time = {n}\nExecutionTime = {f:.2f} s  ClockTime = {n} s"),
    "monte carlo": _lines("Simulating batch {n}\n      {n}/1    1.0{n}"),
    "nextflow": _lines("[3f/ab{n:04d}] process > align (sample {n}) [ {n}%] {n} of 59"),
    "snakemake": _lines(
        "[Mon Mar  4 12:{n:02d}:01 2024]\nFinished job {n}.\n{n} of 60 steps ({n}%) done"
    ),
    "evaluation": _bars("Evaluating: "),
    "inference": _bars("Inference: ", unit="img"),
    "detectron evaluation": _lines(
        "[01/02 03:{t} d2.evaluation.evaluator]: Inference done {n}/100. Inference: 0.1 s/iter. "
        "Total: 0.1 s/iter. ETA=0:01:{n:02d}"
    ),
    "lm evaluation": _bars("Running loglikelihood requests: "),
    "ffmpeg": _lines(
        "frame= {n}00 fps= 24 q=28.0 size=  {n}kB time=00:00:{n:02d}.00 bitrate= 21kb/s"
    ),
    "tar": _lines("./data/image_{n:05d}.jpg"),
    "solver": _lines("Iteration {n}  residual = 0.00{n}  dt = 0.01  {t}"),
    "a solver beside one loss": _lines("    Iterations: {n}") + "\nloss 0.1\nloss 0.2\n",
    "stages of a script": "Step 1: load modules\nStep 2: copy data\nStep 3: run\nepochs: 100\n",
    "configuration": "epochs: 100\nbatch_size: 32\nlr: 0.1\nmax_steps: 1000\nmodel: 12/24\n",
    "nvidia-smi": _lines(
        "|  0%   {n}C    P0   61W / 300W |   1234MiB / 16384MiB |   {n}%   Default |"
    ),
    "traceback": 'Traceback (most recent call last):\n  File "train.py", line 120, in <module>\n',
    "hyper-parameter search": _lines(
        "[I 2024-03-04 12:{t},123] Trial {n} finished with value: 0.9{n} and parameters: {{}}."
    ),
    "web server": _lines(
        '10.0.0.{n} - - [20/Jul/2024 02:58:04] "GET /epoch/{n}/100 HTTP/1.1" 200 -'
    ),
    "backup": _lines("2024-03-04 12:{t} copied {n}/59 files"),
    "empty": "",
    "noise": "".join(
        chr(n * 7919 % 65536) for n in range(1, 3000) if not 0xD800 <= n * 7919 % 65536 < 0xE000
    ),
}
