"""`tailrace repair`: put right what another hand has changed, or accept it."""

from __future__ import annotations

from typing import Annotated

import typer

from tailrace.cli.runtime.command_list import command_group
from tailrace.cli.runtime.options import Definition, Json
from tailrace.cli.runtime.process import skip_unused_imports
from tailrace.cli.terminal.console import Output
from tailrace.cli.terminal.json_fields import fields
from tailrace.plan.loader import load, load_any
from tailrace.settings import Settings


def answers(definition: Definition, json: Json = False) -> None:
    """Make a table of answers anew from its ledger, where the two differ.

    Rows that somebody added, doubled, changed or deleted are put right in one commit, beside a stream that runs; where
    nothing differs, nothing is written. What is wrong in the ledger itself a backfill of the range puts right, or
    `restore` and `rollback`, which go back to what the tables held.
    """
    pipeline, output = load(definition), Output(json)
    skip_unused_imports()
    from tailrace.lake.catalog.lake import Lake
    from tailrace.operate.answers_repair import repair_answers

    done = repair_answers(Lake(Settings()), pipeline)
    if json:
        output.data(fields(done, "answers", "missing", "more", "written", "accepted"))
        return
    if done.written:
        output.text(
            f"{pipeline.name}: {done.answers:,} answers written anew; {done.missing:,} were missing, and {done.more:,} "
            "too many or different"
        )
    else:
        output.text(f"{pipeline.name}: {done.answers:,} answers, each as its ledger has it: nothing to do")
    output.say("`tailrace audit` says whether all adds up now, and `tailrace backfill` puts the ledger right")


def accept(
    definition: Definition,
    commits: Annotated[list[int], typer.Argument(metavar="COMMIT...", help="Their numbers, as `audit` names them.")],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for whoever audits next.")],
    json: Json = False,
) -> None:
    """Accept foreign commits of a definition's tables, so that audits name them no more as faults.

    What they changed stays: the rows are compared by every audit as before.
    """
    loaded, output = load_any(definition), Output(json)
    skip_unused_imports()
    from tailrace.lake.catalog.lake import Lake
    from tailrace.lake.schema.owned_tables import contracts
    from tailrace.operate.answers_repair import accept as run

    lake = Lake(Settings())
    tables = [one.table for one in contracts(loaded) if lake.has(one.table)]
    done = run(lake, tables, commits, reason)
    if json:
        output.data({"accepted": {str(commit): table for commit, table in done.items()}})
        return
    for commit, table in done.items():
        output.text(f"{table}: commit {commit} is accepted: {reason}")


group = command_group("repair", {"answers": answers, "accept": accept})
