"""`precision-time slurm decide`: what would be decided for a job, without submitting it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path

import click

from predictor.cli.console import format_option, show_json, warn
from predictor.cli.options import listed_options, predictor, together
from predictor.errors import JobError
from profiles.storage import shipped_yaml

from ..cluster import Cluster
from ..config import SlurmPolicy, policy_at, rules_of
from ..errors import SlurmError, SourceError
from ..protocol import HookAnswer, HookRequest, ask
from ..sources.words import minutes
from . import config_option

OURS = "PRECISION_TIME"
MAX_SCRIPT_CHARS = 64 * 1024


# Those of sbatch's options that a decision depends on.
_sbatch_options = together(
    *(
        click.option(*flags.split("/"), name, help=text)
        for flags, name, text in shipped_yaml("sbatch.yaml", __file__)
    )
)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@listed_options("decide")
@_sbatch_options
@click.option("--user", help="Whose job it would be.  [default: this user]")
@config_option
@click.option("--local", is_flag=True, help="Decide in this process, without the daemon.")
@format_option
@click.pass_context
def decide(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    script: Path | None,
    user: str | None,
    config: Path | None,
    local: bool,
    form: str,
    **options: str | None,
) -> None:
    """Ask what would be decided for a job, without submitting it.

    Takes the options of sbatch that matter, and a script or a COMMAND. The running daemon is
    asked, which takes root or SlurmUser; anybody may use --local.
    """
    from predictor.identify.identify import sbatch_options

    text = script.read_text(errors="replace") if script is not None else None
    in_script = sbatch_options(text or "")
    stated: dict[str, str | None] = {
        str(option.name): in_script[flag.removeprefix("--")]
        for option in ctx.command.params
        for flag in option.opts
        if flag.removeprefix("--") in in_script
    }
    stated |= {name: value for name, value in options.items() if value}
    argv = (str(script), *words) if script is not None else words
    request = request_of(stated, user or pwd.getpwuid(os.getuid()).pw_name, text, argv, os.environ)
    policy = policy_at(config)
    if local:
        answer = _locally(policy, request)
    else:
        try:
            answer = ask(policy.daemon.socket, request)
        except SlurmError as error:
            raise SlurmError(f"{error}; to decide without the daemon, add --local") from None
    found = {name: value for name, value in asdict(answer).items() if value is not None}
    if form == "json":
        show_json(found)
        return
    click.echo(found.pop("message", "the user would be told nothing"))
    for name, value in found.items():
        click.echo(f"{name:<14}{value}")


def request_of(
    options: Mapping[str, str | None],
    user: str,
    script: str | None,
    argv: tuple[str, ...],
    environment: Mapping[str, str],
) -> HookRequest:
    """The request the hook would make of options as sbatch takes them.

    Raises JobError for a number that is none.
    """
    try:
        uid = pwd.getpwnam(user).pw_uid
    except KeyError:
        raise JobError("user", user, "expected a user of this machine") from None
    least, _, most = (options.get("nodes") or "").partition("-")
    limit = options.get("time")
    per_node = options.get("gpus_per_node")
    texts = {f.name for f in fields(HookRequest)} - {"tres_per_node", "ntasks_per_node"}
    bound = minutes(limit) if limit else None
    return HookRequest(
        uid=uid,
        user=user,
        script=None if script is None else script[:MAX_SCRIPT_CHARS],
        argv=argv,
        environment={
            k: v for k, v in environment.items() if k.startswith(OURS) and k != f"{OURS}_HOME"
        },
        work_dir=str(Path.cwd()),
        time_limit=None if not limit else float("inf") if bound is None else bound,
        min_nodes=_count("nodes", least),
        max_nodes=_count("nodes", most or least),
        num_tasks=_count("ntasks", options.get("ntasks")),
        ntasks_per_node=_count("ntasks-per-node", options.get("ntasks_per_node")),
        tres_per_node=_tres("", options.get("tres_per_node")) or _tres("gpu:", per_node),
        tres_per_job=_tres("gpu:", options.get("gpus")),
        tres_per_task=_tres("gpu:", options.get("gpus_per_task")),
        tres_per_socket=_tres("gpu:", options.get("gpus_per_socket")),
        **{name: text for name, text in options.items() if name in texts},  # type: ignore[arg-type]
    )


def _locally(policy: SlurmPolicy, request: HookRequest) -> HookAnswer:
    from predictor.site.calibration.site_state import read_state

    from ..decide import SlurmDecider
    from ..sources.choose import open_source
    from ..sources.text import take

    cluster: Cluster | None = None
    try:
        cluster = take(open_source(policy.slurm))
    except SourceError as error:
        warn(f"decided without a view of Slurm: {error}")
    found, memory = predictor(policy.daemon.predictor_version), read_state().memory
    decider = SlurmDecider(found, policy, cluster, rules_of(policy), memory=memory)
    decider.read_cpu_s = 10.0  # nobody waits, and first calls read tables
    return decider.decide(request)


def _tres(kind: str, text: str | None) -> str | None:
    return ",".join(f"gres/{kind}{part}" for part in text.split(",")) if text else None


def _count(name: str, text: str | None) -> int | None:
    if not text:
        return None
    if not text.isdecimal():
        raise JobError(name, text, "expected a whole number")
    return int(text)
