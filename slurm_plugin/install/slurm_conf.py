"""slurm.conf as text: the one line that names the job submit plugins."""

from __future__ import annotations

import re

from ..errors import InstallError

PARAMETER = "JobSubmitPlugins"
PLUGIN = "lua"
LINE = f"{PARAMETER}={PLUGIN}"
_SETTING = re.compile(rf'^[ \t]*{PARAMETER}[ \t]*=[ \t]*("[^"\n]*"|[^\s"#]*)', re.I | re.M)


def plugin_names(value: str) -> tuple[str, ...]:
    """The names of a list of job submit plugins, without ``job_submit/``."""
    names = (name.strip().removeprefix("job_submit/") for name in value.strip('"').split(","))
    return tuple(name for name in names if name and name != "(null)")


def plugins(text: str) -> tuple[str, ...]:
    """The job submit plugins that a slurm.conf names."""
    found = _SETTING.findall(text)
    return plugin_names(found[-1]) if found else ()


def with_lua(text: str, origin: str) -> str:
    """The text with ``lua`` among the job submit plugins; only that line changes.

    Raises InstallError where the parameter is set more than once.
    """
    found = list(_SETTING.finditer(text))
    if PLUGIN in plugins(text):
        return text
    if len(found) > 1:
        raise InstallError(f"{origin}: {PARAMETER} is set {len(found)} times: keep one")
    if found:
        return _with_value(text, found[0], (*plugin_names(found[0][1]), PLUGIN))
    # A backslash at the very end would draw our line into the one before.
    ended = re.sub(r"([^\n])\Z", r"\1\n", text)
    return ended + ("\n" if ended.endswith("\\\n") else "") + f"{LINE}\n"


def without_lua(text: str) -> str:
    """The text without ``lua`` among the job submit plugins; a line left without any goes."""
    for match in reversed(list(_SETTING.finditer(text))):
        left = tuple(name for name in plugin_names(match[1]) if name != PLUGIN)
        if left:
            text = _with_value(text, match, left)
        elif PLUGIN in plugin_names(match[1]):
            end = text.find("\n", match.end())
            text = text[: match.start()] + (text[end + 1 :] if end >= 0 else "")
    return text


def value(text: str, parameter: str) -> str | None:
    """What a file sets a parameter to, None where it does not."""
    found = re.findall(rf"^[ \t]*{parameter}[ \t]*=[ \t]*(\S+)", text, re.I | re.M)
    return found[-1] if found else None


def _with_value(text: str, match: re.Match[str], names: tuple[str, ...]) -> str:
    return text[: match.start(1)] + ",".join(names) + text[match.end(1) :]
