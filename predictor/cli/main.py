"""`precision-time`: the group of all commands, and how errors end it."""

from __future__ import annotations

import click

from ..errors import PrecisionTimeError
from .backtest import backtest
from .calibrate import calibrate
from .capacity import capacity
from .catalog import catalog, gpus
from .compare import compare
from .console import fail, logged
from .drift import drift
from .evaluate import evaluate
from .history import history
from .identify import identify
from .models import fit, learn, models
from .plan import plan
from .plugins import PluginGroup
from .predict import predict
from .profile import profile
from .profile_data import profiles
from .sweep import sweep
from .trace import trace
from .validate import validate

USAGE_ERROR = 2


class Program(PluginGroup):
    """All commands, those of plug-ins last.

    An error of ours, or a plug-in without what it needs, ends the program with one line on stderr
    and exit code 2.
    """

    def invoke(self, ctx: click.Context) -> object:
        """Run the command that was named."""
        from profiles.errors import ProfileDataError

        try:
            with logged():
                return super().invoke(ctx)
        except (PrecisionTimeError, ProfileDataError) as error:
            fail(str(error))
        ctx.exit(USAGE_ERROR)


@click.group(
    cls=Program,
    plugins="precision_time.commands",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="precision-time")
def main() -> None:
    """Predict how long a GPU training job runs from model, precision, GPU and batch.

    Results go to stdout, progress, warnings and errors to stderr. Exit code 2 means that an
    argument or a file is not possible, 1 that a check found something.
    """


for command in (
    predict,
    identify,
    compare,
    plan,
    sweep,
    evaluate,
    validate,
    calibrate,
    drift,
    backtest,
    fit,
    learn,
    models,
    history,
    capacity,
    catalog,
    gpus,
    profile,
    profiles,
    trace,
):
    main.add_command(command)
