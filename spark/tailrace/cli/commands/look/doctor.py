"""`tailrace doctor`: what is wrong with an installation, and how to mend it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

import tailrace
from tailrace.cli.runtime.options import Json
from tailrace.cli.runtime.process import looking
from tailrace.cli.terminal.console import Output, table
from tailrace.cli.terminal.formats import counted
from tailrace.cli.terminal.usage import ExitStatus
from tailrace.settings import Settings

if TYPE_CHECKING:
    from tailrace.doctor.findings import Finding

_ORDER = {"ok": "green", "not looked at": "dim", "wrong": "bold red"}
"""The states in their order, with their styles: what is wrong comes last, where people look first."""


def doctor(
    application: Annotated[
        str | None, typer.Option("--application", metavar="ID", help="Look at this EMR Serverless application, too.")
    ] = None,
    role: Annotated[
        str | None, typer.Option("--role", metavar="ARN", help="The role that the application's runs get.")
    ] = None,
    json: Json = False,
) -> None:
    """Say what is wrong with this installation and how to mend it.

    Java, jars and packages; whether the warehouse can be written; whether the catalog can be opened and refuses a
    commit that another has overtaken; brokers and a schema registry; and, where the lake or an application is at AWS,
    whose the credentials are, what they may do, and the clock. What may be done is tried, with a table and files that
    are removed again.

    The exit status is 1 where something is wrong. Starts no Spark.
    """
    output, settings = Output(json), Settings()
    looking()
    since = time.monotonic()
    findings = list(examined(settings, application, role))
    wrong = sum(one.state == "wrong" for one in findings)
    if json:
        summary: dict[str, Any] = {"version": tailrace.__version__, "lake": str(settings.warehouse), "wrong": wrong}
        output.data(summary | {"checks": [asdict(one) for one in findings]})
    else:
        output.text(*_lines(findings))
        took = f"in {time.monotonic() - since:.1f} s"
        output.text("", f"{counted(len(findings), 'check')}, {wrong or 'nothing'} wrong, {took}")
    if wrong:
        raise typer.Exit(ExitStatus.FOUND)


def examined(settings: Settings, application: str | None = None, role: str | None = None) -> Iterator[Finding]:
    """Run every check that the settings ask for, one after the other."""
    from tailrace.aws.account_checks import Aws, findings, needs_aws
    from tailrace.doctor.findings import Finding, looked
    from tailrace.doctor.lake_checks import catalog, folder, swap, swept, times
    from tailrace.doctor.machine_checks import brokers, installed, schema_registry

    yield from installed(settings, elsewhere=application is not None)
    asked = list(findings(settings, application, role))
    yield from asked
    place = [] if settings.on_s3 else [looked("warehouse", lambda: folder(settings))]
    yield from place
    first = {"warehouse", "objects", *(["credentials"] if needs_aws(settings) else [])}
    barred = {one.name for one in (*asked, *place) if one.state == "wrong"} & first
    if barred:
        why = f"right first: {', '.join(sorted(barred))}"
        names = ("catalog", "commits", "times")
        yield from (Finding(name, "not looked at", f"something has to be {why}") for name in names)
    else:
        there = looked("catalog", lambda: catalog(settings))
        yield there
        if there.state == "ok":
            sweep = Aws(settings).sweep if settings.on_s3 else swept
            yield looked(
                "commits", lambda: swap(settings, sweep), "let who runs this make, change and drop tables there"
            )
            yield looked("times", lambda: times(settings))
        else:
            why = "they are tried in a catalog that is there"
            yield from (Finding(name, "not looked at", why) for name in ("commits", "times"))
    yield looked("kafka", lambda: brokers(settings))
    yield looked("schema registry", lambda: schema_registry(settings))


def _lines(findings: Sequence[Finding]) -> Iterator[Any]:
    made = table("check", "state", "found")
    for state, style in _ORDER.items():
        for finding in findings:
            if finding.state == state:
                made.add_row(finding.name, Text(state, style=style), finding.found)
                if finding.mend:
                    made.add_row("", "", Text(f"→ {finding.mend}", style="bold" if state == "wrong" else "dim"))
    yield made
