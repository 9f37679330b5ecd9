"""A launch together with the configuration files that it names, and what is told of the others."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product

from ..job.words import key_of
from .draft import SIGNALS, Draft
from .files import DEFAULTS, Files, called, resolved, settings_of
from .keys import FIELD_OF, OFF, ON
from .launch import FlagFamily, Launch, family_of, flag_of, flags, listed, said
from .shell_syntax import UNKNOWN
from .stated import BATCHES, DECISIVE, LENGTHS, NOTHING, SCRIPT, Stated

MAX_READ, LEAST_READ, MAX_BASES = 2**19, 2**14, 8  # bytes; a small file counts as more
_SHORT = ("--ds-config", "--ds-config-file")
_DEEPSPEED = frozenset(("--deepspeed", "--deepspeed-config", "--deepspeed-config-file", *_SHORT))
_GROUP = re.compile(r"^(?:(optional|override) )?([^@=\n]*)(?:@([^=\n]*))?=(.*)$", re.M)
_NAME = re.compile(r"[A-Za-z_][\w./@-]{0,79}", re.ASCII)
# Names whose meaning hangs on where they stand: elsewhere than we know them, they leave doubt.
_DECISIVE = frozenset(name for name, field in FIELD_OF.items() if field in DECISIVE)
MAX_FILES, MAX_MODULES, MAX_DOCUMENT = 3, 8, 32 * 1024
PYTHON_CONFIG = re.compile(r"(?:.*/)?configs?/.+\.py", re.ASCII)
LAUNCHER_FILE = "--config-file"  # of accelerate launch


@dataclass(frozen=True, slots=True)
class Configured:
    """A launch whose files' settings stand before the flags of its ``own``, which win.

    ``tables`` is what the configurations of DeepSpeed and Accelerate say, which flags win over
    too. ``unread`` may say what the time of the job follows from, ``sharding_unread`` how its state
    is shared; ``texts`` are that of what is launched and those of modules beside it.
    """

    launch: Launch
    own: Launch
    tables: Stated
    unread: tuple[Named, ...]
    launcher_unread: bool
    sharding_unread: bool
    texts: tuple[str, ...] = ()


def configured(launch: Launch, files: Files | None) -> Configured:
    """Read the files that a launch names; with no ``files`` all of them are unread."""
    family = family_of(launch)
    if files is None:
        named = list(dict.fromkeys(_named(launch, family, "")))
        unread = tuple(one for one in named if not one.agreed)
        shares = bool(_DEEPSPEED & {*launch.started, *(one.flag for one in named)})
        return Configured(launch, launch, NOTHING, unread, LAUNCHER_FILE in launch.started, shares)
    chosen = {name.lstrip("-+~"): value or "" for name, value, _ in said(launch.after)}
    added = (word.lstrip("+") for word in launch.after if word[:1] == "+" and "." not in word)
    reading = _Reading(files, chosen, "".join(f";optional {word}" for word in added))
    text = reading._read(posixpath.join(launch.directory, launch.program)) or ""
    named = list(dict.fromkeys(_named(launch, family, text)))
    read = {one: reading.settings(one.paths) for one in named if one.flag not in _DEEPSPEED}
    made = (t for s in read.values() for name, t in (s or {}).items() if name.endswith("_target_"))
    targets = "".join(f"\nimport {word.rpartition('.')[0]}" for word in made)
    modules = _modules(text + targets, (launch.directory, ""), files)
    texts = (text, *islice(modules, MAX_MODULES))
    words = (w for w in launch.after if w.lstrip("+").partition("=")[0] not in reading.groups)
    launch = replace(launch, after=tuple(words))
    own = (word for settings in read.values() for word in _words(settings or {}))
    whole = replace(launch, after=(*own, *launch.after))
    family, tables = family_of(whole), reading.tables(whole)
    told = (each for one, settings in read.items() for each in _unread(one, settings, family))
    left = (one for one in named if one.flag in _DEEPSPEED and one.paths[0] in reading.missing)
    unread = (*told, *(one for one in left if not one.agreed))
    whole = replace(whole, after=(*_called(launch, texts), *whole.after))
    family = family_of(whole)
    if not unread and UNKNOWN not in whole.after:
        usual = replace(whole, after=(*_usual(whole, family, texts), *whole.after))
        whole = usual if family_of(usual) is family else whole  # flags are evidence of one
    unshared = bool(reading.missing)
    return Configured(whole, launch, tables, unread, reading.launcher_unread, unshared, texts)


def _called(launch: Launch, texts: Sequence[str]) -> Iterator[str]:
    """What a program tells its only trainer or network, as flags: a value, or that of a flag."""
    whole = "\n".join(texts)
    again = flags().patterns["again_set"].findall(whole)
    for call in flags().calls.values():
        named = (t for t in texts if call["sign"] in t and call["needs"] in t)
        found = (told for text in named for told in called(call, text, whole))
        made = [told for told in found if call["needs"] in {"", *told}]
        for name, word in made[0].items() if len(made) == 1 else ():
            plain = launch.told.get(flag_of(f"--{word[1:]}"), UNKNOWN) if word[:1] == "." else word
            if UNKNOWN not in plain and name in listed("made") and name not in again:
                yield f"{call['prefix']}{name}={plain}"


def _usual(launch: Launch, family: FlagFamily, texts: Sequence[str]) -> Iterator[str]:
    """What its program's text takes for fields that no flag says, where it says one value once."""
    patterns, whole, found = flags().patterns, "\n".join(texts), dict[str, set[str]]()
    again = patterns["again_set"].findall(whole)
    others = (one for one in texts[1:] if "__main__" not in one or len(texts) == 2)
    text = next(filter(patterns["declares"].search, (texts[0], *others)), "")
    text = "" if patterns["settles"].search(whole) else text
    meant = {**family.values, **{flag: key for flag, (key, _) in family.switches.items()}}
    told = {_about(flag, meant) for flag in launch.told}
    typed = patterns["typed"].finditer(text if patterns["typed_by"].search(text) else "")
    for option in (*patterns["option"].finditer(text), *typed):
        named = re.findall(r"[\w-]+", option["names"])
        given = {flag_of(name if name[0] == "-" else f"--{name}") for name in named}
        flag = max(given & meant.keys(), key=len, default="")
        about, value = _about(flag, meant), (option["usual"] or "").strip("\"'")
        told |= {about} if given & launch.told.keys() else set()
        if about in listed("usual") and value.lower() not in listed("unset") | OFF:
            found.setdefault(about, set()).add(f"{flag}={value}")
    for word in (min(found[a]) for a in sorted(found.keys() - told) if len(found[a]) == 1):
        name = word.partition("=")[0].lstrip("-").replace("-", "_")
        if name not in again:
            yield word


def _about(flag: str, meant: Mapping[str, str]) -> str:
    """The field that a flag is about; both lengths are one, and all batches."""
    key = meant.get(flag, "")
    if key in SIGNALS or flags().patterns["precision"].search(flag.lstrip("-")):
        return "precision"
    about = flags().about.get(key, FIELD_OF.get(key, key.removesuffix("_path")))
    return next((both[0] for both in (LENGTHS, BATCHES) if about in both), about)


def _modules(text: str, roots: Sequence[str], files: Files) -> Iterator[str]:
    """The modules under ``roots`` that a program imports, with what their packages hand on."""
    for name in dict.fromkeys(map("".join, flags().patterns["imported"].findall(text))):
        places = (posixpath.join(root, name.replace(".", "/")) for root in roots)
        for place, end in product(places, (".py", "/__init__.py")):
            if (found := files(f"{place}{end}")) is not None:
                yield found
                yield from _modules(found, (place,), files) if end[0] == "/" else ()
                break


@dataclass(slots=True)
class _Reading:
    """Reads at most MAX_READ bytes, of whose settings the command has ``chosen`` or ``added`` some.

    ``groups`` are those of Hydra's that were found.
    """

    files: Files
    chosen: dict[str, str]
    added: str
    groups: set[str] = field(default_factory=set)
    left: int = MAX_READ
    missing: frozenset[str] = frozenset()
    launcher_unread: bool = False

    def settings(self, paths: Sequence[str]) -> dict[str, str] | None:
        """The settings of the first path that is a file, with those it builds on."""
        found = (self._based(path, MAX_BASES) for path in paths)
        settings = next((settings for settings in found if settings is not None), None)
        return None if settings is None else resolved(settings, self.chosen)

    def tables(self, whole: Launch) -> Stated:
        """The DeepSpeed configurations that the launch or its files name, over Accelerate's."""
        joined = Stated()
        for flag, path in {**whole.started, **whole.told}.items():
            if flag in _DEEPSPEED and path[:1] not in ("", "-"):
                joined = joined.completed(self._deepspeed(path))
        if (launcher := whole.started.get(LAUNCHER_FILE)) is None:
            return joined
        settings = settings_of(launcher, self._read(launcher) or "")
        self.launcher_unread = settings is None
        if settings is None:
            return joined
        own = _table(settings, flags().accelerate) or Stated()
        named = settings.get("deepspeed_config.deepspeed_config_file")
        return joined.completed(own if named is None else own.completed(self._deepspeed(named)))

    def _deepspeed(self, path: str) -> Stated:
        text = self._read(path)
        self.missing |= {path} if text is None else set()
        return deepspeed_stated(text or "") or Stated()

    def _based(self, path: str, depth: int) -> dict[str, str] | None:
        text = self._read(path)
        settings = None if text is None or not depth else settings_of(path, text)
        if settings is None:
            return None
        merged: dict[str, str] = {}
        bases = ";".join(settings.get(name, "") for name in ("_base_", "_BASE_")).split(";")
        for base in filter(None, bases):
            found = self._based(posixpath.join(posixpath.dirname(path), base), depth - 1)
            if found is None:
                return None
            merged |= found
        if DEFAULTS in settings:
            settings[DEFAULTS] += self.added
            return self._composed(posixpath.dirname(path), "", "", settings, depth)
        return merged | settings

    def _composed(
        self, root: str, group: str, package: str, settings: Mapping[str, str], depth: int
    ) -> dict[str, str]:
        """Settings with those of the groups that they list; ``defaults`` tells of an unread one.

        A group's file lies in its folder under ``root``, and what it says stands behind its name or
        ``@package``. The last is read first: it may choose for others (hydra.cc, Defaults List).
        """
        place = package or settings.get("@package") or group.replace("/", ".")
        prefix = "" if place in ("", "_global_") else f"{place}."
        own = {f"{prefix}{n}": t for n, t in settings.items() if n not in (DEFAULTS, "@package")}
        entries = _GROUP.findall(settings.get(DEFAULTS, "").replace(";", "\n"))
        entries += [] if any(e[-1] == "_self_" for e in entries) else [("", "", "", "_self_")]
        parts: list[dict[str, str]] = []
        for kind, name, behind, listed_one in reversed(entries):
            inner = posixpath.join(group, name).strip("/")
            choice = self.chosen.get(inner, listed_one) if name else listed_one
            path = posixpath.join(root, inner, f"{choice.removesuffix('.yaml')}.yaml")
            if choice == "_self_":
                parts.append(own)
            elif kind == "override":
                self.chosen.setdefault(inner, choice)
            elif choice not in ("", "None", "null") and not inner.startswith("hydra"):
                text = self._read(path)
                told = None if text is None or not depth else settings_of(path, f"{text}\n")
                if told is not None:
                    self.groups |= {inner} if name else set()
                    parts.append(self._composed(root, inner, behind, told, depth - 1))
                elif kind != "optional" or "[" in choice:  # several at once
                    parts.append({DEFAULTS: inner})
        merged = {name: word for part in reversed(parts) for name, word in part.items()}
        return {DEFAULTS: merged[DEFAULTS]} if DEFAULTS in merged else merged

    def _read(self, path: str) -> str | None:
        if self.left <= 0 or not path or UNKNOWN in path:
            return None
        text = self.files(path)
        self.left -= max(LEAST_READ, len(text or ""))
        return text


def _words(settings: Mapping[str, str]) -> Iterator[str]:
    """Settings as the flags that would say the same: dotted ones are those of Hydra and yacs."""
    for name, text in settings.items():
        if _NAME.fullmatch(name):
            yield f"{name}={text}" if "." in name else f"--{name}={text}"


def plain_names(said_so: Sequence[tuple[str, str | None]], family: FlagFamily) -> Mapping[str, str]:
    """By the name of each setting the flag that it is, where it stands in plain sections.

    One that stands in two sections with two values keeps its name.
    """
    plain = {name: _plain_name(name, family) for name, _ in said_so}
    meant = {name: family.values.get(flag_of(f"--{flag}"), flag) for name, flag in plain.items()}
    values: dict[str, set[str | None]] = {}
    for name, text in dict(said_so).items():  # the last of a name holds
        values.setdefault(meant[name], set()).add(text)
    return {n: flag if len(values[meant[n]]) == 1 else n for n, flag in plain.items()}


def _plain_name(name: str, family: FlagFamily) -> str:
    """The flag that a setting in plain sections is, else its own name."""
    *sections, leaf = flag_of(f"--{name}").lstrip("-").split(".")
    table = flags()
    if not sections or flag_of(name) in family.values or not set(sections) <= listed("sections"):
        return name
    if leaf in ("name", "type", "arch") and sections[-1] in table.named_sections:
        return table.named_sections[sections[-1]].lstrip("-")
    known = f"--{leaf}" in family.values or f"--{leaf}" in family.switches
    return leaf if known else name


def _unread(
    named: Named, settings: Mapping[str, str] | None, family: FlagFamily
) -> Iterator[Named]:
    """The file where it is unread, or each of its settings that may mean more than we know."""
    if named.agreed:
        return
    if settings is None:
        yield named
    elif DEFAULTS in settings:
        yield replace(named, shown=f"{named.shown}: {DEFAULTS}")
    for name, plain in plain_names(tuple((settings or {}).items()), family).items():
        flag = flag_of(name if "." in plain else f"--{plain}")
        known = flag in {**family.values, **family.switches}
        apart = known or flags().patterns["apart"].search(name)
        if key_of(name.rpartition(".")[2]) in _DECISIVE and not apart:
            yield replace(named, shown=f"{named.shown}: {name[:60]}")


@dataclass(frozen=True, slots=True)
class Named:
    """A file that a command names: by ``flag``, empty where it stands alone.

    ``paths`` are where it may be, the first that is there counts. What an ``agreed`` one says of
    the time of the job the flags must say too, or its name does.
    """

    flag: str
    paths: tuple[str, ...]
    shown: str
    agreed: bool = False


def tell_files(found: Configured, draft: Draft) -> None:
    """Add a problem where files may say what the time of the job follows from."""
    if found.unread:
        shown = ", ".join(list(dict.fromkeys(one.shown for one in found.unread))[:MAX_FILES])
        needed = "model, precision, batch_size, and epochs or steps in --comment"
        draft.problem(f"{shown} is not read; {needed} would tell what it may set", "file")
    if found.launcher_unread and not {"precision", *SIGNALS} & {*draft.texts, *draft.signals}:
        words = "the launcher's file is not read; precision in --comment would tell what it may set"
        draft.problem(words, "precision", unread=True)
    if (found.sharding_unread or found.launcher_unread) and "sharding" not in draft.texts:
        words = "the file of DeepSpeed or the launcher is not read; zero in --comment tells a stage"
        draft.problem(words, "sharding", unread=True)


def _named(launch: Launch, family: FlagFamily, program: str) -> Iterator[Named]:
    """The files that flags, words and the text of the ``program`` name."""
    values = [(n, v if v is not None else next(iter(f), "")) for n, v, f in said(launch.after)]
    where = next((text for name, text in values if flag_of(name) in listed("hydra_paths")), None)
    named = any(flag_of(name) in listed("hydra_names") for name, _ in values)
    if (main := flags().patterns["hydra"].search(program)) is not None:
        where = main["path"] if where is None else where
        values += [] if named or main["name"] is None else [("--config-name", main["name"])]
    for name, text in values:
        flag, shown = flag_of(name), f"{name[:40]} {text[:40]}"
        kind = family.values.get(flag)
        named_so = flags().patterns["config_flag"].match(flag) and is_config(text)
        if kind not in ("file", "agreed", "config", "recipe") and not named_so:
            continue
        if text.startswith("-") or key_of(text) in ON | OFF:
            continue
        if flag in listed("hydra_names"):  # where Hydra looks, beside the program or here
            file = text if is_config(text) else f"{text}.yaml"
            roots = (f"{launch.directory}/", "") if launch.directory else ("",)
            folders = product(roots, ("conf", "config", "configs") if where is None else (where,))
            places = (folder if folder[:1] == "/" else root + folder for root, folder in folders)
            yield Named(flag, tuple(f"{place}/{file}" for place in places), shown)
        elif not (flag in listed("hydra_paths") and named):
            by_name = kind == "config" or (kind == "recipe" and not named_so)
            yield Named(flag, (text,), shown, kind == "agreed" or by_name)
    for word in launch.after if family.configs else launch.free:
        if PYTHON_CONFIG.fullmatch(word) or (is_config(word) and not family.configs):
            yield Named("", (word,), word[-40:], family.configs)


def is_config(word: str) -> bool:
    """Whether a word ends as the name of a configuration does."""
    return word.lower().endswith(tuple(listed("config_ends")))


def deepspeed_stated(document: str) -> Stated | None:
    """What a text says if it is a DeepSpeed configuration, or None."""
    if "{" not in document or len(document) > MAX_DOCUMENT:
        return None
    settings = settings_of("ds.json", document.replace(UNKNOWN, "null"))
    return None if settings is None else _table(settings, flags().deepspeed)


def _table(settings: Mapping[str, str], table: Mapping[str, str]) -> Stated | None:
    draft = Draft(SCRIPT)
    for name, key in table.items():
        text = settings.get(name, "").strip()
        off = ("", "auto", "null", *(OFF if key in SIGNALS or "reshard" in name else ()))
        if text.lower() not in off and "." in key:
            draft.pair(key.partition(".")[0], key.partition(".")[2], text[:40])
        elif text.lower() not in off:
            draft.say("global_batch_size" if key == "total_batch" else key, text[:40])
    return draft.stated() if draft.texts or draft.signals or draft.pairs else None
