"""`precision-time slurm label-nodes`."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

import click

from predictor.cli.console import format_option

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("label-nodes")
@click.option(
    "--from-json",
    type=click.File("r"),
    help="Nodes as `--format json` printed them there, - for stdin.",
)
@click.option("--config", type=FILE, help="Policy file that names the features.")
@format_option
def label_nodes(from_json: TextIO | None, config: Path | None, form: str) -> None:
    """Print the slurm.conf and gres.conf lines of this node's GPUs, read from NVML.

    Nothing is changed. `--format json` prints what NVML says, for `--from-json` elsewhere.
    """
    from ..config import DEFAULT_PATH, SlurmPolicy, read_policy
    from ..install import gpu_nodes, labels

    if from_json is None:
        nodes: tuple[gpu_nodes.NvmlNode, ...] = (gpu_nodes.this_node(),)
    else:
        nodes = gpu_nodes.from_json(from_json.read(), from_json.name)
    if form == "json":
        click.echo(gpu_nodes.to_json(nodes))
        return
    path = config or (DEFAULT_PATH if DEFAULT_PATH.exists() else None)
    policy = SlurmPolicy() if path is None else read_policy(path)
    names = {str(key): name for key, name in policy.placement.features.items()}
    for number, node in enumerate(nodes):
        click.echo("\n" * bool(number) + "\n".join(labels.lines(labels.label(node, names))))
