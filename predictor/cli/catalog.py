"""`precision-time catalog` and `gpus`: what can be named; `trace`: a network of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..units import MISSING, count, short
from .console import format_option, progress, show_json, show_table, warn
from .options import complete

if TYPE_CHECKING:
    from ..graphs.catalog import ModelEntry
    from ..graphs.families.stored import Stored
    from ..graphs.operator import Graph

GFLOPS_TOLERANCE = 0.01
GIGA = 1e9
BRIEF = (
    *("name", "aliases", "group", "family"),
    *("seq_len", "image_size", "optimizer", "parameters"),
)


@click.group()
def catalog() -> None:
    """List, show and check the models that can be predicted."""


@catalog.command("list")
@click.argument("name", required=False)
@click.option("--group", help="Only models of this group, such as cnn or transformer.")
@format_option
def list_(name: str | None, group: str | None, form: str) -> None:
    """List the models, or those that NAME means or is a part of (`catalog list qwen`)."""
    from ..errors import JobError
    from ..graphs.catalog import entries, like, traced_entries

    known = (*entries(), *traced_entries())
    groups = sorted({e.group for e in known})
    if group is not None and group not in groups:
        raise JobError("group", group, f"expected one of {', '.join(groups)}")
    found = [e for e in (known if name is None else like(name)) if group in (None, e.group)]
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
        click.echo(f"{key:<26}{_text(value)}")


@catalog.command()
def check() -> None:
    """Compare every model's stated parameters and GFLOPs with its operator graph.

    Parameters must be equal, GFLOPs of the forward pass within 1 %. Exit code 1 on a deviation.
    """
    from ..graphs.catalog import entries

    right = wrong = unchecked = 0
    for entry in entries():
        deviations, why_not = checked(entry)
        for text in (*deviations, *([f"not checked, {why_not}"] if why_not else [])):
            click.echo(f"{entry.name}: {text}")
        wrong += bool(deviations)
        unchecked += bool(why_not)
        right += not deviations and not why_not
    click.echo(f"{right} models as stated, {wrong} deviate, {unchecked} not checked")
    if wrong:
        raise SystemExit(1)


@click.command()
@format_option
def gpus(form: str) -> None:
    """List the GPUs that have a data sheet."""
    from profiles.gpus import gpus as sheets

    if form == "json":
        show_json(
            [
                {
                    "name": g.name,
                    "product": g.product,
                    "architecture": g.architecture,
                    "memory_gib": g.memory_bytes / 2**30,
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
            f"{g.memory_bytes / 2**30:.0f}",
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


def checked(entry: ModelEntry) -> tuple[list[str], str]:
    """Where the graph of an entry deviates from what it states; else why it was not checked."""
    from ..errors import GraphError

    parameters, gflops = entry.parameters, entry.forward_gflops
    try:
        graph = default_graph(entry)
    except GraphError as error:
        if parameters is None and gflops is None:
            return [], f"no size of its own ({error})"
        return [str(error)], ""
    if parameters is None and gflops is None:
        return [], "no figure is stated"
    deviations = []
    if parameters is not None and graph.parameters != parameters:
        deviations.append(f"parameters {parameters:,} stated, {graph.parameters:,} in graph")
    built = graph.forward_flops / GIGA
    if gflops is not None and abs(built / gflops - 1) > GFLOPS_TOLERANCE:
        deviations.append(f"GFLOPs {gflops:.4g} stated, {built:.4g} in graph")
    return deviations, ""


def default_graph(entry: ModelEntry) -> Graph:
    """The graph of one sample at the defaults of the catalog; raises GraphError."""
    from ..graphs.catalog import graph_of
    from ..graphs.operator import Workload

    work = Workload(batch_size=1, seq_len=entry.seq_len, image_size=entry.image_size)
    return graph_of(entry.name, (), work)


def details(entry: ModelEntry) -> dict[str, Any]:
    """What `show` shows; ``graph_*`` are of the operator graph, None where it needs a variant."""
    from profiles.tables import measurements

    from ..errors import GraphError
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


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k}={v}" for k, v in value.items()) or MISSING
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or MISSING
    if isinstance(value, float):
        return f"{value:.6g}"
    return MISSING if value is None else f"{value:,}" if isinstance(value, int) else str(value)


@click.command()
@click.argument("factory", required=False, metavar="[PACKAGE.MODULE:NAME]")
@click.option("--hf-config", metavar="FILE", help="A config.json of transformers, instead.")
@click.option(
    "--hf-task", "task", help="Its head, such as causal-lm  [default: architectures in FILE]"
)
@click.option(
    "--input",
    "specs",
    multiple=True,
    metavar="[NAME=]SIZES[:DTYPE]",
    help="Sizes of one sample: 3,224,224, or S:int64 with the sequence length as S. Repeatable.",
)
@click.option("--dtype", default="float32", show_default=True, help="Of inputs that state none.")
@click.option("--batch-size", type=int, default=8, show_default=True, help="Samples of the check.")
@click.option("--seq-len", type=int, help="Tokens of one sample, the default of the model.")
@click.option("--name", help="Name in the catalog  [default: of the factory or config]")
@click.option(
    "--loss",
    default="auto",
    show_default=True,
    help="auto, cross_entropy, mse, bce, output, sum, or PACKAGE.MODULE:NAME of a function.",
)
@click.option(
    "--optimizer",
    default="adamw",
    show_default=True,
    help="adamw, sgd, ..., or PACKAGE.MODULE:NAME, called with the parameters: its step is traced.",
)
@click.option("--again", is_flag=True, help="Trace even where nothing has changed.")
@format_option
def trace(
    specs: tuple[str, ...], dtype: str, name: str | None, again: bool, form: str, **stated: Any
) -> None:
    """Trace a torch network, so that `predict` knows it by its name.

    NAME is a function or class without arguments that gives a torch.nn.Module. One training step
    runs on tensors without data; no GPU is needed, and none afterwards.
    """
    from ..job.software import optimizer_named
    from ..measure.trace.request import TraceRequest, free_name, parsed, stored_before

    if ":" not in stated["optimizer"]:
        optimizer_named(stated["optimizer"])
    factory, config = stated["factory"], stated["hf_config"]
    default = Path(config).resolve().parent.name if config else ""
    if factory:
        default = factory.rpartition(":")[2].rpartition(".")[2]
    request = TraceRequest(
        name=free_name(name or default),
        inputs=tuple(parsed(s, dtype) for s in specs),
        **stated,
    )
    found = None if again else stored_before(request)
    if found is None:
        with progress(f"tracing {request.name}") as shown:
            shown("importing torch", 0.0)
            from ..measure.trace.tracer import trace_request

            found = trace_request(request)
    _show_traced(found, form)


def _show_traced(found: Stored, form: str) -> None:
    from ..graphs.catalog import graph_of
    from ..graphs.operator import Workload

    model = found.model
    work = Workload(model.batch_size, seq_len=model.seq_len, image_size=model.image_size)
    graph = graph_of(found.name, (), work)
    summary: dict[str, Any] = {
        "name": model.name,
        "stored_as": found.name,
        "parameters": model.parameters,
        "trainable_parameters": model.trainable_parameters,
        "forward_gflops_per_sample": graph.forward_flops / GIGA / model.batch_size,
        "operators": len(model.operators),
        "any_batch_size": model.any_batch,
        "any_seq_len": model.any_seq_len,
        "priced_by_bytes_alone": list(model.unknown),
        "optimizer": model.optimizer,
    }
    if model.update:
        summary["optimizer_bytes_per_parameter"] = round(model.update.bytes_per_parameter, 2)
        summary["optimizer_launches_per_tensor"] = round(model.update.launches_per_tensor, 2)
        if model.update.products:
            warn(
                f"the optimizer's products are priced by bytes: {', '.join(model.update.products)}"
            )
    if model.unknown:
        warn(f"unknown operators, priced by their bytes alone: {', '.join(model.unknown)}")
    if not model.any_batch:
        warn(
            f"only batch size {model.batch_size} can be predicted: other sizes run other operators"
        )
    if model.seq_len and not model.any_seq_len:
        warn(f"only sequence length {model.seq_len} can be predicted")
    if form == "json":
        show_json(summary)
        return
    for key, value in summary.items():
        click.echo(f"{key:<31}{_traced_text(value)}")


def _traced_text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
