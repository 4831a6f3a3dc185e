"""The command `tailrace`: its subcommands, and the exit statuses of errors.

If a command raises a `TailraceError`, the command ends with a clear message and an exit status. For any other error,
the command prints one line, and writes the stack trace to a file or, with `--debug`, to the terminal.
"""

from __future__ import annotations

import errno
import os
import tempfile
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import tailrace
from tailrace.cli.runtime import process
from tailrace.cli.runtime.command_list import COMMANDS, load_command
from tailrace.cli.terminal.console import Output
from tailrace.cli.terminal.usage import MEANING, ExitStatus, status_of
from tailrace.model.base.errors import TailraceError

_DEBUG = "--debug"


class _Commands(TyperGroup):
    """The group of all commands.

    The group converts errors to exit statuses, and accepts `--debug` anywhere among the arguments.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = args[: args.index("--")] if "--" in args else args
        if _DEBUG in own:
            args = [_DEBUG, *(arg for arg in own if arg != _DEBUG), *args[len(own) :]]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, stub, rest = super().resolve_command(ctx, args)
        return name, None if name is None or stub is None else load_command(name), rest

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            Output().error("interrupted")
            raise typer.Exit(ExitStatus.INTERRUPTED) from None
        except Exception as error:
            if _is_for_typer(error):
                raise
            raise _show_error(error, debug=bool(ctx.params.get("debug"))) from None


def _is_for_typer(error: Exception) -> bool:
    """Return True if typer itself handles an error: the end of a command, wrong usage, or a closed output."""
    if isinstance(error, typer.Exit | typer.Abort) or (isinstance(error, OSError) and error.errno == errno.EPIPE):
        return True
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def _show_error(error: Exception, *, debug: bool) -> typer.Exit:
    """Print an error message, and return the `typer.Exit` that ends the command."""
    # These modules are imported here, because only a command that fails needs them.
    from tailrace.lake.upkeep.diagnosis import explain_error
    from tailrace.toolchain.extras import explain_import

    if debug:
        traceback.print_exception(error)
    shown = (explain_import(error) if isinstance(error, ImportError) else None) or explain_error(error)
    if isinstance(shown, TailraceError):
        Output().error(str(shown))
        return typer.Exit(status_of(shown))
    first = next(iter(str(error).strip().splitlines()), "")
    message = f"unexpected: {type(error).__name__}{': ' if first else ''}{first}"
    Output().error(message if debug else f"{message}; the trace is in {_write_trace(error)}, and --debug shows it")
    return typer.Exit(ExitStatus.FAILED)


def _write_trace(error: Exception) -> str:
    """Write the stack trace of an error to a temporary file, and return the path of the file."""
    handle, path = tempfile.mkstemp(prefix="tailrace-", suffix=".trace")
    with os.fdopen(handle, "w") as file:
        traceback.print_exception(error, file=file)
    return path


_STATUSES = "\n".join(f"  [bold]{status:>3}[/bold]  {MEANING[status]}" for status in ExitStatus)


class _App(typer.Typer):
    """The typer application that the console script `tailrace` runs.

    Before running a command, the application calls `claim_process`, which speeds up a process that runs only one
    command.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        process.claim_process()
        return super().__call__(*args, **kwargs)


app = _App(
    cls=_Commands,
    name="tailrace",
    help="One windowed pipeline definition, run as a stream and as backfills, into the same Iceberg tables.\n\n"
    "A DEFINITION is a Python file that holds a Pipeline: [cyan]pipelines/flights.py[/cyan], or "
    "[cyan]pipelines/flights.py:NAME[/cyan] if it holds several. The lake is at the place that "
    "[cyan]TAILRACE_WAREHOUSE[/cyan] "
    "or [cyan]tailrace.toml[/cyan] names, else in [cyan]build/lake[/cyan].",
    epilog=f"Exit status:\n\n{_STATUSES}",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"tailrace {tailrace.__version__}")
        raise typer.Exit


@app.callback()
def _tailrace(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option(_DEBUG, help="Show the trace of an error; may stand at any place.")] = False,
) -> None:
    """Handle the options that all commands share."""


def _stub() -> None:
    """Represent a command in the help text. The command itself is loaded only when a user calls it."""


for _name, _command in COMMANDS.items():
    app.command(_name, help=_command.summary, rich_help_panel=_command.panel, hidden=_command.panel is None)(_stub)


if __name__ == "__main__":
    app(prog_name="tailrace")
