"""The command `tailrace`: its commands, and what becomes of an error.

Every error that Tailrace raises on purpose is one clear message and an exit status; anything else is one line, with the
trace in a file or, with `--debug`, on the terminal.
"""

from __future__ import annotations

import errno
import inspect
import os
import tempfile
import traceback
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import tailrace
from tailrace.cli import (
    apply,
    audit,
    backfill,
    dbt,
    doctor,
    evolve,
    explain,
    generate,
    late,
    maintain,
    panes,
    plan,
    process,
    replay,
    restore,
    signals,
    simulate,
    sql,
    status,
    stream,
    tables,
    watermark,
    worker,
)
from tailrace.cli.console import Output
from tailrace.cli.errors import MEANING, Status, status_of
from tailrace.model.errors import TailraceError

_DEBUG = "--debug"


class _Guarded(TyperGroup):
    """The group of commands: it turns errors into exit statuses, and takes `--debug` wherever it stands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = args[: args.index("--")] if "--" in args else args
        if _DEBUG in own:
            args = [_DEBUG, *(arg for arg in own if arg != _DEBUG), *args[len(own) :]]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except TailraceError as error:
            _show(error, debug=bool(ctx.params.get("debug")))
            raise typer.Exit(status_of(error)) from None
        except KeyboardInterrupt:
            Output().error("interrupted")
            raise typer.Exit(Status.INTERRUPTED) from None
        except RuntimeError as error:
            # The command line's own way out is one too.
            if isinstance(error, typer.Exit | typer.Abort):
                raise
            raise _unexpected(error, debug=bool(ctx.params.get("debug"))) from None
        except Exception as error:
            if _is_of_command_line(error):
                raise
            raise _unexpected(error, debug=bool(ctx.params.get("debug"))) from None


def _is_of_command_line(error: Exception) -> bool:
    """Whether the command line itself deals with it: wrong usage, or a reader that went away."""
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        return True
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def _show(error: TailraceError, *, debug: bool) -> None:
    if debug:
        traceback.print_exception(error)
    Output().error(str(error))


def _unexpected(error: Exception, *, debug: bool) -> typer.Exit:
    first = next(iter(str(error).strip().splitlines()), "")
    said = f"{type(error).__name__}{': ' if first else ''}{first}"
    if debug:
        traceback.print_exception(error)
        Output().error(f"unexpected: {said}")
    else:
        handle, path = tempfile.mkstemp(prefix="tailrace-", suffix=".trace")
        with os.fdopen(handle, "w") as file:
            traceback.print_exception(error, file=file)
        Output().error(f"unexpected: {said}; the trace is in {path}, and --debug shows it")
    return typer.Exit(Status.FAILED)


_STATUSES = "\n".join(f"  [bold]{status:>3}[/bold]  {MEANING[status]}" for status in Status)


class _App(typer.Typer):
    """The application as the console script calls it: in a process of its own."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        process.own()
        return super().__call__(*args, **kwargs)


app = _App(
    cls=_Guarded,
    name="tailrace",
    help="One windowed pipeline definition, run as a stream and as backfills, into the same Iceberg tables.\n\n"
    "A DEFINITION is a Python file that holds a Pipeline: [cyan]pipelines/flights.py[/cyan], or "
    "[cyan]pipelines/flights.py:NAME[/cyan] where it holds several. The lake is where [cyan]TAILRACE_WAREHOUSE[/cyan] "
    "or [cyan]tailrace.toml[/cyan] says, else [cyan]build/lake[/cyan].",
    epilog=f"Exit status:\n\n{_STATUSES}",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _folded(command: Callable[..., object]) -> str:
    """A command's docstring with each paragraph on one line, for the terminal to break where it is wide."""
    return "\n\n".join(" ".join(part.split()) for part in (inspect.getdoc(command) or "").split("\n\n"))


def _version(wanted: bool) -> None:
    if wanted:
        print(f"tailrace {tailrace.__version__}")
        raise typer.Exit


@app.callback()
def _tailrace(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option(_DEBUG, help="Show the trace of an error; may stand anywhere.")] = False,
) -> None:
    """Options of every command."""


_RUN = "Run (on Spark where it does not fit this machine; a stream starts it)"
_LOOK, _TELL = "Look (these start no Spark)", "Tell a running stream"
_ASK = "Ask (these start Spark)"
_BACK = "Go back (these start no Spark)"
_TRY = "Try (this starts no Spark)"
_panels: dict[str, tuple[Callable[..., None], ...]] = {
    _RUN: (stream.stream, backfill.backfill, apply.apply, audit.audit, replay.replay, maintain.maintain),
    _ASK: (sql.sql, dbt.dbt),
    _LOOK: (explain.explain, plan.plan, simulate.simulate, status.status, panes.panes, late.late, doctor.doctor),
    _TRY: (generate.generate,),
    _TELL: (watermark.watermark, signals.signal),
    _BACK: (apply.rollback, restore.restore),
}
for _panel, _commands in _panels.items():
    for _command in _commands:
        app.command(rich_help_panel=_panel, help=_folded(_command))(_command)
# What runs of a scheduler start by themselves.
app.command(hidden=True, help=_folded(worker.worker))(worker.worker)

_tables = typer.Typer(
    cls=tables.Shown,
    name="tables",
    help="Show the tables' contracts, and bring live tables to them: `tables DEFINITION` shows.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
_shape: dict[str, Callable[..., None]] = {
    "show": tables.show,
    "write": tables.write,
    "plan": evolve.plan_tables,
    "apply": evolve.apply_tables,
    "sources": tables.sources,
}
for _name, _does in _shape.items():
    _tables.command(_name, help=_folded(_does))(_does)
app.add_typer(_tables, rich_help_panel="Tables (these start no Spark)")


if __name__ == "__main__":
    app(prog_name="tailrace")
