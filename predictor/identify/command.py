"""What the command line of one training program says of the job."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import takewhile
from pathlib import PurePosixPath

from profiles.storage import shipped_yaml

from ..graphs.catalog import find_entry, understood_variant
from ..job.datasets import DataSet, find_dataset
from .configured import PYTHON_CONFIG, Configured, configured, is_config, plain_names, tell_files
from .draft import SIGNALS, Draft
from .files import Files
from .grammar import pairs_of
from .keys import FIELD_OF, OFF, ON
from .launch import FlagFamily, Launch, base_name, family_of, flag_of, flags, listed, said, switched
from .shell_syntax import UNKNOWN
from .stated import BATCHES, DECISIVE, FILE, KINDS, LENGTHS, NAMED, NOTHING, SCRIPT, Problem, Stated

_TITAN = ("titan_model", "titan_flavor")
# Keys whose flags stand alone, or with what they are set to.
_KINDS = ("adapters", "quantised", "frozen", "frozen_part", "tuned", "distilled", "objective")
_SWITCHED = (*_KINDS, "resumed", "evaluation", "packed")
# What is left where the number behind a flag cannot be read.
_PARTS = {"dataset_size": "dataset_share", "start_epoch": "resumed"}
_OF_DATA = ("classes", "dataset", "dataset_part", "dataset_hint", "dataset_path", "dataset_share")
_NONE = frozenset((("epochs", "0"), ("batch_size", "0"), ("batch_size", "-1")))  # told as invalid
_SIZES = ("layers", "encoder_layers", "decoder_layers", "hidden")  # of a builder
_TOKENS = 2**16  # a whole batch from here on is counted in tokens
_STEPS_AT_MOST = 2**13  # so is one that would be that many micro-steps of one GPU, or GPUs
_WHOLE = "epochs or steps of the whole job"
_search = lru_cache(maxsize=32)(re.search)  # a launch is read twice, with its files and without


@dataclass(slots=True)
class _Reading:
    """One command line while it is read; ``special`` holds what is no key of the grammar."""

    launch: Launch
    family: FlagFamily
    draft: Draft
    special: dict[str, str] = field(default_factory=dict)
    said_by: dict[str, tuple[str, str]] = field(default_factory=dict)
    unread: dict[str, Problem] = field(default_factory=dict)
    unclear: dict[str, None] = field(default_factory=dict)


def command_stated(launch: Launch, files: Files | None) -> Stated:
    """The fields that flags, the program's name and, where they may be read, its files state."""
    found = configured(launch, files)
    looks = _fixed(found.texts, flags().computes["looks"]) and not launch.trains
    if looks or _fixed(found.texts[:1], flags().computes["plays"]):
        return NOTHING
    stated, launch = _read(found), found.own
    if found.launch is launch:
        return stated
    alone = _read(replace(found, launch=launch, unread=()))
    origins = {
        name: origin if alone.values.get(name) == stated.values[name] else FILE
        for name, origin in stated.origins.items()
    }
    return replace(stated, origins=origins)


def _read(found: Configured) -> Stated:
    """Read a launch, in which the settings of its files stand before the flags of its ``own``."""
    family, own = family_of(found.launch), found.own
    reading = _Reading(found.launch, family, Draft(SCRIPT, family.prefix))
    for flag, key in flags().launcher_values.items():
        if UNKNOWN not in (text := found.launch.started.get(flag, UNKNOWN)):
            _take(reading, key, flag, text, ())
    for pair in () if found.unread else pairs_of(family.defaults):  # a file may say otherwise
        _switch(reading, pair, "on")
    _read_flags(reading, len(said(own.after)))
    _leave_out_disputed(reading)
    _read_names(reading, adapts=bool(family.adapts) and not found.unread)
    _read_kind(reading)
    _check_model(reading)
    _tell_unknown(reading, found, own)
    _read_dataset(reading.draft, reading.special, found.launch.free)
    tell_files(found, reading.draft)
    _read_batch(reading)
    _read_length(reading)
    stated = reading.draft.stated()
    told = DECISIVE | NAMED | {"gpus"}  # others change no time: a program has words of its own
    problems = tuple(p for p in stated.problems if p.field in told)
    if any(p.field == "optimizer" for p in stated.problems):
        reading.unclear["its optimizer"] = None
    alone = own.alone and not _fixed(found.texts, flags().computes["spreads"])
    stated = replace(stated, problems=problems, unclear=tuple(reading.unclear), alone=alone)
    stated = stated.completed(found.tables)
    told_some = stated.values or stated.unknown_model
    return _with_defaults(reading, found, stated) if told_some else stated


def _read_names(reading: _Reading, *, adapts: bool) -> None:
    """What the family of a program says by its name, its first words or its configuration's."""
    launch, family, draft = reading.launch, reading.family, reading.draft
    if family.leads and (word := next(iter(launch.free), "")):
        _take(reading, family.values[family.leads], family.leads, word, ())
    if family.models and launch.program in family.models and "model" not in draft.texts:
        draft.say("model", family.models[launch.program])
    if family.configs and (config := next(filter(PYTHON_CONFIG.fullmatch, launch.after), None)):
        _read_config(reading, config)
    if adapts and "finetuning" not in reading.special:
        reading.special.setdefault("adapters", "on")
        why = "finetuning_type is not stated: its default lora is taken, and no limit is set"
        draft.problem(why, "options", contradiction=True)


def _tell_unknown(reading: _Reading, found: Configured, own: Launch) -> None:
    """Tell of words that cannot be read, and of what the program's text does of itself."""
    draft, family = reading.draft, reading.family
    pairs = zip(("", *own.after), own.after, strict=False)
    if any(w == UNKNOWN and (b[:1] != "-" or flag_of(b) in family.switches) for b, w in pairs):
        draft.dispute("words that we cannot read may set more", "model")
        reading.special["unread"] = "on"
    reading.unclear |= dict.fromkeys(sorted(listed("slowing") & {*map(base_name, own.before)}))
    given = f"{own.directory}/{own.program} {' '.join(found.launch.told)}"
    if flags().patterns["beside"].search(given.lower()):
        if find_entry(draft.texts.get("model", ("", ""))[1]):
            del draft.texts["model"]
        draft.dispute("what is trained beside a network is not priced", "model")
    kinds = KINDS & draft.pairs.get("options", {}).keys()
    known = kinds or own.program in family.programs
    divides = not own.alone and _fixed(found.texts, flags().computes["shares"])
    shares = family.name == "generic" and (own.several or divides)
    for about, text in flags().by_itself.items():
        seen = found.texts if about in ("options", "gpus") else found.texts[:1]
        told = own.alone if about == "gpus" else not known or about not in ("options", "model")
        if told and _fixed(seen, text):
            draft.problem(f"{own.program} {text['told']}", about, contradiction=True)
            shares |= about in ("gpus", "batch_size")
    if shares and (batch := draft.texts.pop("batch_size", None)):
        reading.special["unclear_batch"] = batch[1]
    splits = not own.led and _fixed(found.texts[:1], flags().computes["splits"])
    if splits and (shared := reading.special.pop("unclear_batch", "")):
        reading.special["total_batch"] = shared
    if {*draft.signals} == {"amp"} and _fixed(found.texts, flags().computes["brains"]):
        draft.signal("bf16", "on")
    if "auto" in reading.special:
        draft.signals.pop("tf32", None)
    if "frozen" in kinds and _fixed(found.texts, flags().computes["thaws"]):
        del draft.pairs["options"]["frozen"]
        draft.ask(f"{own.program} trains later what it freezes", "options", "frozen")


def _with_defaults(reading: _Reading, found: Configured, stated: Stated) -> Stated:
    """What is stated, over the framework, the trainer and what the program is known to take."""
    launch, family, context = reading.launch, reading.family, Draft(SCRIPT)
    started = {flags().launcher_trainers.get(base_name(word)) for word in launch.before}
    plain, halves = (_fixed(found.texts, flags().computes[n]) for n in ("plain", "halves"))
    if framework := family.framework or ("pytorch" if plain or started - {None} else ""):
        context.say("framework", framework)
    engine = "deepspeed" in " ".join((*launch.led, *launch.told))  # its program may configure it
    unseen = "unread" in reading.special or (engine and not found.tables.values)
    trainer = None if unseen else _trainer(reading, stated, "pytorch" if plain else None)
    if trainer and not (halves and shipped_yaml("trainers.yaml")[trainer]["precision"] == "fp32"):
        context.say("trainer", trainer)
    usual = Draft(f"default of {launch.program}")
    unread = stated.doubts or found.unread or any(UNKNOWN in word for word in launch.after)
    taken = {} if unread else dict(pairs_of(family.taken.get(launch.program, "")))
    for key in taken.keys() - stated.settled():
        usual.say(key, taken[key])
    return stated.over(context.stated()).over(usual.stated())


def _fixed(texts: Sequence[str], text: Mapping[str, str]) -> bool:
    """Whether a program's texts do a thing that no flag of it asks for."""
    whole, asked = "\n".join(texts), text.get("asked")
    return bool(_search(text["sign"], whole)) and not (asked and _search(asked, whole))


def _trainer(reading: _Reading, stated: Stated, usual: str | None) -> str | None:
    """The trainer whose default precision holds; none where a flag may say another."""
    launch, patterns = reading.launch, flags().patterns
    if any(problem.field in ("file", "precision", "sharding") for problem in stated.problems):
        return None
    named = [
        (name, switched(value, following))
        for name, value, following in (*said(launch.before), *said(launch.after))
        if patterns["precision"].search(flag_of(name).lstrip("-").rpartition(".")[2])
        and (next(iter(following), "") if value is None else value).lower() != "auto"
    ]
    off = patterns["negated"].match
    if any((w or "auto").lower() not in listed("unset") and not off(name) for name, w in named):
        return None
    known, family = shipped_yaml("trainers.yaml"), reading.family
    launchers = (flags().launcher_trainers.get(base_name(word), "") for word in launch.before)
    found = next((name for name in (family.name, *launchers) if name in known), usual)
    meant = {**family.values, **{flag: key for flag, (key, _) in family.switches.items()}}
    switched_off = any(meant.get(flag_of(name)) in SIGNALS for name, _ in named)
    return None if found and switched_off and known[found]["precision"] != "fp32" else found


def _read_flags(reading: _Reading, own: int) -> None:
    """Take the flags, of which the last ``own`` are the command's: they override its files."""
    given = said(reading.launch.after)
    names = plain_names([(name, value) for name, value, _ in given], reading.family)
    run_id = sum(reading.family.values.get(flag_of(name)) == "model" for name in names) > 1
    fold = any(re.match("--(?:current-)?fold(?!s)", flag_of(name)) for name, _, _ in given)
    for index, (name, value, following) in enumerate(given):
        if index == len(given) - own:
            reading.said_by.clear()
        flag = flag_of(name if names[name] == name else f"--{names[name]}")
        plain = flags().patterns["negated"].sub("--", flag)
        meant = {**reading.family.values, **dict.fromkeys(reading.family.switches, _KINDS[0])}
        if flag not in meant and meant.get(plain) in _SWITCHED:  # --no-x is --x off
            flag, value, following = plain, "off", ()
        key = reading.family.values.get(flag)
        behind = next((w for w in following[:1] if not re.match("-[-a-zA-Z]", w)), None)
        text = behind if value is None else value
        flag = "--multirun" if flag == "-m" and "=" in (text or "") else flag  # Hydra
        a_file = flags().patterns["config_flag"].match(flag) and is_config(text or "")
        other = key in ("file", "agreed") or (run_id and flag == "--model-id")
        if other or (a_file and key != "config"):
            continue
        if key in _SWITCHED or (key == "other_batch" and text is None):
            _take_switch(reading, key, name, "on" if text is None else text)
        elif key in _OF_DATA:
            more = following[1:] if value is None and key == "dataset" else ()
            others = takewhile(lambda word: word[:1] != "-" and "=" not in word, more)
            if key != "dataset_share" or (text or "on").lower() not in OFF | {"1.0", "full", "all"}:
                reading.special[key] = ",".join((text or "", *others))
        elif key == "mixed_precision" and (text or "on").lower() in ON:  # that there is some
            reading.draft.signal("amp", "on")
        elif key is not None:
            if text is not None:
                _take(reading, key, name, text, following)
        elif pair := reading.family.switches.get(flag):
            if (word := switched(value, following)) is not None:
                _switch(reading, pair, word)
            elif pair[0] in SIGNALS and text == "auto":  # 16 bits where the GPU has them
                reading.special["auto"] = "on"
            elif pair[0] == "options":  # off, whatever was said before
                reading.draft.pairs.get("options", {}).pop(pair[1].partition("=")[0], None)
        elif not fold and flag in listed("repeating") and (text or "on").lower() not in OFF | {"1"}:
            reading.draft.ask(f"{name} trains more than once", "steps", _WHOLE)
        elif flags().may_change_time(flag, text):
            reading.unclear[name] = None


def _take_switch(reading: _Reading, key: str, name: str, word: str) -> None:
    """One flag that stands alone, or with what it is set to."""
    if key == "tuned" and UNKNOWN not in word:  # or frozen
        word = "on" if word.lower() in OFF else reading.special.get("frozen_part", "off")
        key = "frozen_part"
    if UNKNOWN not in word:
        if not (word.isdigit() and reading.special.get(key, "on").lower() in OFF):
            reading.special[key] = word  # but no rank of adapters that are off
    elif key in _KINDS:
        reading.draft.ask(f"{name} is set where we cannot read it", "options")


def _leave_out_disputed(reading: _Reading) -> None:
    """Take nothing where two flags say a field in two ways: one may be of images before a crop."""
    draft, size = reading.draft, reading.special.get("input_size")
    _, image = draft.texts.get("image_size", ("", size))
    if size and image and size not in image.split("x"):
        draft.dispute(f"--input-size {size[:20]} and {image[:20]} differ", "image_size")
    for problem in draft.problems:
        if problem.contradiction:
            draft.texts.pop(problem.field, None)


def _switch(reading: _Reading, pair: tuple[str, str], word: str) -> None:
    key, text = pair
    if word.lower() in listed("unset") if key in SIGNALS else word == UNKNOWN:
        return
    if key in ("options", "variant"):
        name, _, value = text.partition("=")
        reading.draft.pair(key, name, value)
    elif key in SIGNALS:
        reading.draft.signal(key, text if word == "on" else word)
    elif not reading.draft.say(key, text):
        reading.special[key] = text


def _take(reading: _Reading, key: str, name: str, text: str, following: Sequence[str]) -> None:
    """One flag with its value, unless that says nothing or cannot be known."""
    draft = reading.draft
    if UNKNOWN in text:
        about = flags().about.get(key, key.partition(".")[0])
        if about in DECISIVE or about == "model":
            draft.ask(f"{name} is set where we cannot read it", about)
            reading.unread[key] = draft.problems[-1]
        draft.texts.pop(about, None)
        reading.special.pop(key, None)
        if key in _PARTS:
            reading.special[_PARTS[key]] = "on"
        return
    if key in reading.unread:  # said again, and clearly
        draft.problems.remove(reading.unread.pop(key))
    told = key == "titan_shard" or (key, text) in _NONE  # -1: by all
    nothing = text.strip().lower() in listed("unset") and not told
    nothing |= key == "dataset_size" and bool(re.fullmatch("9{5,}", text))  # a cap
    if nothing or (key == "model" and text.replace(".", "").isdigit()):
        return
    flag, first = reading.said_by.setdefault(key, (flag_of(name), text))
    two = key in FIELD_OF and key not in SIGNALS and flag != flag_of(name) and first != text
    if two and not (key == "model" and find_entry(first) and find_entry(first) == find_entry(text)):
        draft.dispute(f"{flag} {first[:40]} and {flag_of(name)} {text[:40]} differ", FIELD_OF[key])
    if key in SIGNALS:
        draft.signal(key, text)
    elif key == "input_size":
        axes = [text, *following[1:]] if text == next(iter(following), None) else [text]
        text = "x".join(takewhile(str.isdigit, axes)) or text
        reading.special[key] = text.rpartition("x")[2]
        if reading.family.name != "generic":  # where it is of images
            draft.say("image_size", text)
    elif key == "config":
        _read_config(reading, text)
    elif "." in key:
        field_name, _, pair_key = key.partition(".")
        draft.pair(field_name, pair_key, text)
    elif not draft.say(key, text):
        reading.special[key] = text
    for expression, said_so in flags().words.get(key, {}).items():
        if match := re.match(expression, text, re.I):
            for pair in pairs_of(match.expand(said_so)):
                _switch(reading, pair, "on")
            return
    if key == "finetuning":
        reading.unclear[name] = None
    if key in _TITAN:
        draft.say("model", "-".join(reading.special.get(part, "") for part in _TITAN))


def _read_config(reading: _Reading, path: str) -> None:
    """What the name of a configuration says: the model, and by openmmlab's rule the batch."""
    stem, patterns = PurePosixPath(path).stem, flags().patterns
    plain = patterns["config_epochs"].sub("", patterns["config_batch"].sub("", stem))
    reading.draft.say("model", plain)
    if reading.family.name != "openmmlab":
        return
    for name, each in {"config_batch": 1, "config_epochs": 1, "config_schedule": 12}.items():
        if found := patterns[name].search(stem):
            key = "batch_size" if name == "config_batch" else "epochs"
            reading.draft.texts.setdefault(key, (key, str(each * int(found[1]))))


def _read_batch(reading: _Reading) -> None:
    """Batches that are of a node, of all micro-steps, or of who knows what."""
    draft, special = reading.draft, reading.special
    many = special.get("total_or_tokens", "")
    each = _number(draft.texts.get("batch_size", ("", ""))[1])
    if _number(many) >= (min(_TOKENS, each * _STEPS_AT_MOST) or _TOKENS):
        special["batch_tokens"], many = many, ""
    if total := many or special.get("total_batch"):
        draft.say("global_batch_size", total)
    if micro := special.get("micro_of_total"):
        draft.say("batch_size", micro)
    if not ("grad_accum" in draft.texts or total) and (micro or "recipe" in special):
        draft.ask("how many micro-steps are in a step is not stated", "grad_accum")
    if tokens := special.get("batch_tokens"):
        length = _number(draft.texts.get("seq_len", ("", ""))[1])
        if (whole := _number(tokens)) and length and whole % length == 0:
            draft.say("global_batch_size", str(whole // length))
        else:
            draft.ask(f"a batch of {tokens[:20]!r} tokens", "global_batch_size")
    if text := special.get("node_batch"):
        torchrun = listed("distributed") & {*map(base_name, reading.launch.before)}
        if (whole := _number(text) * _number(special.get("nodes", "1"))) and not torchrun:
            draft.say("global_batch_size", str(whole))
        else:
            special["unclear_batch"] = text
    steps = _number(draft.texts.get("grad_accum", ("", "1"))[1])
    if (text := special.get("accumulated_batch")) and steps and _number(text) >= steps:
        draft.say("batch_size", str(_number(text) // steps))
    if special.get("other_batch", "1") != "1" and (told := {*BATCHES} & draft.texts.keys()):
        draft.texts = {name: text for name, text in draft.texts.items() if name not in told}
        draft.ask("a batch has other samples than are stated", "batch_size")
    batch = draft.texts.get("batch_size", ("", ""))[1]
    shares = any(problem.field in ("gpus", "batch_size") for problem in draft.problems)
    one_gpu = reading.launch.alone and not (reading.launch.several or shares)
    whole = _number(text := batch or special.get("unclear_batch", ""))
    stages = _number(draft.texts.get("pipeline_parallel", ("", ""))[1])
    if staged := reading.family.name == "torchtitan" and stages > 1:  # which cuts its batch
        special["micro"] = special.get("staged_micro", "1")
    if micro := special.get("micro"):
        draft.say("batch_size", micro)
        if text and not {"grad_accum", "global_batch_size"} & draft.texts.keys():
            if (one_gpu or staged) and whole and (part := _number(micro)) and whole % part == 0:
                draft.say("grad_accum", str(whole // part))
            else:
                draft.ask(f"batches {micro[:20]!r} and {text[:20]!r}", "grad_accum")
    elif whole and (whole == 1 or (one_gpu and whole < steps)):  # no GPU has less
        draft.say("batch_size", text)
    if shared := special.get("shared_accum"):  # micro-steps of all GPUs together
        if samples := _number(batch) * _number(shared):
            draft.say("global_batch_size", str(samples))
        else:
            draft.ask("micro-steps shared by all GPUs", "grad_accum")
    if "unclear_batch" in special and not {"batch_size", "global_batch_size"} & set(draft.texts):
        shown = f"batch {special['unclear_batch'][:20]!r} may be of one GPU or of all"
        draft.ask(shown, "batch_size", "batch_size or global_batch_size")


def _number(text: str) -> int:
    """A whole number; 0 where the text is none."""
    return int(text) if text.isdecimal() else 0


def _check_model(reading: _Reading) -> None:
    """A network that reads something else than is said, or that other weights are named for."""
    draft, special = reading.draft, reading.special
    stem = flags().patterns["weights"].sub("", PurePosixPath(special.get("weights", "")).name)
    names = reading.family.name == "yolov5" and "config" not in reading.said_by
    place = stem if names else special.get("model_path", "")
    if "model" not in draft.texts and find_entry(place):
        draft.say("model", place)
    model = draft.texts.get("model", ("", ""))[1]
    if (entry := find_entry(model)) is None:
        return
    parts = ["source_len", "target_len"][: 1 if entry.family in listed("encoders") else 2]
    lengths = [special.get(part, "") for part in parts]  # a decoder alone reads both
    if "source_len" in special and "seq_len" not in draft.texts:
        if all(map(str.isdigit, lengths)):
            draft.say("seq_len", str(sum(map(int, lengths))))
        else:
            draft.ask(f"a source of {lengths[0][:20]!r} tokens is not all that is read", "seq_len")
    if stem and (other := find_entry(stem)) is not None and other.name != entry.name:
        draft.dispute(f"weights {stem[:40]!r} are not those of {entry.name}", "model")
    frames = draft.pairs.get("variant", {}).get("frames")
    sizes = {str(entry.architecture.get(name)) for name in _SIZES}.union(re.findall(r"\d+", model))
    own = (special.get(key, "") for key in ("own_layers", "own_hidden"))
    if frames and not understood_variant(entry, (("frames", frames),)):
        other_one = "reads no frames of videos, as this program does"
    elif entry.image_size and flags().patterns["sounds"].search(" ".join(reading.launch.told)):
        other_one = "reads no sound, as this program does"
    elif any(size.isdigit() and size not in sizes for size in own):
        other_one = "has not the layers or the width that are stated beside it"
    else:
        return
    del draft.texts["model"]
    draft.dispute(f"{model[:40]} {other_one}", "model")


def _read_kind(reading: _Reading) -> None:
    """Adapters, 4-bit weights, frozen parts and objectives as options; what is off says nothing."""
    program, special = reading.launch.program, reading.special
    told = {key: word for key in _SWITCHED if (word := special.get(key, "off").lower()) not in OFF}
    adapters, bits = told.get("adapters", ""), told.get("quantised", "").removesuffix("bit")
    names = flags().patterns
    kinds = names["lora"].findall(f"{program} {special.get('recipe', '').lower()}")
    if kinds and special.get("adapters", "on").lower() not in OFF:
        adapters, bits = adapters or "on", bits or ("4" if "q" in kinds else "")
    key, model = reading.draft.texts.get("model", ("", ""))
    if frozen := names["frozen_bits"].search(model):
        reading.draft.texts["model"] = key, model[: frozen.start()]
        bits = frozen[1] or frozen[2] or "4"
    stage = told.get("objective", "")
    if names["views"].search(f"{reading.launch.directory}/{program}/{stage}".lower()):
        why = "self-supervised views, passages, controls, adversaries, teachers, PPO are not priced"
        reading.draft.dispute(why, "model")
        reading.draft.texts.pop("model", None)
    options = {}
    if adapters:
        options["lora"] = "on"
        if adapters.isdigit() and adapters != "1":
            options["lora_rank"] = adapters
    if bits in ON or bits in ("4", "8"):
        options |= {"quantized_base": f"{4 if bits in ON else bits}bit", "lora": "on"}
    elif special.get("adapters", "on").lower() in OFF:  # what they would be is nothing
        reading.draft.pairs.get("options", {}).pop("lora_targets", None)
    ours = "finetuning" in special or program in reading.family.programs
    if "lora" in options and reading.family.adapts and ours and "lora_targets" not in special:
        told_so = reading.draft.pairs.setdefault("options", {})
        told_so.setdefault("lora_targets", reading.family.adapts)
    if "distilled" in told:
        options["objective"] = "distillation"
    elif pairs := names["preference"].search(stage or program.lower()):
        if pairs[1] and reading.family.name in listed("rewarded") and "objective" not in told:
            reading.draft.dispute("rewards may be of pairs or of single samples", "options")
        else:
            options["objective"] = "preference"
    if "start_epoch" not in special and not names["anew"].search(told.get("resumed", "-1")):
        options["resumed"] = "on"
    if told.get("evaluation") == "epoch":
        options["evaluation"] = "each_epoch"
    several = adapters or "frozen_part" in special  # that of two bodies is not all
    if "frozen_part" in told or ("frozen" in told and several):
        options["frozen"] = "part"
    elif "frozen" in told or names["probe"].search(program.lower()):
        options["frozen"] = "backbone"
    for name, value in options.items():
        reading.draft.pair("options", name, value)


def _read_length(reading: _Reading) -> None:
    texts = reading.draft.texts
    if flags().patterns["again"].match(program := reading.launch.program):
        reading.draft.ask(f"{program} trains more than once", "steps", _WHOLE)
    whole = _number(texts.get("epochs", ("", ""))[1])
    if whole and (done := _number(reading.special.get("start_epoch", ""))):
        texts["epochs"] = "epochs", str(whole - done)
        if whole <= done:
            reading.draft.dispute(f"nothing is left of {whole} epochs", "epochs")
    if any(problem.field in LENGTHS for problem in reading.draft.problems):
        for name in LENGTHS:
            texts.pop(name, None)
    elif reading.family.prefers and set(LENGTHS) <= set(texts):
        del texts[next(name for name in LENGTHS if name != reading.family.prefers)]


def _read_dataset(draft: Draft, told: Mapping[str, str], words: Sequence[str]) -> None:
    """Take the data set that the flags in ``told`` or a directory among ``words`` name.

    A name that is not known, and a part of a data set, are a problem: nothing stands in for them.
    """
    name, part, hint = (told.get(key, "") for key in ("dataset", "dataset_part", "dataset_hint"))
    if re.fullmatch(r"([^,#]+#\d+(,|$))+", name):  # so many of each: ms-swift's NAME#500
        draft.say("dataset_size", str(sum(map(int, re.findall(r"#(\d+)", name)))))
        return
    whole = f"{name.rpartition('/')[2]}-{part}"  # the most exact first: a part, a data set, a task
    placed, elsewhere = _of_paths(told.get("dataset_path"), words)
    exact = (part, whole, name, hint) if name else ("" if elsewhere else hint,)  # its own data
    found = next(filter(None, map(find_dataset, filter(None, exact))), None)
    unknown = None if found else told.get("dataset")
    if found is None and unknown is None:
        found, unknown = placed, elsewhere
    elif found and placed and found != placed:
        draft.dispute(f"data set {found.name} at a place of {placed.name}", "dataset")
    size = draft.texts.get("dataset_size", ("", ""))[1]
    if found is not None and size.isdigit() and int(size) > (found.samples or int(size)):
        del draft.texts["dataset_size"]
    elif size:
        return
    if "dataset_share" in told:
        draft.ask("a part of the data is trained on", "dataset", "dataset_size")
    elif told.get("packed", "off").lower() not in OFF and (found is None or found.samples):
        draft.ask("samples are packed into sequences", "dataset", "steps or dataset_size")
    elif found is not None:
        draft.say("dataset", found.name)
        classes = told.get("classes", "")
        if found.classes is not None and classes.isdigit() and int(classes) != found.classes:
            draft.dispute(f"{found.name} has {found.classes} classes and not {classes}", "dataset")
    elif unknown and "epochs" in draft.texts:
        shown = re.sub("^.+(?=.{37}$)", "...", unknown.replace(UNKNOWN, "?"), flags=re.S)
        draft.ask(f"data set {shown!r} is not known", "dataset", "dataset_size")


def _of_paths(path: str | None, words: Sequence[str]) -> tuple[DataSet | None, str | None]:
    """The data set a directory is named for, or its name where that says something else."""
    if path is not None:
        found = find_dataset(_data_name(path))
        told_of = found and found.classes and path.endswith((".json", ".jsonl"))  # its images
        return None if told_of else found, path if _data_name(path.replace(UNKNOWN, "")) else None
    paths = (w for w in words if "/" in w and w[0] in f"/.~{UNKNOWN}")
    return next(filter(None, map(find_dataset, map(_data_name, paths))), None), None


def _data_name(path: str) -> str:
    """The part of a path that names its data; empty where none does."""
    patterns = flags().patterns
    for part in reversed(PurePosixPath(path).parts):
        stem = patterns["tokenised"].sub("", patterns["file_ends"].sub("", part))
        if UNKNOWN in stem:
            return ""
        if stem.lower() not in listed("data_directories") and re.search("[A-Za-z]", stem):
            return stem
    return ""
