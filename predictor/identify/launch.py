"""Which program a command starts, through whatever launches it, and with which flags.

What flags and programs mean is in ``profiles/flags.yaml``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

from profiles.storage import shipped_yaml

from .grammar import pairs_of
from .keys import OFF, ON
from .shell_syntax import UNKNOWN

_PYTHON = re.compile(r"(?:(?:python|pypy)[\d.]*|uv)$", re.ASCII)
_MODULE = re.compile(r"-[uBOsSEIq]*m|--module", re.ASCII)
_SHELLS = ("bash", "sh", "zsh")
_SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")
_OVERRIDE = re.compile(r"[+~]*[A-Za-z_][\w./@-]{0,80}+=", re.ASCII)
_NAME_WORD = re.compile(r"[a-z]+", re.ASCII)
_CONFIG_KEY = re.compile(r"[A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)+|NUM_GPUS", re.ASCII)
_JUDGES = re.compile(r"(?:^|[_-])(?:eval|infer|predict)", re.ASCII)  # run_evalplus.py
CONTAINERS = frozenset(("docker", "podman", "enroot", "shifter", "ch-run", "udocker"))
MAX_LED = 16  # words of a launcher before what it starts
_NOT_ON = OFF | {"auto", "disabled"}
_ONE_DASH = re.compile(r"-[A-Za-z][A-Za-z_-]{2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class FlagFamily:
    """How one family of programs names what we ask; flags as ``flag_of`` spells them.

    ``switches`` map a flag to key and text of the grammar. ``only`` names the programs that
    the evidence holds for, ``least`` how much of it is needed; ``models`` the network a program
    trains; ``prefers`` the length that counts where two are given. The name of a configuration in
    Python says what it is to one that ``configs``; one that ``spreads`` uses every GPU it sees;
    the first word that is no flag ``leads`` to what it means as a flag; ``defaults`` hold unless a
    flag says otherwise, and what a program has ``taken`` as long as all of its words are read; one
    that ``adapts`` trains adapters, beside those projections, unless told.
    """

    name: str
    source: str
    values: Mapping[str, str]
    switches: Mapping[str, tuple[str, str]]
    programs: frozenset[str] = frozenset()
    evidence: frozenset[str] = frozenset()
    only: frozenset[str] = frozenset()
    framework: str = ""
    prefix: str = ""
    prefers: str = ""
    spreads: bool = False
    least: int = 1
    configs: bool = False
    leads: str = ""
    defaults: str = ""
    taken: Mapping[str, str] = field(default_factory=dict)
    adapts: str = ""
    models: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Flags:
    """The whole file; ``families`` in the order they are tried, each with the generic flags."""

    families: tuple[FlagFamily, ...]
    generic: FlagFamily
    launcher_values: Mapping[str, str]
    launcher_trainers: Mapping[str, str]
    about: Mapping[str, str]
    sbatch_short: Mapping[str, str]
    words: Mapping[str, Mapping[str, str]]
    named_sections: Mapping[str, str]
    deepspeed: Mapping[str, str]
    accelerate: Mapping[str, str]
    patterns: Mapping[str, re.Pattern[str]]
    lists: Mapping[str, frozenset[str]]
    starting: Mapping[str, str]
    using: Mapping[str, bool]
    computes: Mapping[str, Mapping[str, str]]
    by_itself: Mapping[str, Mapping[str, str]]
    calls: Mapping[str, Mapping[str, str]]

    def may_change_time(self, flag: str, text: str | None) -> bool:
        """Whether a flag that nobody reads is none of those that leave the length alone.

        Any may by a slow setting such as the CPU, by too few workers, or steps between checkpoints.
        """
        words = flag.lstrip("-").rpartition(".")[2].split("-")
        saves = {"save", "checkpointing"} & {*words}
        few = {"workers": 2, "steps": 100 if saves else 0}.get(words[-1], 0)
        ends = {"-".join(words[at:]) for at in range(len(words))}
        harmless = ends & self.lists["harmless"] or words[0] in self.lists["harmless_starts"]
        other = self.patterns["another"].search(flag.replace(".", "-"))
        slow = self.patterns["slow_setting"].search(text or "")
        if slow or text in {*map(str, range(few))}:
            return True
        return not (harmless and other is None) and flag not in self.lists["spreading_flags"]


@lru_cache(maxsize=1024)
def flag_of(word: str) -> str:
    """The spelling flags are compared in; dotted keys are without dashes and ``+``.

    A word behind one dash is one behind two.
    """
    if _ONE_DASH.match(word):
        word = f"-{word}"
    if word.startswith("-") and not word.startswith("--") and len(word) == 2:
        return word
    flag = word.lower().replace("_", "-")
    return flag.lstrip("-+~") if "." in flag or word[:1] in "+~" else flag


@cache
def flags() -> Flags:
    """The table of the package."""
    raw = dict(shipped_yaml("flags.yaml"))
    generic = _family({"name": "generic", **raw.pop("generic")}, None)
    families = tuple(_family(entry, generic) for entry in raw.pop("families"))
    patterns = {name: re.compile(text, re.ASCII) for name, text in raw.pop("patterns").items()}
    lists = {name: frozenset(raw.pop(name)) for name in [*raw] if isinstance(raw[name], list)}
    return Flags(families=families, generic=generic, patterns=patterns, lists=lists, **raw)


def listed(name: str) -> frozenset[str]:
    """The words of a list of the table."""
    return flags().lists[name]


def _family(raw: Mapping[str, Any], generic: FlagFamily | None) -> FlagFamily:
    values = {flag_of(flag): key for flag, key in raw["values"].items()}
    switches = {flag_of(flag): pairs_of(text)[0] for flag, text in raw.get("switches", {}).items()}
    if generic is not None:
        values = {k: v for k, v in generic.values.items() if k not in switches} | values
        switches = {k: v for k, v in generic.switches.items() if k not in values} | switches
    sets: dict[str, Any] = {k: frozenset(v) if isinstance(v, list) else v for k, v in raw.items()}
    evidence = frozenset(map(flag_of, raw.get("evidence", ())))
    return FlagFamily(**sets | {"values": values, "switches": switches, "evidence": evidence})


@dataclass(frozen=True, slots=True)
class Launch:
    """A started program: its file's name, the words before it and those after it.

    ``directory`` is that of the file, empty where the command names none.
    """

    program: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    directory: str = ""

    @property
    def told(self) -> Mapping[str, str]:
        """What is said behind each flag of it."""
        return {flag_of(n): next(iter(f), "") if v is None else v for n, v, f in said(self.after)}

    @property
    def free(self) -> list[str]:
        """Its words that are neither flags nor settings, nor what may be the value of a flag."""
        pairs = zip(("", *self.after), self.after, strict=False)
        words = (word for before, word in pairs if "=" in before or before[:1] != "-")
        return [word for word in words if word[:1] != "-" and "=" not in word]

    @property
    def trains(self) -> bool:
        """Whether its name says that it trains."""
        return bool(_name_words(self.program) & listed("training_words"))

    @property
    def does_other_work(self) -> bool:
        """Whether its name or a flag says that it does something else than train."""
        table, told = flags(), self.told
        given = {flag_of(word.partition("=")[0]) for word in self.after if word.startswith("-")}
        asked = {flag for flag in given & told.keys() if told[flag].lower() not in OFF - {""}}
        trains = asked & {"--train", "--do-train"} or self.program[:4] == "trl "
        task = _name_words(told.get("--task", ""))  # MSDP-EVAL-F1
        judged = task & (listed("judging") | {"test"})
        judges = (judged or asked & listed("other_work_flags")) and not trains
        plays = any(part in flag for flag in told for part in listed("playing"))
        lengths = {table.generic.values.get(flag): word for flag, word in told.items()}
        ended = lengths.get("epochs") == "0" and not ("steps" in lengths or self.trains)
        modes = {*self.after[:1], told.get("--mode", "")}  # main.py validate, --mode test
        if judges or plays or ended or modes & {"launch", *listed("other_work")}:  # elsewhere
            return True
        if self.program == "yolo":
            return not {"train", "mode=train"} & set(self.after)
        never = {*_NAME_WORD.findall(self.program)[:1]} & listed("never_training")
        learns = not never and (self.trains or bool(given & {"--lr", "--learning-rate"}))
        place = _name_words(base_name(self.directory))  # llava.eval.run
        within = listed("judging") & (given | place)
        named = _name_words(self.program) & listed("other_work") or _JUDGES.search(self.program)
        other = within or named or serves((*self.before, self.directory))
        return bool(other) and not learns

    @property
    def may_learn(self) -> bool:
        """Whether its name, a flag or its family says that it may train."""
        signs = _name_words(" ".join((self.program, *self.after[:1], *self.told)))
        led = "steps" in signs and self.led - listed("copying")
        family = self.program == UNKNOWN or family_of(self) is not flags().generic
        return bool(self.trains or family or led or signs & listed("learning"))

    @property
    def started(self) -> Mapping[str, str]:
        """What is said behind each flag of the words before it."""
        return {flag_of(n): next(iter(f), "") if v is None else v for n, v, f in said(self.before)}

    @property
    def used(self) -> dict[str, str]:
        """How many GPUs flags of it tell it to use, by their number or by their ids."""
        using = flags().using
        told = {flag: word.strip("[]'") for flag, word in self.told.items() if flag in using}
        return {
            flag: str(ids.count(",") + 1) if using[flag] or "," in ids else ids
            for flag, ids in told.items()
            if ids.replace(",", "").isdecimal()
        }

    @property
    def several(self) -> bool:
        """Whether its flags say that one process uses several GPUs: a batch may be of them all."""
        on = {flag for flag, word in self.told.items() if word.lower() not in OFF - {""}}
        used = any(int(number) > 1 for number in self.used.values())
        shares = used or (not self.led and bool(on & listed("sharing")))
        return shares and not (self.led - listed("copying") or on & {"--accelerator", "--strategy"})

    @property
    def led(self) -> frozenset[str]:
        """What of the words before it starts a process for each GPU."""
        started = {base_name(word).removesuffix(".py") for word in self.before}
        return listed("spreading") & started

    @property
    def copied(self) -> str:
        """What starts copies of it that know nothing of each other; empty for nothing."""
        return "" if self.led - listed("copying") else min(self.led, default="")

    @property
    def joins(self) -> bool:
        """Whether copies of it train together, as far as its flags or its family say."""
        told = {flag for flag, value in self.told.items() if value.lower() not in OFF - {""}}
        family = family_of(self)
        return family.spreads or bool(
            listed("joining") & {*told, family.name, *_name_words(self.program)}
        )

    @property
    def alone(self) -> bool:
        """Whether nothing starts a process for each GPU, and no flag spreads one over them.

        A program that is named for a single device uses one.
        """
        table, told = flags(), self.told
        by_flags = told.keys() & listed("spreading_flags")
        if table.patterns["one_device"].match(told.get("--device", "")):
            by_flags -= {"--device"}
        named = _name_words(self.program)  # lora_finetune_single_device
        single = "single" in named and bool(named & {"device", "gpu"})
        spreads = self.led or self.program in listed("programs") or family_of(self).spreads
        return single or not (spreads or by_flags or UNKNOWN in map(base_name, self.before))


@lru_cache(maxsize=256)
def launch_of(words: tuple[str, ...]) -> Launch | None:
    """What a command launches, or None where it is no launcher of Python programs."""
    if not words or not (_launches(words[0]) or {*words[1:2]} & listed("training_words")):
        return None
    python = False
    unknown: Launch | None = None
    for index, word in enumerate(words):
        base = base_name(word)
        two = words[index + 1 : index + 3]
        if python and two and _MODULE.fullmatch(word):
            module = two[0]
            if module not in listed("launching"):
                if " ".join(two) in listed("programs"):  # llamafactory.cli train
                    continue
                package, _, name = module.rpartition(".")
                found = module if module in listed("programs") else f"{name}.py"
                return Launch(found, words[:index], words[index + 2 :], package.replace(".", "/"))
        elif several := listed("programs") & {" ".join((base, *two[:n])) for n in (1, 2)}:
            name = max(several, key=len)
            return Launch(name, words[:index], words[index + 1 + name.count(" ") :])
        elif (
            base in listed("programs")
            or (base.endswith(".py") and word[0] != "-" and base not in listed("launching"))
            or (_trains(base) and (not index or words[index - 1] in {"run", *listed("launchers")}))
            or (python and _trains(base) and _OVERRIDE.match(words[index - 1].lstrip("-")))
        ):
            return Launch(base, words[:index], words[index + 1 :], word.rpartition("/")[0])
        elif python and word.startswith(UNKNOWN) and _is_python(words[index - 1]):
            return Launch(UNKNOWN, words[:index], words[index + 1 :])
        elif (  # a program that has several: autoalign-cli sft
            {*two[:1]} & listed("training_words")
            and not ("." in base or word[0] == "-" or _launches(word))
            and Launch("", (), words[index + 2 :]).told.keys() & listed("learns")
        ):
            return Launch(f"{base} {two[0]}", words[:index], words[index + 2 :])
        elif (
            word == UNKNOWN
            and "".join(two[:1]).startswith("--")
            and (python or Launch("", (), words[index + 1 :]).told.keys() & listed("learns"))
        ):
            unknown = Launch(UNKNOWN, words[:index], words[index + 1 :])
        hidden = word == UNKNOWN and "-m" in two[:1]
        python = python or hidden or _is_python(word) or base in listed("module_launchers")
    return unknown


def is_brief(words: Sequence[str]) -> bool:
    """Whether a command, or what a launcher starts, takes no time to speak of beside a training."""
    words = words[:MAX_LED]
    brief, led = flags().patterns["brief"], base_name(words[0]) in listed("launchers")
    if brief.match(f"{' '.join(words)} "):
        return True
    images = 1 if base_name(words[0]) in (*CONTAINERS, "singularity", "apptainer") else 0
    for at, word in enumerate(words[1:] if led else (), 1):
        if word[:1] == "-" or "=" in word or word in ("exec", "run"):
            continue
        if len(word) > 1 and brief.match(f"{' '.join(words[at:])} "):
            return True
        if words[at - 1][:1] != "-" or "=" in words[at - 1]:  # no value of an option
            if not images:
                return len(word) > 1 and is_brief(words[at:])
            images -= 1
    return False


def serves(words: Sequence[str]) -> bool:
    """Whether an image or a package among the words is one that serves networks."""
    return any(_name_words(part) & listed("serving_words") for w in words for part in w.split("/"))


def shell_text(words: Sequence[str]) -> str | None:
    """The script of ``bash -c 'script'``, launched by whatever; else None."""
    if not words or not _launches(words[0]):
        return None
    for index, word in enumerate(words[:-2]):
        for place in range(index + 1, len(words) if base_name(word) in _SHELLS else 0):
            if re.fullmatch("-[a-zA-Z]*c", words[place]):
                return next((w for w in words[place + 1 : place + 3] if w != "--"), None)
            if words[place][:1] not in ("-", "+") and words[place - 1][-1:] != "o":
                break  # no option, nor what one sets: -euo pipefail
    return None


def as_flags(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Variables that are named like common flags, as such: a program may take them for settings."""
    keys = {name: flags().generic.values.get(flag_of(f"--{name}")) for name in environment}
    told = (name for name, key in keys.items() if key not in (None, "file", "dataset_path"))
    return tuple(f"--{name}={environment[name]}" for name in told)


def shell_file(words: Sequence[str]) -> tuple[str, ...]:
    """The script that ``bash x.sh`` or ``srun ./x.sh`` starts, with its arguments; else ()."""
    if not words or not (_launches(words[0]) or words[0].endswith(_SCRIPTS)):
        return ()
    for index, word in enumerate(words):
        started = index > 0 and base_name(words[index - 1]) in _SHELLS and not word.startswith("-")
        if (started or word.endswith(_SCRIPTS)) and word[:1] not in ("-", UNKNOWN, ""):
            named = UNKNOWN in word or base_name(word) in listed("programs")
            return () if named else tuple(words[index:])
    return ()


@lru_cache(maxsize=64)
def family_of(launch: Launch) -> FlagFamily:
    """The family whose program or flags these are; the generic one where none is found."""
    table = flags()
    given = {flag_of(name) for name, _, _ in said(launch.after)} | _name_words(launch.program)
    path = f"{base_name(launch.directory)}/{launch.program}"  # tools/train.py configs/
    given |= {f"{path} {w.partition('/')[0]}/" for w in launch.after if w.endswith(".py")}
    given |= {f"{m[1]}.yaml" for w in launch.after if (m := table.patterns["named"].search(w))}
    proven = [family for family in table.families if len(given & family.evidence) >= family.least]
    for family in table.families:  # a name says more than flags, which others have too
        named = family.only if family in proven else ()
        if launch.program in family.programs or launch.program in named:
            return family
    return next((family for family in proven if not family.only), table.generic)


@lru_cache(maxsize=64)
def said(words: tuple[str, ...]) -> tuple[tuple[str, str | None, tuple[str, ...]], ...]:
    """Flags in their order: name, value behind ``=`` or None, and the words that follow.

    ``key=value`` of Hydra and ``KEY.NAME value`` of yacs count as flags.
    """
    found: list[tuple[str, str | None, tuple[str, ...]]] = []
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        following = tuple(words[index + 1 : index + 4])
        if word.startswith("-") and len(word) > 1 and not word[1].isdigit():
            found.append((name, value if equals else None, following))
        elif equals and _OVERRIDE.match(word):
            found.append((name if "." in name else f"--{name.lstrip('+~')}", value, ()))
        elif _CONFIG_KEY.fullmatch(word):
            found.append((word if "." in word else f"--{word}", None, following))
    return tuple(found)


def switched(value: str | None, following: Sequence[str]) -> str | None:
    """What a switch is set to: ``on``, a word of its own, or None where it is off, or left open."""
    if value is None and following and following[0].lower() in (ON | _NOT_ON) - {"", "none"}:
        value = following[0]
    word = (value or "").lower()
    return "on" if value is None or word in ON else None if word in _NOT_ON else value


def _launches(word: str) -> bool:
    base = base_name(word)
    known = base in listed("launchers") or base in listed("programs") or UNKNOWN in word
    return known or base.endswith(".py") or _trains(base) or _is_python(word)


def _trains(base: str) -> bool:
    """Whether a program that a package installs is named for training: ``mace_run_train``."""
    return "." not in base and bool(_name_words(base) & listed("training_words"))


def _is_python(word: str) -> bool:
    return _PYTHON.fullmatch(base_name(word)) is not None


def base_name(word: str) -> str:
    """A path without its folders."""
    return word.rpartition("/")[2]


def _name_words(program: str) -> set[str]:
    return set(_NAME_WORD.findall(program.lower().removesuffix(".py").removesuffix(".sh")))
