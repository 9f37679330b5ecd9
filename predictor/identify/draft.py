"""What one place says, collected as text and then read: values, and problems with the rest."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from ..errors import JobError, UnknownModelError
from ..graphs.catalog import entry_of, overrides
from ..job.phases import with_first
from ..job.precision import Precision, parse_precision
from ..job.software import Pairs, spelled_options
from ..job.words import key_of
from . import keys
from .stated import LENGTHS, NOTHING, Problem, Stated, one_line

MAX_UNKNOWN_KEYS = 3
SLIP = 0.8  # likeness by which a word of ours is told from one of another meaning
_READ_LATER = ("precision", "framework", "options", "variant")
# What a flag that is merely switched on adds; the words of its value may say otherwise.
SIGNALS = ("amp", "fp16", "bf16", "fp8", "tf32", "mixed_precision", "dtype", "amp_dtype")
_FP8_FORMATS = ("hybrid", "e4m3", "e5m2")
_AUTOCAST = {Precision.FP16: Precision.MIXED_FP16_FP32, Precision.BF16: Precision.MIXED_BF16_FP32}
_PURE = ("16_true", "bf16_true", "pure_fp16", "pure_bf16", "o3")
_AMP = "amp"


@dataclass(slots=True)
class Draft:
    """Texts by key as one place has them; a key said twice has its last value.

    ``prefix`` is tried before a model's name (``torchvision:``); what is said is ``ours`` to read.
    """

    origin: str
    prefix: str = ""
    ours: bool = False
    texts: dict[str, tuple[str, str]] = field(default_factory=dict)
    signals: dict[str, str] = field(default_factory=dict)
    pairs: dict[str, dict[str, str]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    unknown: dict[str, None] = field(default_factory=dict)

    def say(self, key: str, text: str) -> bool:
        """Take one key of the grammar; False, and nothing taken, where it is none."""
        name = key_of(key)
        if (meant := keys.FIELD_OF.get(name)) is None:
            self.unknown[key] = None
            return False
        if name in keys.AUTOCAST_KEYS:
            self.signal(name, text)
        else:
            self.texts[meant] = (name, text)
        return True

    def signal(self, name: str, text: str) -> None:
        """Take a flag that says the precision together with others."""
        self.signals[name] = text[: keys.MAX_TEXT]

    def pair(self, field_name: str, key: str, text: str) -> None:
        """Take one option, or one size of the network."""
        pairs = self.pairs.setdefault(field_name, {})
        if len(pairs) < keys.MAX_PAIRS:
            pairs[key] = text

    def problem(self, text: str, about: str = "", **marks: bool) -> None:
        """Keep a problem for the user."""
        self.problems.append(Problem(self.origin, one_line(text), about, **marks))

    def ask(self, text: str, about: str, keys: str = "") -> None:
        """Keep a problem that the user mends by a key: that of the field, or what ``keys`` says."""
        self.problem(f"{text}: state {keys or about} in --comment", about)

    def dispute(self, text: str, about: str) -> None:
        """Keep what contradicts itself, or what we cannot price: no limit rests on it."""
        self.problem(f"{text}: no limit is set", about, contradiction=True)

    def stated(self) -> Stated:
        """What was said, with a problem for each invalid value."""
        if not (self.texts or self.signals or self.pairs or self.problems or self.unknown):
            return NOTHING
        values: dict[str, Any] = {}
        unknown_model = None
        for name, (key, text) in self.texts.items():
            if name in _READ_LATER:
                continue
            try:
                if name == "sharding":
                    values[name] = keys.read_sharding(key, text)
                elif name == "model" and self.prefix:
                    values[name] = keys.resolve_model(text.strip(), self.prefix)
                else:
                    values[name] = keys.read_value(name, text)
            except UnknownModelError as error:
                unknown_model = one_line(str(error.value))[: keys.MAX_TEXT]
                self.problem(str(error), name)
            except JobError as error:
                self.problem(_said(key, error), name)
        for read in (self._precision, self._pairs, self._framework):
            read(values)
        values = with_first(values)
        if set(LENGTHS) <= values.keys():
            shown = f"steps={values.pop('steps')} and epochs={values.pop('epochs'):g}"
            self.problem(f"{shown} are both stated: give one of them", "steps")
        if self.texts or self.signals or self.ours:  # else foreign words are no one's fault
            for key in list(self.unknown)[:MAX_UNKNOWN_KEYS]:
                self.problem(f"{key[:40]!r} is not a key of ours; {_expected(key)}")
        problems = tuple(dict.fromkeys(self.problems))
        trainer = values.pop("trainer", None)
        origins = dict.fromkeys(values, self.origin)
        return settle(Stated(values, origins, problems, unknown_model, trainer=trainer))

    def _precision(self, values: dict[str, Any]) -> None:
        try:
            if "precision" in self.texts:
                values["precision"] = parse_precision(self.texts["precision"][1][: keys.MAX_TEXT])
            elif meant := joint_precision(self.signals):
                values["precision"] = meant
        except JobError as error:
            self.problem(_said("precision", error), "precision", contradiction=True)

    def _pairs(self, values: dict[str, Any]) -> None:
        for name in ("options", "variant"):
            found: Pairs = ()
            try:
                if name in self.texts:
                    found = keys.read_pairs(name, self.texts[name][1])
                if single := self.pairs.get(name):
                    text = ";".join(map("=".join, single.items()))
                    both = dict(keys.read_pairs(name, text)) | dict(found)
                    found = tuple(sorted(both.items()))
            except JobError as error:
                self.problem(str(error), name)
            if found:
                values[name] = found

    def _framework(self, values: dict[str, Any]) -> None:
        options = dict(values.get("options", ()))
        if "framework" in self.texts or "container" in options:
            name = self.texts.get("framework", ("", "pytorch"))[1]
            try:
                found = keys.read_framework(name, options)
            except JobError as error:
                self.problem(str(error), "framework")
                return
            if "framework" in self.texts:
                values["framework"] = found.name
                if found.options:
                    values["options"] = tuple(sorted((dict(found.options) | options).items()))
            if found.date is not None:
                values.setdefault("framework_date", found.date)


_COMMON = "model, precision, batch_size, seq_len, epochs, steps, options ..."


@lru_cache(maxsize=256)
def slips(word: str) -> tuple[str, ...]:
    """The keys and options that a word is likely meant for."""
    known = {**spelled_options(), **keys.FIELD_OF}
    return tuple(difflib.get_close_matches(word[:40], known, n=3, cutoff=SLIP))


@lru_cache(maxsize=256)
def _expected(key: str) -> str:
    """The keys that look most like one that is none, an option as it is written in a comment."""
    word, options = re.sub(r"^options?\.", "", key_of(key))[:40], spelled_options()
    near = slips(word) or difflib.get_close_matches(word, keys.FIELD_OF, n=3)
    told = (one if one in keys.FIELD_OF else f'options="{options[one].key}=..."' for one in near)
    return f"nearest: {', '.join(dict.fromkeys(told))}" if near else f"expected one of {_COMMON}"


def _said(key: str, error: JobError) -> str:
    """The error, with the key that the person wrote."""
    return f"invalid {key}={error.value!r}; {error.expected}"


def settle(stated: Stated) -> Stated:
    """The image size in the axes of the model, and sizes that it takes, where both are known.

    One number stands for all axes; other numbers of axes are a problem, and left out. So are tokens
    of a network that takes none, and a variant that it does not have.
    """
    if stated.model is None:
        return stated
    entry, size = entry_of(stated.model), stated.values.get("image_size")
    try:
        overrides(entry, stated.values.get("variant", ()))
    except JobError as error:
        problem = Problem(stated.origins["variant"], str(error), "variant")
        stated = stated.without(("variant",), problem)
    try:
        entry.check_tokens(stated.values)
        if size is not None:
            stated = replace(stated, values={**stated.values, "image_size": entry.sized(size)})
        return stated
    except JobError as error:
        about = error.field if error.field == "image_size" and entry.image_size else ""
        problem = Problem(stated.origins[error.field], str(error), about)
        return settle(stated.without((error.field,), problem))


def joint_precision(signals: Mapping[str, str]) -> Precision | None:
    """One precision from flags and their words; None where they say nothing.

    ``fp16`` and ``bf16`` mean autocast here. fp8 goes before 16 bits, those before tf32; ``amp``
    is in fp16 unless another word says bf16. Raises JobError where two of them cannot be.
    """
    said = {p for name, text in signals.items() for p in _meant(name, text)}
    formats = {p for p in said if isinstance(p, Precision)}
    if _AMP in said and not formats & {Precision.MIXED_FP16_FP32, Precision.MIXED_BF16_FP32}:
        formats.add(Precision.MIXED_FP16_FP32)
    if set(signals) == {"amp_dtype"}:
        return None
    halves = formats & {Precision.MIXED_FP16_FP32, Precision.MIXED_BF16_FP32}
    if len(halves) > 1:
        raise JobError("precision", "fp16 and bf16", "expected one of them")
    whole = Precision.FP32 in formats and "float32" not in signals.values()  # weights may be
    if whole and formats - {Precision.FP32, Precision.TF32}:
        raise JobError("precision", "fp32 and another", "expected one of them")
    if Precision.MIXED_FP8_BF16 in formats and Precision.MIXED_FP16_FP32 in formats:
        return Precision.MIXED_FP8_FP16
    return next((p for p in reversed(Precision) if p in formats), None)  # strongest first


def _meant(name: str, text: str) -> tuple[Precision | str, ...]:
    """What one flag with its word adds; ``_AMP`` for autocast in a format yet to be said."""
    word = key_of(text).removeprefix("torch.")
    if word in keys.OFF:
        # `--mixed_precision no` is said on purpose; `--fp16 False` leaves open what else.
        return (Precision.FP32,) if name in ("mixed_precision", "dtype") and word == "no" else ()
    if word in keys.ON or (name == "fp8" and word in _FP8_FORMATS):
        if name in (_AMP, "mixed_precision"):
            return (_AMP,)
        meant = parse_precision(name)
        return (_AUTOCAST.get(meant, meant),)
    if name == "fp16" and word in ("o1", "o2"):
        return (Precision.MIXED_FP16_FP32,)
    if word == _AMP:
        return (_AMP,)
    meant = parse_precision(word)
    return (meant if word in _PURE else _AUTOCAST.get(meant, meant),)
