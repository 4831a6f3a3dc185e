"""`tailrace repair`: undo or accept changes that another program has made to the tables."""

from __future__ import annotations

from tailrace.cli.runtime.command_list import command_group
from tailrace.cli.runtime.process import skip_unused_imports
from tailrace.cli.terminal.console import Output
from tailrace.plan.loader import load, load_any
from tailrace.settings import Settings
from tailrace.telemetry.json_fields import fields


def answers(definition: str, json: bool = False) -> None:
    """Rewrite the answers that differ from their ledger.

    One commit corrects all rows that another program added, duplicated, changed or deleted. A running stream is not
    interrupted. If no row differs, nothing is written. To correct the ledger itself, run a backfill of the affected
    range, or go back to an earlier state with `restore` or `rollback`.
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
    definition: str,
    commits: list[int],
    reason: str,
    json: bool = False,
) -> None:
    """Accept foreign commits of a definition's tables, so that audits no longer report the commits as faults.

    The rows that these commits wrote are left unchanged, and every later audit still checks these rows.
    """
    loaded, output = load_any(definition), Output(json)
    skip_unused_imports()
    from tailrace.lake.catalog.lake import Lake
    from tailrace.lake.schema.owned_tables import contracts
    from tailrace.operate.answers_repair import accept as run

    lake = Lake(Settings())
    tables = [one.table for one in contracts(loaded) if lake.has(one.table)]
    done = run(lake, tables, commits, reason)
    lines = (f"{table}: commit {commit} is accepted: {reason}" for commit, table in done.items())
    output.report({"accepted": {str(commit): table for commit, table in done.items()}}, lines)


group = command_group("repair", {"answers": answers, "accept": accept})
