"""A launch together with the configuration files that it names."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from .config_files import Named, launcher_file, named_files
from .config_tables import accelerate_stated, completed, deepspeed_stated
from .config_values import settings_of
from .files import Files
from .flags import FlagFamily, flag_of, flags
from .keys import FIELD_OF, key_of
from .launch import Launch, family_of, said
from .shell import UNKNOWN
from .stated import DECISIVE, Stated

MAX_READ = 8
MAX_BASES = 8
_DEEPSPEED = frozenset(("--deepspeed", "--deepspeed-config"))
_BASES = ("_base_", "_BASE_")
_DEFAULTS = "defaults"  # of Hydra: files put together by a search path that we do not know
_NAME = re.compile(r"[A-Za-z_][\w./@-]{0,79}", re.ASCII)
# What is of an evaluation, by a word of its name, changes no training.
_OTHER_WORK = re.compile(r"(?:^|[._-])(?:eval|val|valid|validation|test|predict|infer)", re.ASCII)
# Names whose meaning hangs on where they stand: elsewhere than we know them, they leave doubt.
_DECISIVE = frozenset(name for name, field in FIELD_OF.items() if field in DECISIVE)


@dataclass(frozen=True, slots=True)
class Configured:
    """A launch whose files' settings stand before its own flags, which win.

    ``tables`` is what the configurations of DeepSpeed and Accelerate say, which flags win over
    too. ``unread`` may say what the time of the job follows from.
    """

    launch: Launch
    tables: Stated
    unread: tuple[Named, ...]
    launcher_unread: bool


def configured(launch: Launch, files: Files | None, origin: str) -> Configured:
    """Read the files that a launch names; with no ``files`` all of them are unread."""
    named = named_files(launch, family_of(launch))
    if files is None:
        unread = tuple(one for one in named if not one.agreed)
        return Configured(launch, Stated(), unread, launcher_file(launch) is not None)
    reading = _Reading(files, origin)
    read = [(one, None if _of_deepspeed(one) else reading.settings(one)) for one in named]
    own = replace(launch, after=(*(w for _, settings in read for w in _words(settings or {})),))
    family = family_of(replace(own, after=(*own.after, *launch.after)))
    read = [(one, None if s is None else _flattened(s, family)) for one, s in read]
    words = tuple(word for _, settings in read for word in _words(settings or {}))
    whole = replace(launch, after=(*words, *launch.after))
    tables = reading.tables(whole)
    unread = tuple(
        told
        for one, settings in read
        if not _of_deepspeed(one)
        for told in _unread(one, settings, family)
    )
    missing = tuple(one for one in named if _of_deepspeed(one) and one.paths[0] in reading.missing)
    left = tuple(one for one in missing if not one.agreed)
    return Configured(whole, tables, (*unread, *left), reading.launcher_unread)


@dataclass(slots=True)
class _Reading:
    """Reads at most MAX_READ files."""

    files: Files
    origin: str
    left: int = MAX_READ
    missing: frozenset[str] = frozenset()
    launcher_unread: bool = False

    def settings(self, named: Named) -> dict[str, str] | None:
        """The settings of the first path that is a file, with those it builds on."""
        found = (self._based(path, MAX_BASES) for path in named.paths)
        return next((settings for settings in found if settings is not None), None)

    def tables(self, whole: Launch) -> Stated:
        """The DeepSpeed configurations that the launch or its files name, over Accelerate's."""
        joined = Stated()
        for name, value, following in said(whole.after):
            path = value if value is not None else next(iter(following), "")
            if flag_of(name) in _DEEPSPEED and path:
                joined = completed(joined, self._deepspeed(path))
        launcher = launcher_file(whole)
        if launcher is not None:
            joined = completed(joined, self._accelerate(launcher))
        return joined

    def _deepspeed(self, path: str) -> Stated:
        text = self._read(path)
        if text is None:
            self.missing |= {path}
            return Stated()
        return deepspeed_stated(text, self.origin) or Stated()

    def _accelerate(self, path: str) -> Stated:
        text = self._read(path)
        settings = None if text is None else settings_of(path, text)
        self.launcher_unread = settings is None
        if settings is None:
            return Stated()
        own = accelerate_stated(settings, self.origin) or Stated()
        named = settings.get("deepspeed_config.deepspeed_config_file")
        return own if named is None else completed(own, self._deepspeed(named))

    def _based(self, path: str, depth: int) -> dict[str, str] | None:
        text = self._read(path)
        settings = None if text is None or not depth else settings_of(path, text)
        if settings is None:
            return None
        merged: dict[str, str] = {}
        for base in _bases(settings):
            found = self._based(posixpath.join(posixpath.dirname(path), base), depth - 1)
            if found is None:
                return None
            merged |= found
        return merged | settings

    def _read(self, path: str) -> str | None:
        if self.left == 0 or not path or UNKNOWN in path:
            return None
        self.left -= 1
        return self.files.read(path)


def _of_deepspeed(named: Named) -> bool:
    return named.flag in _DEEPSPEED


def _bases(settings: Mapping[str, str]) -> Iterator[str]:
    for name in _BASES:
        yield from filter(None, settings.get(name, "").split(";"))


def _words(settings: Mapping[str, str]) -> Iterator[str]:
    """Settings as the flags that would say the same: dotted ones are those of Hydra and yacs."""
    for name, text in settings.items():
        if _NAME.fullmatch(name):
            yield f"{name}={text}" if "." in name else f"--{name}={text}"


def _flattened(settings: Mapping[str, str], family: FlagFamily) -> dict[str, str]:
    """Settings with those of plain sections under the name of the flag that means the same.

    One that stands in two sections with two values stays where it is.
    """
    found: dict[str, str] = {}
    meant: dict[str, set[str]] = {}
    for name, text in settings.items():
        plain = _plain_name(name, family)
        meant.setdefault(family.values.get(flag_of(f"--{plain}"), plain), set()).add(text)
    for name, text in settings.items():
        plain = _plain_name(name, family)
        key = family.values.get(flag_of(f"--{plain}"), plain)
        found[plain if len(meant[key]) == 1 else name] = text
    return found


def _plain_name(name: str, family: FlagFamily) -> str:
    """The flag that a setting in plain sections is, else its own name."""
    *sections, leaf = flag_of(f"--{name}").lstrip("-").split(".")
    table = flags()
    if not sections or flag_of(name) in family.values or not set(sections) <= table.sections:
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
    elif _DEFAULTS in settings:
        yield replace(named, shown=f"{named.shown}: {_DEFAULTS}")
    for name in settings or ():
        flag = flag_of(name if "." in name else f"--{name}")
        known = flag in family.values or flag in family.switches or _OTHER_WORK.search(name)
        if key_of(name.rpartition(".")[2]) in _DECISIVE and not known:
            yield replace(named, shown=f"{named.shown}: {name[:60]}")
