"""What a batch script asks Slurm for in its ``#SBATCH`` lines."""

from __future__ import annotations

import shlex
from argparse import ArgumentError, ArgumentParser
from functools import cache

MARK = "#SBATCH"
# Options of sbatch with a value that estimates and decisions use, and their short forms.
OPTIONS = {
    "account": "A",
    "array": "a",
    "comment": "",
    "constraint": "C",
    "cpus-per-gpu": "",
    "cpus-per-task": "c",
    "exclude": "x",
    "extra": "",
    "gpus": "G",
    "gpus-per-node": "",
    "gpus-per-socket": "",
    "gpus-per-task": "",
    "gres": "",
    "job-name": "J",
    "mem": "",
    "mem-per-cpu": "",
    "mem-per-gpu": "",
    "nodelist": "w",
    "nodes": "N",
    "ntasks": "n",
    "ntasks-per-node": "",
    "partition": "p",
    "prefer": "",
    "qos": "q",
    "reservation": "",
    "time": "t",
}


def sbatch_options(script: str) -> dict[str, str]:
    """The options of a script's ``#SBATCH`` lines, up to its first command, by their long names.

    A line that cannot be read says nothing; the last one of an option counts, as with sbatch.
    """
    found: dict[str, str] = {}
    for line in script.splitlines():
        if line.startswith(MARK):
            found |= _options_of(line.removeprefix(MARK))
        elif line.strip() and not line.startswith("#"):
            break
    return found


def _options_of(line: str) -> dict[str, str]:
    try:
        known, _ = _parser().parse_known_args(shlex.split(line, comments=True))
    except (ArgumentError, ValueError):
        return {}
    return {name.replace("_", "-"): text for name, text in vars(known).items() if text is not None}


@cache
def _parser() -> ArgumentParser:
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name, short in OPTIONS.items():
        parser.add_argument(*([f"-{short}"] if short else []), f"--{name}")
    return parser
