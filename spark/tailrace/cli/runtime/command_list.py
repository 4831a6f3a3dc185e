"""List the commands by name, each with its summary and its module, which is loaded only when it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

import typer
from typer.main import get_command

if TYPE_CHECKING:
    # typer returns commands of its own copy of click, which has no public name.
    from typer._click.core import Command as Loaded

RUN = "Run (on Spark where it does not fit this machine; a stream starts it)"
ASK = "Ask (these start Spark)"
LOOK = "Look (these start no Spark)"
TRY = "Try (this starts no Spark)"
TELL = "Tell a running stream"
BACK = "Go back (these start no Spark)"
TABLES = "Tables (these start no Spark)"


@dataclass(frozen=True)
class Command:
    """A command: its panel in the help (None if hidden), and its place, `MODULE:NAME` in `cli.commands`.

    `summary` is the first paragraph of the command's docstring.
    """

    panel: str | None
    place: str
    summary: str


COMMANDS: Mapping[str, Command] = {
    "stream": Command(
        RUN,
        "run.stream:stream",
        "Run definitions as a stream: land a source in their log, and fold it epoch by epoch.",
    ),
    "backfill": Command(
        RUN,
        "run.backfill:backfill",
        "Compute a range of event time anew from the log, beside a running stream, and merge what differs.",
    ),
    "apply": Command(
        RUN,
        "change.apply:apply",
        "Build a changed definition's generation beside the old one from the log, and swap it in.",
    ),
    "audit": Command(
        RUN,
        "run.audit:audit",
        "Prove by counting that every record is accounted for, and that the answers are those of one batch over the "
        "log.",
    ),
    "replay": Command(
        RUN,
        "run.replay:replay",
        "Fold recorded epochs again from the log, with their clocks, and prove that the ledger's rows come out.",
    ),
    "maintain": Command(
        RUN,
        "run.maintain:maintain",
        "Write small files together, apply deletes, expire old snapshots, and remove what dead runs left behind.",
    ),
    "sql": Command(
        ASK,
        "run.sql:sql",
        "Ask the lake's tables something by SQL. It only reads, and times are UTC.",
    ),
    "dbt": Command(
        ASK,
        "run.dbt:dbt",
        "Run dbt on the lake, in a Spark session of this process: models read the tables while streams go on.",
    ),
    "explain": Command(
        LOOK,
        "look.explain:explain",
        "Show what a definition does when it runs: its stages and where each runs, the state it keeps, its tables.",
    ),
    "plan": Command(
        LOOK,
        "look.plan:plan",
        "Say what a changed definition means for the tables that are there, and what `apply` would do.",
    ),
    "simulate": Command(
        LOOK,
        "look.simulate:simulate",
        "Fold a definition over a sample, in Python alone, and show the panes that it gives, or what it produces.",
    ),
    "status": Command(
        LOOK,
        "look.status:status",
        "Show how a definition stands: watermark and lag, epochs, open windows, counts, and which run computed what.",
    ),
    "panes": Command(
        LOOK,
        "look.pane_history:panes",
        "Show every pane that one key and window gave, in version order, and what came too late for it.",
    ),
    "trace": Command(
        LOOK,
        "look.trace:trace",
        "Find a record: when it was landed, in which windows it is, and which panes and answers count it.",
    ),
    "late": Command(
        LOOK,
        "look.late:late",
        "Show what came too late for its window, grouped by range of event time, and how to repair it.",
    ),
    "serve": Command(
        LOOK,
        "look.serve:serve",
        "Show the lake in a browser: how each definition stands, its windows and panes, what is late, what runs "
        "changed.",
    ),
    "doctor": Command(
        LOOK,
        "look.doctor:doctor",
        "Say what is wrong with this installation and how to mend it.",
    ),
    "generate": Command(
        TRY,
        "change.generate:generate",
        "Write a made-up log into a folder: some things become known late, some twice.",
    ),
    "watermark": Command(
        TELL,
        "change.watermark:watermark",
        "Show the watermark of a definition's log: by partition, and which of them hold it back.",
    ),
    "signal": Command(
        TELL,
        "change.signal:signal",
        "Send a signal to the pipelines of a definition's log: what waits for it fires with the stream's next epoch.",
    ),
    "rollback": Command(
        BACK,
        "change.apply:rollback",
        "Make the generation before current again, as it was left, columns and all; nothing is computed.",
    ),
    "restore": Command(
        BACK,
        "change.restore:restore",
        "Go back to the end of an epoch: a consistent cut over all stages and tables.",
    ),
    "relocate": Command(
        TABLES,
        "change.relocate:relocate",
        "Make a lake that was copied or moved one of its own: its tables then name the files where it is.",
    ),
    "repair": Command(
        BACK,
        "change.repair:group",
        "Put right what another hand has changed: `repair answers DEFINITION` makes answers anew from the ledger.",
    ),
    "tables": Command(
        TABLES,
        "change.tables:group",
        "Show the tables' contracts, and bring live tables to them: `tables DEFINITION` shows.",
    ),
    # A scheduler's runs start this command by themselves.
    "worker": Command(
        None,
        "run.worker:worker",
        "Hold a Spark session for runs that ask for it over a socket, until nobody has for a while.",
    ),
}


def loaded(name: str) -> Loaded:
    """Load a command, with the modules that it imports."""
    module, _, place = COMMANDS[name].place.partition(":")
    command = getattr(import_module(f"tailrace.cli.commands.{module}"), place)
    if isinstance(command, typer.Typer):
        return get_command(command)
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    alone.command(name, help=folded(command))(command)
    return get_command(alone)


def folded(command: Callable[..., object]) -> str:
    """Return a command's docstring with each paragraph on one line, so that the terminal wraps it at its width."""
    return "\n\n".join(" ".join(part.split()) for part in (inspect.getdoc(command) or "").split("\n\n"))
