"""`precision-time`: the group of all commands, and how errors end it."""

from __future__ import annotations

from errno import EPIPE

import click

from profiles.errors import ProfileDataError
from profiles.storage import shipped_yaml

from ..errors import PrecisionTimeError, reason_of
from .console import fail, logged, terminal
from .groups import CommandGroup

USAGE_ERROR = 2
BATCHES = ("batch_size", "global_batch_size")  # a training job needs one of them


class Program(CommandGroup):
    """An error of ours ends the program with one line on stderr and exit code 2."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command that was named."""
        try:
            with terminal(), logged():
                return super().invoke(ctx)
        except (PrecisionTimeError, ProfileDataError) as error:
            fail(str(error))
        except OSError as error:
            if error.errno == EPIPE:
                raise
            fail(f"{error.filename}: {reason_of(error)}" if error.filename else reason_of(error))
        except click.MissingParameter as error:
            raise click.UsageError(_all_missing(error), error.ctx) from None
        except click.NoSuchOption as error:
            name, command = error.option_name.lstrip("-"), error.ctx and error.ctx.command
            if command and any(
                isinstance(p, click.Argument) and p.name == name for p in command.params
            ):
                told = f"no option {error.option_name}: {name.upper()} is written without it"
                raise click.UsageError(told, error.ctx) from error
            raise
        ctx.exit(USAGE_ERROR)


def _all_missing(first: click.MissingParameter) -> str:
    """What a command needs and was not given, a line each; click read what was given before."""
    assert first.ctx is not None
    given, command = first.ctx.params, first.ctx.command
    missing = [one for one in command.params if one.required and one.name not in given]
    lines = [click.MissingParameter(ctx=first.ctx, param=one).format_message() for one in missing]
    takes = {one.name for one in command.params}
    if takes.issuperset(BATCHES) and not any(map(given.get, (*BATCHES, "phases"))):
        lines.append("Missing option '--batch-size' or '--global-batch-size'.")
    return "\n".join(lines)


@click.group(
    cls=Program,
    package=__package__,
    modules=shipped_yaml("commands.yaml", __file__),
    plugins="precision_time.commands",
    extra="history",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="precision-time")
def main() -> None:
    """Predict how long a GPU training job runs from model, precision, GPU and batch.

    Results go to stdout, progress, warnings and errors to stderr. Exit code 2 means that an
    argument or a file is invalid, 1 that a check found something.
    """


if __name__ == "__main__":
    main()
