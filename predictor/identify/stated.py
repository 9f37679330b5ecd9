"""What was said of a job, field by field, and where it was said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..job import TrainingJob

# Fields that say the same thing in two ways: a place that states one settles all of the set.
ALTERNATIVES = (("batch_size", "global_batch_size"), ("steps", "epochs"))


@dataclass(frozen=True, slots=True)
class Problem:
    """Something a person wrote that we cannot use; ``text`` names it and what is accepted."""

    origin: str
    text: str


@dataclass(frozen=True, slots=True)
class Stated:
    """TrainingJob fields as stated, already of the right type.

    ``values`` maps a field of TrainingJob to its value (``gpu`` and ``gpus`` only where a person
    stated them), ``origins`` the same fields to the place: ``comment``, ``extra``,
    ``environment``, ``script``, ``rule NAME``, ``annotation``. ``problems`` are for the user.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    @property
    def model(self) -> str | None:
        """The model, where one was stated."""
        return self.values.get("model")

    def over(self, weaker: Stated) -> Stated:
        """What both say; where they differ, what this one says."""
        settled = set(self.values)
        for names in ALTERNATIVES:
            if settled & set(names):
                settled |= set(names)
        added = {k: v for k, v in weaker.values.items() if k not in settled}
        return Stated(
            {**added, **self.values},
            {**{k: weaker.origins[k] for k in added}, **self.origins},
            self.problems + weaker.problems,
        )

    def job(self, **given: Any) -> TrainingJob:
        """The job, with ``given`` fields (gpu, gpus ...) where nothing was stated of them.

        Raises JobError where a field is impossible or missing.
        """
        return TrainingJob(**{**given, **self.values})
