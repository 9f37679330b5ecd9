"""`precision-time trace`: a network of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..graphs.operator import Workload
from ..job.software import optimizer_named
from .catalog import GIGA
from .console import format_option, progress, show_json, warn, worded
from .options import listed_options

if TYPE_CHECKING:
    from ..graphs.families.stored import Stored


@click.command()
@click.argument("factory", required=False, metavar="[PACKAGE.MODULE:NAME]")
@listed_options("trace")
@format_option
def trace(
    specs: tuple[str, ...], dtype: str, name: str | None, again: bool, form: str, **stated: Any
) -> None:
    """Trace a torch network, so that `predict` knows it by its name.

    NAME is a function or class without arguments that gives a torch.nn.Module. One training step
    runs on tensors without data; no GPU is needed, and none afterwards.
    """
    from ..measure.trace.request import TraceRequest, free_name, parsed, stored_before

    if ":" not in stated["optimizer"]:
        optimizer_named(stated["optimizer"])
    factory, config = stated["factory"], stated["hf_config"]
    if not (factory or config):
        raise click.UsageError("give PACKAGE.MODULE:NAME or --hf-config FILE")
    default = Path(config).resolve().parent.name if config else ""
    if factory:
        default = factory.rpartition(":")[2].rpartition(".")[2]
    request = TraceRequest(
        name=free_name(name or default), inputs=tuple(parsed(s, dtype) for s in specs), **stated
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
        click.echo(f"{key:<31}{worded(value) or 'none'}")
