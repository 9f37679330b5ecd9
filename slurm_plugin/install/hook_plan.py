"""The Lua files of an installation, tried before they go where slurmctld looks."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import InstallError
from . import disk, hook, lua_library
from .hook import Place
from .options import Options
from .records import Records
from .site import Site
from .slurm_conf_plan import names_lua
from .steps import Kind, MakeDirectory, Step, WriteFile, digest


@dataclass(frozen=True, slots=True)
class HookPlan:
    """Steps and notes on the Lua files; ``activate`` where slurm.conf may name the plugin."""

    steps: tuple[Step, ...]
    notes: tuple[str, ...]
    activate: bool


def plan_hook(
    options: Options, site: Site, library: Path, records: Records, place: Place
) -> HookPlan:
    """The module files and ``job_submit.lua``; raises InstallError where Lua refuses them."""
    path = site.conf.parent / hook.SCRIPT
    before = disk.read(path)
    after = _script(options, site, records, place, path, before)
    notes = [*_try_all(options, site, library, path, before, after)]
    if after is None:
        notes.append(_by_hand(path, place))
    changed = [*_module_steps(options, place)]
    steps: list[Step] = list(changed)
    if after is not None and (after != before or changed):
        steps.append(WriteFile(path=path, kind=Kind.SCRIPT, before=before, after=after))
    return HookPlan(tuple(steps), tuple(notes), activate=after is not None)


def _script(
    options: Options, site: Site, records: Records, place: Place, path: Path, before: bytes | None
) -> bytes | None:
    """What ``job_submit.lua`` shall hold; None to leave a foreign one alone."""
    ours = hook.script(place).encode()
    record = records.of(path)
    if before is None or before == ours:
        return ours
    text = before.decode(errors="surrogateescape")
    if record is not None and record.before is None and record.after == digest(before):
        return ours
    if hook.mentions_us(text) and not hook.has_block(text):
        return before
    if not (options.chain or hook.has_block(text)):
        return None
    if not names_lua(site):
        raise InstallError(
            f"{path} is there, but slurm.conf does not use it: naming lua in JobSubmitPlugins "
            "would start that script too. Move it away, or name lua yourself, then run this again"
        )
    return hook.chained(text, place).encode(errors="surrogateescape")


def _module_steps(options: Options, place: Place) -> Iterator[Step]:
    directory = options.on_disk(place.modules)
    if not directory.exists():
        yield MakeDirectory(path=directory)
    for name, text in hook.modules().items():
        path = directory / name
        before = disk.read(path)
        if before != text.encode():
            yield WriteFile(path=path, kind=Kind.MODULE, before=before, after=text.encode())


def _try_all(
    options: Options,
    site: Site,
    library: Path,
    path: Path,
    before: bytes | None,
    after: bytes | None,
) -> Iterator[str]:
    """Run what would be live in the Lua of slurmctld; yields notes, raises InstallError."""
    content = after if after is not None else hook.shipped()[hook.SCRIPT].encode()
    tried = _try(site, library, content)
    if (
        tried.error
        and before is not None
        and content != before
        and _try(site, library, before).error
    ):
        raise InstallError(
            f"{path} does not run outside slurmctld ({tried.error}), so our lines cannot be tried: "
            "add them by hand, see docs/slurm.md"
        )
    if tried.error:
        raise InstallError(f"{library.name} refuses {hook.SCRIPT}: {tried.error}")
    if tried.socket:
        advice = lua_library.socket_advice(library, tried.socket)
        if options.live:
            raise InstallError(advice)
        yield advice


def _try(site: Site, library: Path, script: bytes) -> lua_library.Tried:
    modules = {name: text.encode() for name, text in hook.modules().items()}
    return try_files(site, library, script, modules)


def try_files(
    site: Site, library: Path, script: bytes, modules: Mapping[str, bytes]
) -> lua_library.Tried:
    """What a Lua library makes of a script and modules by file name, in a directory of their own.

    Runs as the SlurmUser, so the directory is readable by all.
    """
    with tempfile.TemporaryDirectory(prefix="precision-time-lua-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        for file, content in {**modules, hook.SCRIPT: script}.items():
            (directory / file).write_bytes(content)
            (directory / file).chmod(0o644)
        staged = {Path(file).stem: directory / file for file in modules}
        return lua_library.try_script(library, directory / hook.SCRIPT, staged, site.user)


def _by_hand(path: Path, place: Place) -> str:
    return (
        f"{path} is your own and stays as it is. Add these two lines, or use --chain:\n"
        f"{hook.two_lines(place)}"
    )
