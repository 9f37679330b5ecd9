"""Which jobs are like each other: names and commands without what changes from run to run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from pathlib import PurePosixPath

from ..history.run import Run

_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_SCRIPT = re.compile(r"(?:\S*/)?[\w.+-]+\.(?:sh|bash|sbatch|slurm|job|py)", re.ASCII)
# Names that schedulers and wrappers give say nothing of a job.
_GIVEN_NAMES = frozenset(
    ("", "wrap", "interactive", "bash", "sh", "sbatch", "python", "allocation")
)
KEY_BYTES = 8
MAX_TEXT = 4096


class Likeness(StrEnum):
    """What jobs have in common, from most to least telling; all are of one user and GPU count."""

    COMMAND = "command"
    NAME = "name"
    MODEL = "model"

    @property
    def words(self) -> str:
        """For people, after "runs of"."""
        return f"the same user and {self.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LikeJob:
    """What of a job tells which earlier ones are like it; empty where not known.

    ``command`` is a script with its arguments, or a submit line that holds it.
    """

    user: str
    gpus: int
    name: str = ""
    command: str = ""
    model: str = ""

    @classmethod
    def of(cls, run: Run) -> LikeJob:
        """That of a run."""
        job = run.ended
        return cls(
            user=job.user,
            gpus=job.gpus,
            name=job.name,
            command=job.submit_line,
            model=run.model or "",
        )

    def likenesses(self) -> Iterator[tuple[Likeness, str]]:
        """A key for each likeness that is known: a hash, so that no name is kept."""
        told = {
            Likeness.COMMAND: command_pattern(self.command),
            Likeness.NAME: name_pattern(self.name),
            Likeness.MODEL: self.model,
        }
        for likeness, text in told.items():
            if text and self.user:
                said = "\0".join((likeness.value, self.user, str(self.gpus), text))
                raw = said.encode("utf-8", "surrogatepass")
                yield likeness, blake2b(raw, digest_size=KEY_BYTES).hexdigest()


def name_pattern(name: str) -> str:
    """A name with ``#`` for every number; empty for names that nobody chose."""
    return "" if name.lower() in _GIVEN_NAMES else _NUMBER.sub("#", name[:MAX_TEXT])


def command_pattern(command: str) -> str:
    """The file name of the script and its arguments, with ``#`` for every number.

    A submit line and the arguments a hook sees of it come to the same. Empty without a script.
    """
    words = command[:MAX_TEXT].split()
    at = next((i for i, word in enumerate(words) if _SCRIPT.fullmatch(word)), None)
    if at is None:
        return ""
    return _NUMBER.sub("#", " ".join((PurePosixPath(words[at]).name, *words[at + 1 :])))
