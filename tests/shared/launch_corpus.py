"""What was read of a case of the corpus, field by field, beside the job that it means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from posixpath import normpath
from typing import Any

import yaml

from predictor.identify.grammar import parse_text
from predictor.identify.identify import parse_script
from predictor.identify.stated import Stated

CORPUS = Path(__file__).parents[1] / "identify" / "corpus"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One launch: ``run`` is a script, ``argv`` a command without one.

    ``says`` are the fields that must be found and ``unread`` what else the job is, both in the
    grammar; ``doubts`` are the fields that keep the job from an estimate. ``files`` are the texts
    of files where it runs, None where none may be read.
    """

    style: str
    name: str
    says: str
    run: str = ""
    argv: tuple[str, ...] = ("slurm_script",)
    environment: Mapping[str, str] | None = None
    files: Mapping[str, str] | None = None
    unread: str = ""
    doubts: tuple[str, ...] = ()
    unknown: str | None = None

    @property
    def read(self) -> Stated:
        """What identify makes of it."""
        files = None if self.files is None else Written(self.files)
        return parse_script(self.run, self.argv, environment=self.environment, files=files)

    @property
    def read_alone(self) -> Stated:
        """What identify makes of it where no file may be read."""
        return parse_script(self.run, self.argv, environment=self.environment)


@dataclass(frozen=True, slots=True)
class Written:
    """Files by their path."""

    texts: Mapping[str, str]

    def __call__(self, path: str) -> str | None:
        """The text of one."""
        return self.texts.get(normpath(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Fields found as meant, found though never meant, lost, and known to be beyond reading."""

    right: tuple[str, ...]
    wrong: tuple[str, ...]
    lost: tuple[str, ...]
    unread: tuple[str, ...]


def cases() -> list[Case]:
    """All cases, those of a file in its order."""
    return [
        Case(style=path.stem, name=name, **_frozen(raw))
        for path in sorted(CORPUS.glob("*.yaml"))
        for name, raw in yaml.safe_load(path.read_bytes()).items()
    ]


def _frozen(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in raw.items()}


def score(case: Case) -> Score:
    """Compare what was read with what the case means."""
    found, meant = case.read.values, stated(case.says)
    return Score(
        right=tuple(k for k, v in found.items() if meant.get(k) == v),
        wrong=tuple(f"{k}={v!r}" for k, v in found.items() if meant.get(k) != v),
        lost=tuple(k for k in meant if k not in found),
        unread=tuple(k for k in stated(case.unread) if k not in found),
    )


def stated(text: str) -> Mapping[str, Any]:
    """The fields of a text of the grammar, all of which must be possible."""
    parsed = parse_text(text, "corpus")
    assert not parsed.problems, parsed.problems
    return parsed.values


def table(scored: Iterable[tuple[Case, Score]]) -> str:
    """Cases and fields by style, and the sum."""
    counts: dict[str, list[int]] = {}
    for case, found in scored:
        fields = (found.right, found.wrong, found.lost, found.unread)
        for row in (counts.setdefault(case.style, [0] * 5), counts.setdefault("~all", [0] * 5)):
            row[0] += 1
            for column, names in enumerate(fields, 1):
                row[column] += len(names)
    rows = [(style.strip("~"), *row) for style, row in sorted(counts.items())]
    return "\n".join(map(_line, [("style", "cases", "right", "wrong", "lost", "unread"), *rows]))


def _line(row: Sequence[object]) -> str:
    return f"{row[0]!s:<14}" + "".join(f"{cell!s:>8}" for cell in row[1:])
