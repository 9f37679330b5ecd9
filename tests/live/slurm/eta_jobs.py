"""Jobs that print progress on a bench, and how far off `slurm eta` is of when they end."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tqdm

from .cluster import SlurmCluster
from .daemon import PROGRAM
from .training import FORMATS, Training

# What a user would have written: only the program is another.
COMMANDS = {
    "tqdm": "python train.py --data /data/train --epochs {epochs} --lr 1e-3",
    "trainer": "python run_glue.py --model_name_or_path bert-base-cased --task_name mnli --do_train"
    " --do_eval --per_device_train_batch_size 32 --num_train_epochs {epochs} --output_dir out",
    "lightning": "python fit.py --max_epochs {epochs} --batch_size 64",
    "keras": "python fit_keras.py --epochs {epochs}",
    "imagenet": "python main.py -a resnet50 --epochs {epochs} --batch-size 256 /data/imagenet",
    "timm": "torchrun --nproc_per_node=1 train.py /data/imagenet --model resnet50 "
    "--epochs {epochs} -b 128 --amp",
    "megatron": "torchrun --nproc_per_node=1 pretrain_gpt.py --num-layers 24 --hidden-size 1024 "
    "--num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024 "
    "--micro-batch-size 4 --global-batch-size 256 --train-iters {total}",
    "nanogpt": "python train.py config/train_gpt2.py --max_iters={total}",
}
SCRIPT = """\
#!/bin/sh
#SBATCH --job-name={form}
umask {umask}
PATH={programs}:$PATH
export FORMAT={form} SEED={seed} SECONDS={seconds:g} {buffered}
{command}
"""
PYTHON = shutil.which("python3", path="/usr/bin") or sys.executable


@dataclass(frozen=True, slots=True)
class PrintingJob:
    """A job of the bench, what it prints, and whose it is."""

    job_id: int
    form: str
    user: str | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What one `slurm eta` said of a job's end, in Unix seconds."""

    at_s: float
    end_s: float
    basis: str


class EtaJobs:
    """Trainings of all formats on a bench, whose programs are in its work directory."""

    def __init__(self, cluster: SlurmCluster, home: Path, policy: Path) -> None:
        self.cluster = cluster
        self._env = {**cluster.env, "PRECISION_TIME_HOME": str(home)}
        self._policy = policy
        self.answers: dict[int, list[Answer]] = {}
        self._programs = cluster.work / "programs"
        library = self._programs / "library"
        # a copy, as users of the bench may not read where tests are installed
        shutil.copytree(Path(tqdm.__file__).parent, library / "tqdm")
        shutil.copy(Path(__file__).with_name("training.py"), library)
        for name in ("python", "torchrun"):
            program = self._programs / name
            words = f'exec env PYTHONPATH={library} {PYTHON} {library}/training.py "$@"'
            program.write_text(f"#!/bin/sh\n{words}\n")
            program.chmod(0o755)

    def submit(
        self, form: str, seed: int, seconds: float, user: str | None, *options: str
    ) -> PrintingJob:
        """Queue one; every fifth buffers what it prints as Python does, every fourth is private."""
        length = Training(form, seed, seconds)
        script = SCRIPT.format(
            form=form,
            seed=seed,
            seconds=seconds,
            programs=self._programs,
            umask="077" if seed % 4 == 3 else "022",
            buffered="" if seed % 5 == 4 else "PYTHONUNBUFFERED=1",
            command=COMMANDS[form].format(epochs=length.epochs, total=length.total),
        )
        found = self.cluster.submit("--gres=gpu:1", *options, script=script, user=user)
        return PrintingJob(found.job_id, form, user)

    def ask(self) -> Mapping[str, Any]:
        """Keep what `slurm eta` says of running jobs now."""
        argv = [str(PROGRAM), "slurm", "eta", "--format", "json", "--config", str(self._policy)]
        done = subprocess.run(argv, env=self._env, capture_output=True, text=True, check=True)
        found: Mapping[str, Any] = json.loads(done.stdout)
        for job in found["jobs"]:
            if job["state"] == "R" and job["end"] is not None:
                answer = Answer(found["at_s"], job["end"]["expected_s"], job["basis"])
                self.answers.setdefault(int(job["job_id"]), []).append(answer)
        return found

    def times(self, job: PrintingJob) -> tuple[float, float]:
        """When it started and ended, in Unix seconds."""
        record = self.cluster.sacct(job.job_id, "start", "end")
        start, end = (time.mktime(time.strptime(t, "%Y-%m-%dT%H:%M:%S")) for t in record.values())
        return start, end

    def errors(
        self, jobs: Sequence[PrintingJob], share: float
    ) -> Iterator[tuple[PrintingJob, float, str]]:
        """Of each job that has ended, said / real - 1 of what remained after ``share`` of it.

        NaN where nothing was said then.
        """
        for job in jobs:
            start_s, end_s = self.times(job)
            since_s = start_s + share * (end_s - start_s)
            said = next((a for a in self.answers.get(job.job_id, ()) if a.at_s >= since_s), None)
            if said is None or said.at_s >= end_s:
                yield job, float("nan"), "nothing"
                continue
            yield job, (said.end_s - said.at_s) / (end_s - said.at_s) - 1, said.basis


def lengths(count: int, least_s: float, most_s: float) -> Iterator[tuple[str, int, float]]:
    """Format, seed and seconds of so many trainings, all formats in turn."""
    rng = random.Random(count)
    for at in range(count):
        yield FORMATS[at % len(FORMATS)], at // len(FORMATS), rng.uniform(least_s, most_s)


def users(wanted: int) -> tuple[str | None, ...]:
    """Accounts without rights that jobs can be of; None, whoever runs this, if not root."""
    names = ("nobody", "games", "www-data", "backup", "daemon", "man", "mail", "news")
    return names[:wanted] if os.geteuid() == 0 else (None,)
