"""Which training job is it: everything that was written of it, the strongest place first.

Of a batch script that are its ``#PT`` lines, and the training commands in it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, islice
from math import prod
from posixpath import join
from typing import Any

from profiles.storage import shipped_yaml

from ..job.training_job import CONTAINER
from . import launch as launching
from .command import command_stated
from .configured import LAUNCHER_FILE, deepspeed_stated
from .draft import Draft, settle
from .files import Files, files_at, settings_of
from .grammar import parse_mapping, parse_text
from .launch import CONTAINERS, Launch, base_name, family_of, flags, launch_of, listed, serves
from .rules import RuleContext, Rules
from .shell import JOINS, MAX_SCRIPT, Command, Script, Sourced, read_script
from .shell_syntax import UNKNOWN
from .shell_words import VISIBLE
from .stated import FILE, LENGTHS, NOTES, NOTHING, PAIRS, SCRIPT, Problem, Stated, one_line

MARK = "#SBATCH"
IMAGE = "container-image"  # the option of pyxis
_LONG = re.compile(r"--([a-z][a-z-]+)(?:=(.*))?", re.ASCII | re.S)
MAX_PROBLEMS = 5
MAX_WORD = 40  # of a word that a message repeats
MAX_TRAINING_COMMANDS = 50
# Scripts in scripts, one inside the other.
MAX_DEPTH = 3
# Sweeps submit one script many times: its reading is kept, at most 64 KiB of text each.
SCRIPTS_KEPT = 128
_LINE = re.compile(r"^#PT\b:?[ \t]*([^\n]*+)$", re.MULTILINE)
_REMARK = re.compile(r"^#(?!(?-i:PT)\b)[ \t]*PT\b:?[ \t]+\w+[ \t]*=", re.MULTILINE | re.IGNORECASE)
_TRAINING_FIELDS = {"model", "batch_size", "global_batch_size", "steps", "epochs"}
# Of a script: names and outputs of its job, remarks, and what a sweep may change.
_PLACES = re.compile(
    r"^(?:#SBATCH[ \t]+(?:--job-name|--output|--error|-[Joe])\b.*|[ \t]*#(?!SBATCH|PT|!).*)"
    r"|(?<=\s)--(?:lr|learning[_-]rate|(?:\w+[_-])?seed)(?:=|[ \t]+)[\d.e+-]+(?=\s)",
    re.MULTILINE | re.ASCII,
)
_INSIDE = re.compile(r"(?<=\S)#")  # no comment: nvcr.io#nvidia/pytorch
_NUMBER = re.compile(r"(?<![A-Za-z_\d])\d+", re.ASCII)
_ONES = str.maketrans("0123456789", "1" * 10)
# Where a batch job starts, unless it moves.
HERE = dict.fromkeys(("SLURM_SUBMIT_DIR", "PBS_O_WORKDIR", "SGE_O_WORKDIR", "PWD"), ".")
NOWHERE = -1
# What a configuration of DeepSpeed that the script itself writes would have said.
_OF_DEEPSPEED = re.compile(r"sharding:the file of|file:--deepspeed[^,]+ is not read")


def identify(
    *,
    comment: str | None = None,
    extra: str | None = None,
    environment: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    script: str | None = None,
    argv: Sequence[str] = (),
    rules: Rules | None = None,
    context: RuleContext | None = None,
    files: Files | None = None,
) -> Stated:
    """What comment, extra, environment, annotations, script and site rules say together.

    An earlier one goes before a later one, field by field. A site rule may name the model that
    users call by a name the catalog does not have. ``files`` reads the configurations that commands
    name. Problems are told once, at most five, those that keep a time from being told first.
    """
    known = environment or {}
    stated = parse_text(comment or "", "comment").over(parse_text(extra or "", "extra"))
    for mapping, origin in ((known, "environment"), (annotations or {}, "annotation")):
        stated = stated.over(parse_mapping(mapping, origin))
    stated = stated.over(parse_script(script or "", argv, environment=known, files=files))
    if rules is not None and context is not None and (rule := rules.match(context)) is not None:
        if rule.model is not None and stated.unknown_model is not None:  # the rule answers for it
            others = tuple(p for p in stated.problems if p.field != "model")
            stated = replace(stated, unknown_model=None, problems=others)
        stated = stated.over(rule)
    # the default precision of a framework that is named apart from the script
    name, origin = stated.values.get("framework"), stated.origins.get("framework", SCRIPT)
    unread = any(problem.field in ("file", "precision") for problem in stated.problems)
    apart = origin not in (SCRIPT, FILE) and name in shipped_yaml("trainers.yaml")
    if apart and not (unread or stated.trainer or "precision" in stated.values):
        stated = replace(stated, trainer=name)
    stated = settle(stated)
    grave = (p for p in stated.problems if p.contradiction or p.field == "dataset")
    problems = dict.fromkeys((*stated.doubts, *grave, *stated.problems))
    return replace(stated, problems=tuple(problems)[:MAX_PROBLEMS])


def parse_script(
    text: str,
    argv: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    files: Files | None = None,
) -> Stated:
    """What a script says; nothing in it is run.

    ``files`` reads the configurations that its commands name; without it none is read. ``argv`` is
    the script's path and its arguments, or without a script (srun, salloc) the command itself.
    ``environment`` are variables known from outside. ``#PT key=value`` lines go before command
    lines. At most 64 KiB are read.
    """
    known = tuple(sorted((environment or {}).items()))
    said = (text[:MAX_SCRIPT], tuple(argv), known)
    return _parsed(*said, None) if files is None else _parsed.__wrapped__(*said, files)


@lru_cache(maxsize=SCRIPTS_KEPT)
def _parsed(
    text: str, argv: tuple[str, ...], environment: tuple[tuple[str, str], ...], files: Files | None
) -> Stated:
    notes = parse_text(" ".join(_LINE.findall(text)), NOTES, ours=True)
    script = Script((Command(argv, False),))
    if text.strip():
        here = {} if files is None else HERE
        script = read_script(text, {**here, **dict(environment)}, argv[1:], _sourced(files))
    runs = list(_runs(script.commands, files))
    configs = [s for d in script.documents if (s := deepspeed_stated(d)) is not None]
    training = list(_trainings(runs, files))
    asked = sbatch_options(text)
    images = (asked.get(IMAGE, ""), *(word for run in runs for word in run.launch.before))
    stated = dated(_training(training, configs), images)
    known = listed("brief").union(run.launch.program for run, _ in training)
    beside = dict.fromkeys(name for name in _beside(script, files) if name not in known)
    told = tuple(Problem(SCRIPT, one, "gpus", True) for one in _disputed(runs, asked, files))
    copies = {} if told else dict.fromkeys(_copies([run for run, _ in training], asked))
    assumed = (f"{one} may start copies: that they train together is assumed" for one in copies)
    if _REMARK.search(text):
        told += (Problem(NOTES, "a line with `# PT` or `#pt` is a remark: begin it with `#PT`"),)
    if flags().patterns["no_time"].match(limit := asked.get("time", "")):
        expected = "expected minutes, [DAYS-]HOURS:MINUTES:SECONDS or DAYS-HOURS"
        told += (Problem(SCRIPT, f"#SBATCH --time={limit[:MAX_WORD]}: {expected}"),)
    if stated.model:
        told += tuple(Problem(SCRIPT, f"{one}, and no limit is set", "gpus") for one in assumed)
    stated = replace(stated, started=_started(runs, asked))
    problems, unclear = (*told, *stated.problems), (*stated.unclear, *copies, *beside)
    named = ("a program without a name" if one == UNKNOWN else one for one in unclear)
    short = (re.sub(f"(?<=^.{{{MAX_WORD}}}).+", "...", w, flags=re.S) for w in named)
    shown = tuple(map(one_line, islice(short, MAX_PROBLEMS)))
    return settle(notes.over(replace(stated, problems=problems, unclear=shown)))


def _beside(script: Script, files: Files | None, depth: int = 0) -> Iterator[str]:
    """Programs that a script runs, commands that may take their time, and what slows them all."""
    for command in script.commands:
        here, words = files_at(files, command.directory), command.words
        inner = _inner(command, here, command.directory) if depth < MAX_DEPTH else None
        if inner is not None:
            yield from _beside(inner, here, depth + 1)
        elif (launch := launch_of(words)) is not None:
            yield launch.program
        elif words and (not launching.is_brief(words) or (command.repeated and "sleep" in words)):
            yield words[0]
        told = (*map("=".join, command.exported.items()), *words)
        slows = flags().patterns["slows"].match
        yield from (word.partition("=")[0] for word in told if slows(word))
    for text in script.substituted:
        within = _beside(read_script(text), None, depth + 1) if depth < MAX_DEPTH else (text,)
        yield from (f"$({name})" for name in within)


def dated(stated: Stated, words: Iterable[str]) -> Stated:
    """What is stated, with the date and builder of the first image of a framework among words."""
    image = next(filter(None, map(flags().patterns["image"].search, words)), None)
    name = stated.values.get("framework", "")
    told = name or ((stated.values or stated.unknown_model) and image and "pytorch" in image[0])
    if image is None or not told or "framework_date" in stated.values:
        return stated
    draft = Draft(stated.origins.get("framework", SCRIPT))
    draft.say("framework", f"{name} pytorch {image['version'] or ''}")
    if image["release"]:
        draft.pair("options", CONTAINER, image["release"])
    return draft.stated().over(stated)


def _disputed(runs: Sequence[_Run], asked: Mapping[str, str], files: Files | None) -> Iterator[str]:
    """Where a launcher starts other than one process for each GPU that sbatch is asked for."""
    gpus, nodes, whole = _wanted(asked)
    numbers = {"gpus": gpus, "nodes": nodes, "whole": whole}
    requests = {flag: numbers[what] for flag, what in flags().starting.items()}
    requests |= dict.fromkeys(flags().using, gpus)
    for run in runs:
        here, path = files_at(files, run.directory), run.launch.started.get(LAUNCHER_FILE, "")
        told = settings_of(path, (here(path) or "") if here and path else "") or {}
        processes = {"--num-processes": told.get("num_processes", "")}
        for flag, started in {**processes, **run.launch.started, **run.launch.used}.items():
            wanted = requests.get(flag, "")
            may = {wanted, whole} if flag in run.launch.used else {wanted}  # of a node, or of all
            if started.isdigit() and wanted.isdigit() and started.lstrip("0") not in may:
                yield f"{flag} {started}, and #SBATCH asks for {wanted}: no limit is set"
        ran = _tasks(run, asked)
        srun = run.launch.copied == "srun" and not family_of(run.launch).spreads
        if srun and whole and ran.isdigit() and int(ran) != int(whole):
            yield f"srun starts {ran}, and #SBATCH asks for {whole} GPUs: no limit is set"
        if run.visible and gpus.isdigit() and run.visible != int(gpus):
            seen = max(run.visible, 0)
            yield f"{VISIBLE} names {seen}, and #SBATCH asks for {gpus}: no limit is set"


def _wanted(asked: Mapping[str, str]) -> tuple[str, str, str]:
    """GPUs a node, nodes and GPUs as a whole that sbatch is asked for; empty where not known."""
    nodes, total = asked.get("nodes", ""), asked.get("gpus", "")
    gpus = asked.get("gpus-per-node") or asked.get("gres", "").partition("gpu")[2]
    gpus = (gpus or (total if nodes in ("", "1") else "")).rpartition(":")[2]
    known = gpus.isdigit() and (nodes or "1").isdigit()
    return gpus, nodes, str(int(gpus) * int(nodes or 1)) if known else ""


def _tasks(run: _Run, asked: Mapping[str, str]) -> str:
    """How many processes srun starts; empty where that is not known."""
    per_node, nodes = asked.get("ntasks-per-node", "1"), asked.get("nodes", "")
    tasks = str(int(per_node) * int(nodes or 1)) if (per_node + nodes).isdigit() else ""
    flagged = run.launch.started
    return flagged.get("--ntasks") or flagged.get("-n") or asked.get("ntasks") or tasks


def _copies(runs: Sequence[_Run], asked: Mapping[str, str]) -> Iterator[str]:
    """What starts a program several times, though nothing says that these train together."""
    for run in runs:
        one = "1" in (_wanted(asked)[2], *map(run.launch.started.get, ("--ntasks", "-n", "-np")))
        if run.launch.copied and not (one or run.joined or run.launch.joins):
            yield run.launch.copied


def _started(runs: Sequence[_Run], asked: Mapping[str, str]) -> int | None:
    """For how many GPUs launchers start a process, or srun where none are asked for; else None."""
    counted = any("gpu" in name for name in (*asked, asked.get("gres", "")))
    counts = set()
    for run in runs:
        told = run.launch.started
        here = told.get("--nproc-per-node") or told.get("--num-gpus") or str(run.visible or "")
        if told.get("--include", "").startswith("localhost:"):
            here = str(told["--include"].count(",") + 1)
        whole = told.get("--num-processes")
        if run.launch.copied == "srun" and (run.joined or run.launch.joins) and not counted:
            here = here or re.sub("^1$", "", _tasks(run, asked))
        nodes = told.get("--nnodes") or told.get("--num-nodes", "1")
        numbers = [here, nodes] if whole is None else [whole]
        if all(number.isdigit() for number in numbers):
            counts.add(prod(map(int, numbers)))
    return counts.pop() or None if len(counts) == 1 else None


@dataclass(frozen=True, slots=True)
class _Run:
    """A training command; ``repeated`` where it may run more or less than once.

    ``directory`` is where it runs, as the script says it; None where that is not known, or where
    its files are those of a container. ``visible`` GPUs are those that it is told to use, 0 where
    it is not told and NOWHERE for none. ``joined`` are processes that are told of each other.
    ``ways`` are the branches of the script in which it stands.
    """

    launch: Launch
    repeated: bool
    directory: str | None
    visible: int = 0
    joined: bool = False
    ways: tuple[tuple[int, int], ...] = ()


def _runs(commands: Sequence[Command], files: Files | None, depth: int = 0) -> Iterator[_Run]:
    for command in commands:
        directory = command.directory
        if depth < MAX_DEPTH and (inner := _inner(command, files, directory)) is not None:
            outer = _outside(command.words, directory)
            plain = (w for w in command.words[1:] if " " not in w)
            images = (w for w in plain if serves((w,)) or flags().patterns["image"].search(w))
            started = (command.words[0], *images)
            for run in _runs(inner.commands, files_at(files, directory), depth + 1):
                known = outer is not None and run.directory is not None
                place = join(outer or "", run.directory or "") if known else None
                whole = replace(run.launch, before=(*started, *run.launch.before))
                if not whole.does_other_work:
                    again = run.repeated or command.repeated
                    way = command.ways
                    yield replace(run, launch=whole, repeated=again, directory=place, ways=way)
        elif (launch := launch_of(command.words)) is not None and not launch.does_other_work:
            seen = command.exported.get(VISIBLE, "")
            visible = seen.count(",") + 1 if seen.replace(",", "").isdigit() else 0
            visible = NOWHERE if VISIBLE in command.exported and seen in ("", "-1") else visible
            joined = any(name.startswith(JOINS) for name in command.exported)
            place = _outside(launch.before, directory)
            yield _Run(launch, command.repeated, place, visible, joined, command.ways)


def _sourced(files: Files | None) -> Sourced:
    """Reads a file that a script sources, where the commands before it have moved to."""
    return lambda path, at: None if (here := files_at(files, at)) is None else here(path)


def _inner(command: Command, files: Files | None, directory: str | None) -> Script | None:
    """What a shell text says, or of a script that may be read; None where it is neither."""
    text = launching.shell_text(command.words)
    arguments = () if text is None else command.words[command.words.index(text) + 2 :]
    here = files_at(files, _outside(command.words, directory))
    if (
        text is None
        and launch_of(command.words) is None
        and (file := launching.shell_file(command.words))
    ):
        text, arguments = None if here is None else here(file[0]), file[1:]
    return None if text is None else read_script(text, command.exported, arguments, _sourced(here))


def _outside(words: Sequence[str], directory: str | None) -> str | None:
    """The directory, None where the words start a container whose files are its own."""
    inside = any(base_name(w) in CONTAINERS or w.startswith("--container") for w in words)
    return None if inside else directory


def _trainings(runs: Sequence[_Run], files: Files | None) -> Iterator[tuple[_Run, Stated]]:
    """The commands that train, with what they state."""
    for run in (run for run in runs[:MAX_TRAINING_COMMANDS] if run.launch.may_learn):
        stated = command_stated(run.launch, files_at(files, run.directory))
        told = stated.unknown_model or _TRAINING_FIELDS & set(stated.values)
        asks = any(p.field not in ("file", "precision") for p in stated.problems)  # any may those
        if run.launch.trains or told or asks:
            yield run, stated


def _training(training: Sequence[tuple[_Run, Stated]], configs: Sequence[Stated]) -> Stated:
    """What all training commands agree on, over the configurations that the script writes."""
    if not training:
        return NOTHING
    agreed = _agreed([stated for _, stated in training], "training commands")
    spreads = any(problem.field == "gpus" for problem in agreed.problems)
    run, alone = training[0][0], len(training) == 1 and training[0][1].alone
    if alone and run.visible > 1 and "batch_size" in agreed.values:
        text = f"{VISIBLE} names {run.visible}: is the batch of one or of all? state batch_size"
        agreed = agreed.without(("batch_size",), Problem(SCRIPT, text, "batch_size"))
    agreed = replace(agreed, alone=alone and run.visible < 2 and not spreads)
    if len(training) > 1 and not _one_runs(training):
        agreed = _without_length(agreed, "several training commands")
    elif any(run.repeated for run, _ in training):
        agreed = _without_length(agreed, "the training command is in a loop or function")
    # a DeepSpeed configuration that the script writes completes the command line
    written = _agreed(configs, "DeepSpeed configurations")
    joined = agreed.completed(written)
    others = (p for p in joined.problems if not _OF_DEEPSPEED.match(f"{p.field}:{p.text}"))
    return replace(joined, problems=tuple(others)) if written.values else joined


def _one_runs(training: Sequence[tuple[_Run, Stated]]) -> bool:
    """Whether no two commands stand in one branch, and all are told the same length."""
    lengths = {tuple(map(stated.values.get, LENGTHS)) for _, stated in training}
    pairs = combinations((dict(run.ways) for run, _ in training), 2)
    apart = (any(one[at] != other[at] for at in one.keys() & other.keys()) for one, other in pairs)
    return len(lengths) == 1 and all(apart)


def _agreed(stated: Sequence[Stated], what: str) -> Stated:
    """What all of them state alike; a problem with what only some state, or otherwise."""
    if len(stated) < 2:
        return stated[0] if stated else NOTHING
    values: dict[str, Any] = {}
    problems = [p for one in stated for p in one.problems]
    origins = {name: origin for one in stated for name, origin in one.origins.items()}
    for name, origin in origins.items():
        said = [one.values[name] for one in stated if name in one.values]
        told = [{*one} if name in PAIRS else {one} for one in said]
        alike = set.intersection(*told) if len(told) == len(stated) else set()
        if set.union(*told) - alike - {("resumed", "on")}:  # one of two branches may resume
            text = f"{what} differ in {name}: state it in --comment"
            problems.append(Problem(origin, text, name))
        if alike:
            values[name] = tuple(sorted(alike)) if name in PAIRS else said[0]
    unknown = {one.unknown_model for one in stated}
    trainers = {one.trainer for one in stated}
    return Stated(
        values,
        {name: origins[name] for name in values},
        tuple(dict.fromkeys(problems)),
        unknown.pop() if len(unknown) == 1 else None,
        trainer=trainers.pop() if len(trainers) == 1 else None,
        unclear=tuple(dict.fromkeys(name for one in stated for name in one.unclear)),
    )


def _without_length(stated: Stated, why: str) -> Stated:
    text = f"{why}: state epochs or steps of the whole job in --comment"
    asked = stated.without(LENGTHS, Problem(SCRIPT, text, "steps"))
    return asked if set(LENGTHS) & set(stated.values) else stated


def alike(script: str) -> str:
    """The script with ones for digits that no reading heeds: of remarks, ``--lr 0.1``, outputs."""
    return _PLACES.sub(lambda at: _NUMBER.sub(lambda n: n[0].translate(_ONES), at[0]), script)


def sbatch_options(script: str) -> dict[str, str]:
    """The options of a script's ``#SBATCH`` lines, up to its first command, by their long names.

    A line that cannot be read says nothing; the last one of an option counts, as with sbatch. One
    without a value is left out, and of a heterogeneous job all but its first component.
    """
    found: dict[str, str] = {}
    for line in script.splitlines():
        if line.startswith(MARK):
            with suppress(ValueError):
                said = _INSIDE.sub("\0", line.removeprefix(MARK))  # only shlex ends a word there
                words = [w.replace("\0", "#") for w in shlex.split(said, comments=True)]
                if words in (["hetjob"], ["packjob"]):
                    break
                for word, value in zip(words, [*words[1:], ""], strict=True):
                    if long := _LONG.fullmatch(word):
                        found[long[1]] = value if long[2] is None else long[2]
                    elif word.startswith("-") and word[1:2] in flags().sbatch_short:
                        found[flags().sbatch_short[word[1]]] = word[2:] or value
        elif line.strip() and not line.startswith("#"):
            break
    return {name: text for name, text in found.items() if text and not text.startswith("-")}
