"""The signature of a script: what it runs, without what changes from run to run."""

from __future__ import annotations

import re
from hashlib import blake2b
from pathlib import PurePosixPath

MAX_TEXT = 65_536
SIGNATURE_BYTES = 8
_NUMBER = re.compile(r"(?<![A-Za-z_])[-+]?\d[\d_.]*(?:e[-+]?\d+)?", re.ASCII | re.IGNORECASE)
# Looked for at the begin of a word alone: else a long word without a slash takes seconds.
_PATH = re.compile(r"(?<![\w.@$+{}~-])(?:[\w.@$+{}~-]*/)+", re.ASCII)
# Directives are in the request already, and a comment runs nothing.
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*")
_SCRIPT = re.compile(r"(?:\S*/)?[\w.+-]+\.(?:sh|bash|sbatch|slurm|job|py)", re.ASCII)


def script_signature(text: str) -> str:
    """A hash of what a script or command line runs; empty where it is empty.

    Entry points, names of arguments and words stay; every number is the same, and of a path only
    its last part counts. So neither ``--epochs 300`` for ``--epochs 1`` nor another copy of the
    code makes another script.
    """
    lines = (_COMMENT.sub("", line) for line in text[:MAX_TEXT].splitlines())
    words = " ".join(lines).split()
    normal = _NUMBER.sub("#", _PATH.sub("/", " ".join(words)))
    return digest(normal) if normal else ""


def command_signature(command: str, directory: str) -> str:
    """A hash of a script's whole path and its arguments; empty where the path is not known.

    A submit line and the arguments that a hook sees of it come to the same. Every number is the
    same, and a file name alone is none: another project has a ``train.sh`` too.
    """
    words = command[:MAX_TEXT].split()
    at = next((i for i, word in enumerate(words) if _SCRIPT.fullmatch(word)), None)
    if at is None:
        return ""
    path = PurePosixPath(directory, words[at])
    if not path.is_absolute():
        return ""
    return digest(_NUMBER.sub("#", " ".join((str(path), *words[at + 1 :]))))


def digest(*parts: str) -> str:
    """A short hash of texts, so that none of them is kept."""
    raw = "\0".join(parts).encode("utf-8", "surrogatepass")
    return blake2b(raw, digest_size=SIGNATURE_BYTES).hexdigest()
