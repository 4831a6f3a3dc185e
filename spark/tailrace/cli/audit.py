"""`tailrace audit`: prove by counting that nothing was lost or doubled, and that the answers are right."""

from __future__ import annotations

import typer
from rich.text import Text

from tailrace.cli.console import Output, facts, table
from tailrace.cli.definitions import load
from tailrace.cli.errors import Status
from tailrace.cli.options import Definition, Json
from tailrace.cli.sessions import session, waiting
from tailrace.settings import Settings


def audit(definition: Definition, json: Json = False) -> None:
    """Prove by counting that every record is accounted for, and that the answers are those of one batch over the log.

    The exit status is 1 where a check does not hold.
    """
    output = Output(json)
    pipeline = load(definition)
    settings = Settings()
    with waiting(output, "starting Spark") as doing, session(settings, f"tailrace audit {pipeline.name}") as spark:
        from tailrace.lake.catalog import Lake
        from tailrace.spark.audit import audit as run

        doing(f"counting {pipeline.name}")
        found = run(spark, Lake(settings), pipeline)
    if json:
        checks = [{"name": check.name, "ok": check.ok, "detail": check.detail} for check in found.checks]
        output.data({"pipeline": pipeline.name, "ok": found.ok, "counts": dict(found.counts), "checks": checks})
    else:
        rows = table("", "check", "found")
        for check in found.checks:
            mark = Text("✓", style="green") if check.ok else Text("✗", style="bold red")
            rows.add_row(mark, check.name, Text(check.detail, style="" if check.ok else "red"))
        wrong = sum(not check.ok for check in found.checks)
        verdict = (
            Text("it adds up", style="bold green")
            if found.ok
            else Text(f"{wrong} of {len(found.checks)} do not hold", style="bold red")
        )
        output.text(
            Text(pipeline.name, style="bold"),
            facts([(name, f"{count:,}") for name, count in found.counts.items()]),
            "",
            rows,
            "",
            verdict,
        )
    if not found.ok:
        raise typer.Exit(Status.FOUND)
