"""`precision-time`: the group of all commands, and how errors end it."""

from __future__ import annotations

import click

from ..errors import PrecisionTimeError
from .catalog import catalog, gpus
from .compare import compare
from .console import fail, logged
from .evaluate import evaluate
from .models import fit, learn, models
from .plan import plan
from .plugins import load, plugins, remedy
from .predict import predict
from .profile_data import profiles
from .validate import validate

USAGE_ERROR = 2


class Program(click.Group):
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
        except ModuleNotFoundError as error:
            mend = remedy(ctx.invoked_subcommand, error)
            if mend is None:
                raise
            fail(f"{error}: {mend}")
        ctx.exit(USAGE_ERROR)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order they were added, not of the alphabet."""
        return [*self.commands, *(name for name in plugins() if name not in self.commands)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name; a plug-in is imported only when it is asked for."""
        return super().get_command(ctx, cmd_name) or load(cmd_name)


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="precision-time")
def main() -> None:
    """Predict how long a GPU training job runs from model, precision, GPU and batch.

    Results go to stdout, progress, warnings and errors to stderr. Exit code 2 means that an
    argument or a file is not possible, 1 that a check found something.
    """


for command in (
    predict, compare, plan, evaluate, validate, fit, learn, models, catalog, gpus, profiles
):  # fmt: skip
    main.add_command(command)
