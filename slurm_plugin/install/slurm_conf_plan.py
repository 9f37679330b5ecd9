"""The step that makes slurmctld call the hook."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import InstallError
from . import disk, slurm_conf
from .options import Options
from .site import Site
from .slurm_conf import PARAMETER, PLUGIN
from .steps import AwaitController, Command, Kind, Step, WriteFile


def names_lua(site: Site) -> bool:
    """True where slurm.conf, or a file it includes, names the Lua plugin.

    Raises InstallError where an included file sets the parameter without it.
    """
    text = conf_text(site)
    included = slurm_conf.included_setting(site.conf, text)
    if included is None:
        found = slurm_conf.settings(text, PARAMETER)
        return bool(found) and PLUGIN in found[-1].plugins
    path, setting = included
    if PLUGIN in setting.plugins:
        return True
    raise InstallError(
        f"{PARAMETER} is set in {path}, line {setting.line}, which {site.conf} includes: add "
        f"{PLUGIN} to it there ({PARAMETER}={','.join([*setting.plugins, PLUGIN])})"
    )


def slurm_conf_steps(options: Options, site: Site, notes: list[str]) -> Iterator[Step]:
    """The edited line and the reload of slurmctld, each only where needed."""
    then = _reload(options, site, notes)
    if not names_lua(site):
        text = conf_text(site)
        after = slurm_conf.with_plugin(text, str(site.conf))
        yield WriteFile(
            path=site.conf,
            kind=Kind.SLURM_CONF,
            before=_bytes(text),
            after=_bytes(after),
            then=then,
        )
    elif site.running is not None and PLUGIN not in site.running and then is not None:
        yield then
    else:
        return
    if then is not None:
        yield controller(site)


def reload(site: Site) -> Command:
    """The command after which slurmctld has read slurm.conf again."""
    return Command(
        argv=(site.command("scontrol"), "reconfigure"),
        why="slurmctld reads slurm.conf again",
        environment=site.environment,
    )


def controller(site: Site) -> AwaitController:
    """Proof that slurmctld is still there."""
    return AwaitController(scontrol=site.command("scontrol"), environment=site.environment)


def conf_text(site: Site) -> str:
    """slurm.conf, every byte of it kept."""
    return (disk.read(site.conf) or b"").decode(errors="surrogateescape")


def _reload(options: Options, site: Site, notes: list[str]) -> Command | None:
    if not options.live:
        return None
    if not options.reconfigure:
        notes.append(f"run {reload(site)}")
        return None
    if site.running is None:
        notes.append("slurmctld does not answer: it will load the hook when it starts")
        return None
    return reload(site)


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
