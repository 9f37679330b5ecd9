"""`precision-time k8s identify`: which training job each object of a manifest is taken for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

import click
import yaml

from predictor.cli.console import format_option, show_json
from predictor.cli.identify import show_stated, summary

from ..plain import items, text, texts


@click.command()
@click.argument("manifest", type=click.File("rb"))
@format_option
def identify(manifest: IO[bytes], form: str) -> None:
    """Show which training job each object of MANIFEST is; nothing is sent to a cluster.

    ConfigMaps of the same file are read where a container mounts them or takes variables from them.
    """
    from ..config import Config
    from ..workload import template_job

    objects = list(_objects(manifest))
    told = [o for o in objects if text(o, "kind") == "ConfigMap"]
    maps = {text(o, "metadata", "name"): texts(o, "data") for o in told}
    jobs = [(o, template_job(_kind(o), o, Config(), maps=maps)) for o in objects]
    found = [(f"{text(o, 'kind')}/{text(o, 'metadata', 'name')}", j) for o, j in jobs if j]
    if form == "json":
        show_json(
            [
                {"object": name, "gpus": job.gpus, "pods": job.pods, **summary(job.stated)}
                for name, job in found
            ]
        )
        return
    for name, job in found:
        of = "" if job.resource == "nvidia.com/gpu" else f" of {job.resource}"
        click.echo(f"{name}: {job.gpus} GPUs{of}, pods: {job.pods}")
        show_stated(job.stated)
    if not found:
        click.echo(f"no object of {manifest.name} asks for GPUs")


def _objects(manifest: IO[bytes]) -> Iterator[dict[str, Any]]:
    """The objects of a manifest, those in lists too."""
    try:
        for one in yaml.safe_load_all(manifest):
            yield from items(one, "items") if text(one, "kind").endswith("List") else [one]
    except yaml.YAMLError as error:
        why = " ".join(str(error).split())
        raise click.BadParameter(
            f"{manifest.name} is not YAML: {why}", param_hint="MANIFEST"
        ) from None


def _kind(obj: dict[str, Any]) -> str:
    """The kind as `pod_sets` has it: Volcano's is called Job too."""
    from ..pods import GROUPS, VOLCANO

    volcano = text(obj, "apiVersion").startswith(GROUPS[VOLCANO])
    return VOLCANO if volcano else text(obj, "kind")
