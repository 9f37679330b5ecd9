"""What was said of a job, field by field, and where it was said."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from profiles.gpus import find_gpu

from ..errors import JobError
from ..job.datasets import find_dataset
from ..job.phases import lasting
from ..job.precision import default_precision
from ..job.training_job import TrainingJob

BATCHES, LENGTHS = ("batch_size", "global_batch_size"), ("steps", "epochs")
# Fields that say the same thing in two ways: a place that states one settles all of the set.
ALTERNATIVES = (BATCHES, LENGTHS, ("framework", "framework_date"), ("dataset", "dataset_size"))
_SIZES = ("grad_accum", "seq_len", "mean_seq_len", "image_size", "dataset_size")
_REPLICA = ("tensor_parallel", "pipeline_parallel", "context_parallel")
_SPLITS = (*_REPLICA, "expert_parallel", "virtual_stages")
# Fields of pairs: what two places say of different keys holds together.
PAIRS = ("options", "variant")
# Fields that a time follows from: said, but not readable, they must not be taken as their default.
DECISIVE = frozenset((*BATCHES, *LENGTHS, *_SIZES, *_SPLITS, *PAIRS, "phases", "file"))
KINDS = {"lora", "quantized_base", "frozen", "objective"}  # options that say what is trained
SCRIPT = "script"
NOTES = "#PT"  # the origin of lines of a script that are written for us
FILE = "file"  # the origin of what a configuration says
# Fields that a script and what goes before it may not say differently.
NAMED = {"model", "precision", "dataset", "sharding"}
CONTRADICTED = DECISIVE - {"options", "variant", "phases", "file"} | NAMED | {"optimizer"}


def one_line(text: str) -> str:
    """Words of a script as a message may repeat them; what we cannot know of them is a ``?``."""
    return "".join(c if c.isprintable() else "?" for c in text)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something a person wrote that we cannot use; ``text`` names it and what is expected.

    ``field`` is the field of TrainingJob it is about, empty where it is about none, and ``file``
    where a configuration that was not read may say any of them. ``contradiction`` marks what the
    script itself says otherwise, ``unread`` what is open until a place states the field: no kill
    limit may rest on either.
    """

    origin: str
    text: str
    field: str = ""
    contradiction: bool = False
    unread: bool = False


@dataclass(frozen=True, slots=True)
class Stated:
    """TrainingJob fields as stated, already of the right type.

    ``values`` maps a field of TrainingJob to its value (``gpu`` and ``gpus`` only where a person
    stated them), ``origins`` the same fields to the place: ``comment``, ``extra``, ``environment``,
    ``script``, ``rule NAME``, ``annotation``. ``problems`` are for the user. ``unknown_model`` is
    the name of a model that the catalog does not have, on one line. ``values`` may hold both batch
    sizes: that of a GPU's micro-step and that of a whole step. ``trainer`` is one whose default
    precision holds, where none is stated. ``alone`` says that one process trains, which nothing
    starts for each GPU: of several one works. ``unclear`` are flags of a training and programs
    beside it that may change how long a script takes, as nobody here knows: no kill limit may rest
    on what it says. ``started`` are the GPUs for which its launchers start a process.
    """

    values: Mapping[str, Any] = field(default_factory=dict, hash=False)
    origins: Mapping[str, str] = field(default_factory=dict, hash=False)
    problems: tuple[Problem, ...] = ()
    unknown_model: str | None = None
    alone: bool = False
    trainer: str | None = None
    unclear: tuple[str, ...] = ()
    started: int | None = None

    @property
    def model(self) -> str | None:
        """The model, where one was stated."""
        return self.values.get("model")

    def without(self, names: Collection[str], problem: Problem) -> Stated:
        """The same without some fields, and with the problem why."""
        return replace(
            self,
            values={k: v for k, v in self.values.items() if k not in names},
            origins={k: v for k, v in self.origins.items() if k not in names},
            problems=(*self.problems, problem),
        )

    @property
    def facts(self) -> Stated:
        """The same without the default of a trainer: what a measured run may teach."""
        return replace(self, trainer=None)

    @property
    def doubts(self) -> tuple[Problem, ...]:
        """Problems with what a time follows from, where no other place states that."""
        stated = self.settled(ALTERNATIVES[1:])
        known = bool(KINDS & dict(self.values.get("options", ())).keys())  # whether adapters are
        open_to = DECISIVE - stated, DECISIVE - (stated if known else stated - {"options"})
        return tuple(p for p in self.problems if p.field in open_to[p.contradiction])

    @property
    def contradictions(self) -> tuple[Problem, ...]:
        """Where the script says otherwise than what goes before it."""
        return tuple(p for p in self.problems if p.contradiction or p.unread)

    @property
    def doubtful(self) -> str:
        """What keeps a kill limit from resting on this, as a clause; empty for nothing."""
        if disputed := self.contradictions:
            return f"the script puts the {disputed[0].field} in doubt"
        return f"what {self.unclear[0]} does to its time is not known" if self.unclear else ""

    def misfit(self, *gpus: int | None) -> str:
        """Where launchers start another number than the GPUs that a job gets; empty for nowhere."""
        told = f"its launchers start {self.started} processes, not one for each of its GPUs"
        return "" if self.started in (None, *gpus) else told

    def settled(self, alternatives: Collection[tuple[str, str]] = ALTERNATIVES) -> set[str]:
        """The fields that are stated, those of the length by phases too, and their alternatives."""
        names = set(self.values) | ({"model"} if self.unknown_model else set())
        if lasting(self.values.get("phases", ())):
            names |= set(LENGTHS)
        return names.union(*(both for both in alternatives if names & set(both)))

    def _contradicted(self, weaker: Stated) -> Iterator[Problem]:
        for name in sorted(self.values.keys() & weaker.values.keys() & CONTRADICTED):
            own, other = self.values[name], weaker.values[name]
            places = self.origins[name], weaker.origins[name]
            if own != other and places[0] != places[1] and {SCRIPT, NOTES} & {*places}:
                own, other = (f"{v:g}" if isinstance(v, float) else v for v in (own, other))
                said = f"{places[0]} says {own}, {places[1]} {other}"
                yield Problem(places[0], f"{name}: {said}: no limit is set", name, True)
        size, data = self.values.get("dataset_size"), weaker.values.get("dataset")
        whole = data and (found := find_dataset(data)) and found.samples
        if size and whole and size != whole and weaker.origins["dataset"] == SCRIPT:
            text = f"dataset_size: {size} is not that of {data}, {whole}: no limit is set"
            yield Problem(SCRIPT, text, "dataset_size", True)
        lengths = {*LENGTHS} & self.values.keys(), {*LENGTHS} & weaker.values.keys()
        priced = weaker.origins.get("dataset") == SCRIPT
        if priced and all(lengths) and not lengths[0] & lengths[1]:
            text = f"steps: the script says its length in {min(lengths[1])}: no limit is set"
            yield Problem(SCRIPT, text, "steps", True)

    def over(self, weaker: Stated) -> Stated:
        """What both say; where they differ, what this one says, and a problem where a script does.

        ``options`` and ``variant`` are joined key by key, but the variant of another model is
        left out. Problems of the weaker one are dropped where this one settles their field.
        """
        if weaker is NOTHING and not (self.trainer and "precision" in self.values):
            return self
        settled = self.settled()
        if settled & set(LENGTHS) and lasting(weaker.values.get("phases", ())):
            settled.add("phases")
        if all(set(names) & settled for names in (BATCHES, LENGTHS)):  # what a file may say
            settled.add("file")
        other_model = "model" in settled and weaker.model not in (None, self.model)
        if other_model:
            settled.add("variant")
        added = {k: v for k, v in weaker.values.items() if k not in settled}
        joined = {
            k: tuple(sorted({**dict(weaker.values[k]), **dict(self.values[k])}.items()))
            for k in PAIRS
            if k in self.values and k in weaker.values and not (other_model and k == "variant")
        }
        return Stated(
            {**added, **self.values, **joined},
            {**{k: weaker.origins[k] for k in added}, **self.origins},
            (
                *self._contradicted(weaker),
                *self.problems,
                *(p for p in weaker.problems if p.field not in settled or p.contradiction),
            ),
            self.unknown_model or (None if "model" in settled else weaker.unknown_model),
            self.alone or weaker.alone,
            None if "precision" in settled | added.keys() else self.trainer or weaker.trainer,
            (*self.unclear, *(() if "file" in settled else weaker.unclear)),
            self.started or weaker.started,
        )

    def completed(self, config: Stated) -> Stated:
        """This of a command over the configuration that completes it: both batch sizes hold."""
        for name in ("batch_size", "grad_accum"):
            if (own := self.values.get(name)) and config.values.get(name, own) != own:
                why = f"{name}={own}, in the DeepSpeed file {config.values[name]}: no limit is set"
                config = config.without(BATCHES, Problem(config.origins[name], why, name, True))
        joined, batches = self.over(config), [name for name in BATCHES if name in config.values]
        values = {**{name: config.values[name] for name in batches}, **joined.values}
        origins = {**{name: config.origins[name] for name in batches}, **joined.origins}
        return replace(joined, values=values, origins=origins)

    def job(self, **given: Any) -> TrainingJob:
        """The job of ``job_fields``; raises JobError where they contradict each other too."""
        return TrainingJob(**self.job_fields(**given))

    def job_fields(self, **given: Any) -> dict[str, Any]:
        """The fields of a job, with ``given`` ones (gpu, gpus ...) where nothing was stated.

        Raises JobError where a field is missing, and where there are ``doubts``.
        """
        if self.doubts:
            doubt = self.doubts[0]
            raise JobError(doubt.field, ..., f"{doubt.origin}: {doubt.text}")
        settled = {n for names in ALTERNATIVES if set(names) & set(self.values) for n in names}
        fields = {k: v for k, v in given.items() if k not in settled} | dict(self.values)
        if self.alone and "gpus" not in self.values:
            fields |= {"gpus": 1, "gpus_per_node": 1}
        if any(p.field == "dataset" for p in self.problems) and not settled & {"dataset"}:
            fields.pop("epochs", None)
        if fields.get("precision") is None and self.trainer and "gpu" in fields:
            precision = default_precision(self.trainer, find_gpu(fields["gpu"]))[0]
            fields |= {"precision": precision, "trainer": self.trainer}
        for name in ("model", "precision", "gpu"):
            if fields.get(name) is None:
                raise JobError(name, None, "state it")
        return fields


NOTHING = Stated()
