"""What a job asks for and says of itself, as far as similar runs are found by it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import Any

from ..history.cells import finite
from ..history.run import LimitBy, Run, asked_value

# A length of training a run time grows with; the first that is stated counts.
LENGTH_UNITS = ("epochs", "steps")
# What jobs stand in line by that have no estimate: chosen between median and
# mean of GPU jobs in two public logs, 1.5 and 5 hours (Graham), 0.7 and 14 (MetaCentrum).
ALIKE_S = 4 * 3600.0
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
# Names that schedulers and wrappers give say nothing of a job.
_GIVEN_NAMES = frozenset(
    ("", "wrap", "interactive", "bash", "sh", "sbatch", "python", "allocation")
)


@dataclass(frozen=True, slots=True)
class TrainingLength:
    """How long a training is in its own unit: 300 epochs."""

    unit: str
    amount: float


class Similarity(StrEnum):
    """What a job shares with earlier runs, from most to least telling."""

    SCRIPT = "script", "of the same user and script"
    COMMAND = "command", "of the same user and command"
    ANYWHERE = "anywhere", "of the same user and script, directory unknown"
    SO_NAMED = "so_named", "of the same user, name and number of GPUs, script unknown"
    EXACT = "exact", "of the same user, name to the last digit and number of GPUs"
    NAME = "name", "of the same user, name and number of GPUs"
    REQUEST = "request", "of the same user and request"
    USER = "user", "of the same user"
    ACCOUNT = "account", "of the same account"
    NAMED = "named", "of unknown users with the same name"
    PARTITION = "partition", "of others with the same partition and request"
    SITE = "site", "of this site"

    words: str  # for people, after "runs"

    def __new__(cls, value: str, words: str = "") -> Similarity:
        """A kind by its name in files, and what people call it."""
        kind = str.__new__(cls, value)
        kind._value_, kind.words = value, words
        return kind


BY_SCRIPT = (Similarity.SCRIPT, Similarity.COMMAND)
SAME_JOB = (*BY_SCRIPT, Similarity.NAME)
# Taken for runs of the same job where accounting does not say; no limit rests on them.
ASSUMED = (Similarity.ANYWHERE, Similarity.SO_NAMED)
OWN = (*SAME_JOB, Similarity.EXACT, Similarity.REQUEST)
OF_MANY = (Similarity.ACCOUNT, Similarity.NAMED, Similarity.PARTITION, Similarity.SITE)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """A job at its submission; empty or None where something is not known.

    ``script`` is the signature of what it runs, ``command`` that of where it is and its arguments,
    ``directory`` where it was submitted. ``asked`` is what it states of its training in the shared
    grammar; ``precision``, ``batch_size`` (of a GPU) and ``length`` are of that. A ``hashed`` one
    holds no name of anybody or anything.
    """

    user: str = ""
    account: str = ""
    name: str = ""
    exact: str = ""
    partition: str = ""
    gpus: int = 0
    gpu_type: str = ""
    cpus: int | None = None
    memory_bytes: int | None = None
    limit_s: float | None = None
    script: str = ""
    command: str = ""
    directory: str = ""
    asked: str = ""
    precision: str = ""
    batch_size: float | None = None
    length: TrainingLength | None = None
    hashed: bool = False

    @classmethod
    def of(cls, run: Run) -> JobRequest:
        """What a run of the history had asked for; a limit that was not its user's is unknown."""
        job = run.ended
        return cls(
            **{name: getattr(job, name) for name in _OF_RUN},
            gpu_type=job.gpu_type or "",
            limit_s=job.limit_s if run.limit_by in (None, LimitBy.USER) else None,
            command="" if job.script else command_signature(job.submit_line, job.directory),
            **stated_fields(run.asked),
        )

    def without_names(self) -> JobRequest:
        """The same with hashes of names, by which it is similar to the same jobs."""
        if self.hashed:
            return self
        # A name with ``#`` for every number; empty for names that nobody chose.
        pattern = "" if self.name.lower() in _GIVEN_NAMES else _NUMBER.sub("#", self.name)
        return replace(
            self,
            user=self.user and digest(self.user),
            account=self.account and digest(self.account),
            name=pattern and digest(pattern),
            exact=digest(self.name) if pattern and pattern != self.name else "",
            directory=self.directory and digest(self.directory),
            hashed=True,
        )

    @property
    def request_key(self) -> str:
        """What it asks the scheduler for."""
        asked = (self.partition, self.gpus, self.cpus, self.memory_bytes, self.limit_s)
        return "|".join(map(str, asked))

    def sought(self) -> list[tuple[Similarity, tuple[Similarity, str]]]:
        """What runs may share with this hashed job, most telling first, and the key they have.

        Runs of the same script whose accounting tells no directory, or no script, count too.
        """
        found = [(key[0], key) for key in self.similarities()]
        scripted, assumed = sum(kind in BY_SCRIPT for kind, _ in found), []
        if self.user and self.script and self.directory:
            assumed.append((Similarity.ANYWHERE, self._by_script("")))
        if self.user and self.name and scripted:
            assumed.append((Similarity.SO_NAMED, self._by_name()))
        return [*found[:scripted], *assumed, *found[scripted:]]

    def _by_script(self, directory: str) -> tuple[Similarity, str]:
        return Similarity.SCRIPT, digest("s", self.user, self.script, directory)

    def _by_name(self) -> tuple[Similarity, str]:
        return Similarity.NAME, digest("n", self.user, self.name, str(self.gpus))

    def similarities(self) -> Iterator[tuple[Similarity, str]]:
        """A hash for each similarity that this job may have with others, most telling first."""
        if not self.hashed:
            yield from self.without_names().similarities()
            return
        request = self.request_key
        if self.user and self.script:
            yield self._by_script(self.directory)
        if self.user and self.command:
            yield Similarity.COMMAND, digest("c", self.user, self.command)
        named = self.name and not (self.script or self.command)
        if self.user and named and self.exact:
            yield Similarity.EXACT, digest("e", self.user, self.exact, str(self.gpus))
        if self.user and named:
            yield self._by_name()
        if self.user:
            yield Similarity.REQUEST, digest("r", self.user, request)
            yield Similarity.USER, digest("u", self.user)
        if self.account:
            yield Similarity.ACCOUNT, digest("a", self.account)
        if named and not self.user:
            yield Similarity.NAMED, digest("m", self.name, str(self.gpus))
        yield Similarity.PARTITION, digest("p", request)
        yield Similarity.SITE, ""


# What a request has as accounting has it.
_OF_RUN = (
    *("user", "account", "name", "partition", "directory"),
    *("gpus", "cpus", "memory_bytes", "script"),
)


def stated_fields(asked: str) -> dict[str, Any]:
    """The fields of a request that follow from what a job states in the shared grammar."""
    lengths = ((unit, finite(asked_value(asked, unit) or "")) for unit in LENGTH_UNITS)
    return {
        "asked": asked,
        "precision": asked_value(asked, "precision") or "",
        "batch_size": finite(asked_value(asked, "batch_size") or ""),
        "length": next((TrainingLength(unit, amount) for unit, amount in lengths if amount), None),
    }


MAX_TEXT = 65_536
SIGNATURE_BYTES = 8
_ANY_NUMBER = re.compile(r"(?<![A-Za-z_])[-+]?\d[\d_.]*(?:e[-+]?\d+)?", re.ASCII | re.IGNORECASE)
# Looked for at the begin of a word alone: else a long word without a slash takes seconds.
_PATH = re.compile(r"(?<![\w.@$+{}~-])(?:[\w.@$+{}~-]*/)+", re.ASCII)
# Directives are in the request already, and a comment runs nothing.
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*")
_WRAP = re.compile(r"\s--wrap[=\s]\s*(?=\S)")
_SCRIPT = re.compile(r"(?:\S*/)?[\w.+-]+\.(?:sh|bash|sbatch|slurm|job|py)", re.ASCII)


def script_signature(text: str) -> str:
    """A hash of what a script or command line runs; empty where it is empty.

    Entry points, names of arguments and words stay; every number is the same, and of a path only
    its last part counts. So neither ``--epochs 300`` for ``--epochs 1`` nor another copy of the
    code makes another script.
    """
    words = _COMMENT.sub("", "\n".join(text[:MAX_TEXT].splitlines())).split()
    normal = _ANY_NUMBER.sub("#", _PATH.sub("/", " ".join(words)))
    return digest(normal) if normal else ""


def wrapped_script(line: str) -> str:
    """The text that the option ``--wrap`` of a submit line runs; empty without one.

    Accounting keeps no quotes: there it is all that follows.
    """
    found = _WRAP.search(line)
    if found is None:
        return ""
    text = line[found.end() :]
    with suppress(ValueError):
        return shlex.split(text)[0] if text[:1] in "\"'" else text
    return text


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
    return digest(_ANY_NUMBER.sub("#", " ".join((str(path), *words[at + 1 :]))))


def digest(*parts: str) -> str:
    """A short hash of texts, so that none of them is kept."""
    raw = "\0".join(parts).encode("utf-8", "surrogatepass")
    return blake2b(raw, digest_size=SIGNATURE_BYTES).hexdigest()
