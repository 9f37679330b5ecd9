"""`precision-time catalog` and `gpus`: what can be named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from profiles.gpus import gpus as sheets

from ..errors import GraphError
from ..graphs.operator import Graph, Workload
from ..units import GIB, MISSING, count, short
from .console import format_option, show_json, show_table, worded
from .options import complete

if TYPE_CHECKING:
    from ..graphs.catalog import ModelEntry

GIGA = 1e9
BRIEF = (
    *("name", "aliases", "group", "family"),
    *("seq_len", "image_size", "optimizer", "parameters"),
)


@click.group()
def catalog() -> None:
    """List and show the models that can be predicted."""


@catalog.command("list")
@click.argument("name", required=False)
@format_option
def list_(name: str | None, form: str) -> None:
    """List the models, or those that NAME means or is a part of (`catalog list qwen`)."""
    from ..graphs.catalog import entries, like, traced_entries

    found = (*entries(), *traced_entries()) if name is None else like(name)
    if form == "json":
        show_json([_brief(e) for e in found])
        return
    head = ("model", "group", "family", "input", "parameters", "aliases")
    rows = [
        (e.name, e.group, e.family, _input(e), count(e.parameters), ", ".join(e.aliases))
        for e in found
    ]
    show_table(head, rows, left=len(head))


@catalog.command()
@click.argument("name", shell_complete=complete("model"))
@format_option
def show(name: str, form: str) -> None:
    """Show what is known of the model that NAME means, as people write it.

    Takes names of the catalog, torchvision, timm, Keras, MLPerf, detectron2 and mmdetection
    configurations, and repositories of the Hugging Face hub.
    """
    from ..graphs.catalog import entry_of

    found = details(entry_of(name))
    if form == "json":
        show_json(found)
        return
    for key, value in found.items():
        click.echo(f"{key:<26}{worded(value) or MISSING}")


@click.command()
@format_option
def gpus(form: str) -> None:
    """List the GPUs that have a data sheet."""
    if form == "json":
        show_json(
            [
                {
                    "name": g.name,
                    "product": g.product,
                    "architecture": g.architecture,
                    "memory_gib": g.memory_bytes / GIB,
                    "bandwidth_gb_per_s": g.bandwidth_bytes_per_s / GIGA,
                    "peak_tflops": {k: v / 1e12 for k, v in g.peak_flops.items()},
                    "aliases": g.aliases,
                }
                for g in sheets().values()
            ]
        )
        return
    formats = ("fp32", "tf32", "fp16_tensor", "bf16_tensor", "fp8_tensor", "fp4_tensor")
    head = ("GPU", "is", "GiB", "GB/s", *(name.removesuffix("_tensor") for name in formats))
    click.echo("dense peaks in TFLOP/s, of tensor cores below FP32\n")
    rows = [
        (
            g.name,
            g.architecture,
            f"{g.memory_bytes / GIB:.0f}",
            f"{g.bandwidth_bytes_per_s / GIGA:.0f}",
            *(
                short(g.peak_flops[name] / 1e12).removesuffix(".0")
                if name in g.peak_flops
                else MISSING
                for name in formats
            ),
        )
        for g in sheets().values()
    ]
    show_table(head, rows, left=2)


def default_graph(entry: ModelEntry) -> Graph:
    """The graph of one sample at the defaults of the catalog; raises GraphError."""
    from ..graphs.catalog import graph_of

    work = Workload(batch_size=1, seq_len=entry.seq_len, image_size=entry.image_size)
    return graph_of(entry.name, (), work)


def details(entry: ModelEntry) -> dict[str, Any]:
    """What `show` shows; ``graph_*`` are of the operator graph, None where it needs a variant."""
    from profiles.tables import measurements

    from ..graphs.catalog import find_entry

    try:
        graph = default_graph(entry)
    except GraphError:
        graph = None
    rows = sum(find_entry(row["model"]) == entry for row in measurements())
    return _brief(entry) | {
        "architecture": dict(entry.architecture),
        "dataset_size": entry.dataset_size,
        "units": dict(entry.units),
        "forward_gflops": entry.forward_gflops,
        "graph_parameters": graph and graph.parameters,
        "graph_forward_gflops": graph and graph.forward_flops / GIGA,
        "measured_rows": rows,
        "source": entry.source,
    }


def _brief(entry: ModelEntry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in BRIEF}


def _input(entry: ModelEntry) -> str:
    if entry.image_size:
        return "x".join(map(str, entry.image_size))
    return f"{entry.seq_len} tokens" if entry.seq_len else MISSING
