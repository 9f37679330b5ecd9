"""The systemd unit, as it goes to one machine."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from ..errors import InstallError

SERVICE = "precision-time-slurm.service"


def shipped() -> str:
    """The unit of this release, with the paths of a packaged installation."""
    folder = resources.files("slurm_plugin") / "systemd"
    return (folder / SERVICE).read_text(encoding="utf-8")


def unit(
    user: str, *, slurm_conf: Path, program: Path, config: Path, home: Path, socket: Path
) -> str:
    """The unit for this Python, SlurmUser and slurm.conf.

    A socket below ``/run`` gets its directory from systemd; ``home`` becomes writable.
    """
    text = shipped()
    text = _set(text, "User", user)
    text = _set(text, "ExecStart", f"{_word(program)} slurm daemon --config {_word(config)}")
    environment = {"PRECISION_TIME_HOME": str(home), "SLURM_CONF": str(slurm_conf)}
    lines = "\n".join(f"Environment={_word(f'{k}={v}')}" for k, v in environment.items())
    text = _replaced(text, "Environment", lines)
    if socket.parent.parent == Path("/run"):
        text = _set(text, "RuntimeDirectory", socket.parent.name)
    else:
        text = _replaced(text, "RuntimeDirectoryMode", f"ReadWritePaths={_word(socket.parent)}")
    if home.parent == Path("/var/lib"):
        return _set(text, "StateDirectory", home.name)
    return _replaced(text, "StateDirectory", f"ReadWritePaths={_word(home)}")


def _set(text: str, key: str, value: str) -> str:
    return _replaced(text, key, f"{key}={value}")


def _replaced(text: str, key: str, line: str) -> str:
    text, count = re.subn(rf"^{key}=.*$", lambda _: line, text, flags=re.M)
    if count != 1:
        raise InstallError(f"{SERVICE} of this release has no single line {key}=")
    return text


def _word(value: object) -> str:
    """A word of a unit file: ``%`` doubled, blanks in quotes."""
    text = str(value).replace("\\", "\\\\").replace("%", "%%").replace('"', '\\"')
    return f'"{text}"' if re.search(r"\s", text) else text
