"""slurm.conf as text: what it says of job submit plugins, and the one line we change in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import InstallError

PARAMETER = "JobSubmitPlugins"
PLUGIN = "lua"
_VALUE = r'"[^"]*"|[^\s"]*'


@dataclass(frozen=True, slots=True)
class ConfSetting:
    """One ``key=value`` of a file; ``start`` and ``end`` bound the value in its text."""

    value: str
    line: int
    start: int
    end: int

    @property
    def plugins(self) -> tuple[str, ...]:
        """The value as names of job submit plugins, without ``job_submit/``."""
        return plugin_names(self.value)


def plugin_names(value: str) -> tuple[str, ...]:
    """The names of a list of job submit plugins, without ``job_submit/``."""
    names = (name.strip().removeprefix("job_submit/") for name in value.split(","))
    return tuple(name for name in names if name and name != "(null)")


def settings(text: str, parameter: str) -> tuple[ConfSetting, ...]:
    """Every mention of a parameter, in order; Slurm takes the last. Comments do not count."""
    pattern = re.compile(rf"(?:^|(?<=\s)){parameter}[ \t]*=[ \t]*({_VALUE})", re.I | re.M)
    return tuple(
        ConfSetting(
            value=match[1].strip('"'),
            line=text.count("\n", 0, match.start()) + 1,
            start=match.start(1),
            end=match.end(1),
        )
        for match in pattern.finditer(_without_comments(text))
    )


def value(text: str, parameter: str) -> str | None:
    """What Slurm takes for a parameter of this file, None where it is not set here."""
    found = settings(text, parameter)
    return found[-1].value if found else None


def names_lua(path: Path, text: str) -> bool:
    """True where slurm.conf, or a file it includes, names the Lua plugin."""
    included = included_setting(path, text)
    found = [*settings(text, PARAMETER)[-1:], *([included[1]] if included else [])]
    return any(PLUGIN in setting.plugins for setting in found)


def activated(path: Path, text: str) -> str:
    """The text of slurm.conf that makes slurmctld load the Lua plugin.

    Raises InstallError where an included file sets the parameter without it, for that is not ours
    to change, and where the parameter is set more than once.
    """
    included = included_setting(path, text)
    if included is None:
        return with_plugin(text, str(path))
    name, setting = included
    if PLUGIN in setting.plugins:
        return text
    raise InstallError(
        f"{PARAMETER} is set in {name}, line {setting.line}, which {path} includes: add "
        f"{PLUGIN} to it there ({PARAMETER}={','.join([*setting.plugins, PLUGIN])})"
    )


def with_plugin(text: str, origin: str) -> str:
    """The text with ``lua`` among the job submit plugins, the same text where it is already.

    Only the one line changes. Raises InstallError where the parameter is set more than once.
    """
    found = settings(text, PARAMETER)
    if found and PLUGIN in found[-1].plugins:
        return text
    if len(found) > 1:
        lines = ", ".join(str(setting.line) for setting in found)
        raise InstallError(
            f"{origin}: {PARAMETER} is set on lines {lines}, and Slurm takes the last: keep one"
        )
    if found:
        plugins = _names(found[0].value)
        return text[: found[0].start] + ",".join([*plugins, PLUGIN]) + text[found[0].end :]
    return _closed(text) + f"{PARAMETER}={PLUGIN}\n"


def without_plugin(text: str, original: str | None) -> str | None:
    """The text with our line as it was in ``original``, all other lines kept.

    ``original`` is the file before installation. None where the line was changed since.
    """
    found = settings(text, PARAMETER)
    before = settings(original or "", PARAMETER)
    if len(found) != 1 or len(before) > 1 or PLUGIN not in found[0].plugins:
        return None
    if before:
        if found[0].plugins != (*before[0].plugins, PLUGIN):
            return None
        return text[: found[0].start] + before[0].value + text[found[0].end :]
    line = f"{PARAMETER}={PLUGIN}\n"
    return text.replace(line, "", 1) if line in text.splitlines(keepends=True) else None


def included_setting(path: Path, text: str) -> tuple[Path, ConfSetting] | None:
    """The included file that sets the parameter, if one does."""
    for name in re.findall(r"^[ \t]*Include[ \t]+(\S+)", _without_comments(text), re.I | re.M):
        included = path.parent / name
        try:
            found = settings(included.read_text(errors="surrogateescape"), PARAMETER)
        except OSError:  # a pattern of the cluster's name, or a file only slurmctld can read
            continue
        if found:
            return included, found[-1]
    return None


def _names(value: str) -> list[str]:
    return [name for name in value.split(",") if name.strip() and name != "(null)"]


def _without_comments(text: str) -> str:
    """The text with comments blanked, all places kept; an escaped ``#`` starts none."""
    return re.sub(r"(?<!\\)#[^\n]*", lambda match: " " * len(match[0]), text)


def _closed(text: str) -> str:
    """The text ended by a line of its own, also behind a continued last line."""
    if not text or text.endswith("\n"):
        return text + ("\n" if text.endswith("\\\n") else "")
    return text + ("\n\n" if text.endswith("\\") else "\n")
