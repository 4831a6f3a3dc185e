"""`tailrace doctor`: find the faults of an installation, and say how to correct each fault."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

import tailrace
from tailrace.cli.runtime.process import skip_unused_imports
from tailrace.cli.terminal.console import Output, table
from tailrace.cli.terminal.formats import quantity
from tailrace.cli.terminal.usage import ExitStatus
from tailrace.model.definition.definition import Definition
from tailrace.plan.loader import load_all
from tailrace.settings import Settings

if TYPE_CHECKING:
    from tailrace.doctor.findings import Finding

_ORDER = {"ok": "green", "not looked at": "dim", "wrong": "bold red"}
"""The possible states of a finding, in the order in which the report lists findings, and the text style of each state.
Faults come last, because users look at the end of the output first.
"""

_OF_TABLES = ("formats", "times", "checkpoints", "definitions")
"""The checks that read the tables of a lake, or what belongs to its tables."""


def doctor(
    definitions: list[str] | None = None,
    application: str | None = None,
    role: str | None = None,
    json: bool = False,
) -> None:
    """Find the faults of this installation, and say how to mend them.

    The checks cover Java, jars and packages; write access to the warehouse; the catalog; Kafka brokers and the schema
    registry. One check makes sure that the catalog refuses a commit if another commit has changed the table in the
    meantime. If the lake or an EMR Serverless application is on AWS, further checks cover the credentials, the
    permissions and the clock. To test permissions, the checks create a table and files, and remove them afterwards.
    After an upgrade, name the definitions: the checks then say what has to be migrated before streams of these
    definitions continue, or that nothing has to be.

    The exit status is 1 if there is a fault. Starts no Spark.
    """
    output, settings = Output(json), Settings()
    skip_unused_imports()
    since = time.monotonic()
    findings = list(examine(settings, application, role, load_all(definitions or [])))
    report_findings(output, findings, since, lake=str(settings.warehouse))


def report_findings(output: Output, findings: Sequence[Finding], since: float, **facts: str) -> None:
    """Print the findings, and end the command with exit status 1 if there is a fault.

    `since` is the monotonic time at which the checks began. `facts` are further fields of the report in JSON.
    """
    wrong = sum(one.state == "wrong" for one in findings)
    took = f"in {time.monotonic() - since:.1f} s"
    summary: dict[str, Any] = {"version": tailrace.__version__, **facts, "wrong": wrong}
    summary["checks"] = [asdict(one) for one in findings]
    total = f"{quantity(len(findings), 'check')}, {wrong or 'nothing'} wrong, {took}"
    output.report(summary, [table("check", "state", "found", rows=_rows(findings)), "", total])
    if wrong:
        raise typer.Exit(ExitStatus.FOUND)


def examine(
    settings: Settings, application: str | None = None, role: str | None = None, definitions: Sequence[Definition] = ()
) -> Iterator[Finding]:
    """Run every check that the settings require, one check after another, and yield the findings."""
    from tailrace.doctor import machine_checks
    from tailrace.doctor.findings import run_check

    yield from machine_checks.check_installation(settings, elsewhere=application is not None)
    yield from examine_lake(settings, application, role, definitions)
    yield run_check("kafka", lambda: machine_checks.check_brokers(settings))
    yield run_check("schema registry", lambda: machine_checks.check_schema_registry(settings))


def examine_lake(
    settings: Settings, application: str | None = None, role: str | None = None, definitions: Sequence[Definition] = ()
) -> Iterator[Finding]:
    """Check the warehouse and the catalog, and what of AWS they need, and yield the findings."""
    from tailrace.aws.account_checks import Aws, findings, needs_aws
    from tailrace.doctor import lake_checks, upgrade_checks
    from tailrace.doctor.findings import Finding, run_check

    asked = list(findings(settings, application, role))
    yield from asked
    place = [] if settings.on_s3 else [run_check("warehouse", lambda: lake_checks.check_folder(settings))]
    yield from place
    first = {"warehouse", "objects", *(["credentials"] if needs_aws(settings) else [])}
    barred = {one.name for one in (*asked, *place) if one.state == "wrong"} & first
    if barred:
        why = f"something has to be right first: {', '.join(sorted(barred))}"
        yield from (Finding(name, "not looked at", why) for name in ("catalog", "commits", *_OF_TABLES))
    else:
        catalog = run_check("catalog", lambda: lake_checks.check_catalog(settings))
        yield catalog
        if catalog.state == "ok":
            sweep = Aws(settings).sweep if settings.on_s3 else lake_checks.remove_folder
            advice = "let who runs this make, change and drop tables there"
            yield run_check("commits", lambda: lake_checks.check_swap(settings, sweep), advice)
            formats = run_check("formats", lambda: upgrade_checks.check_formats(settings))
            yield formats
            if formats.state == "wrong":
                why = "this version cannot read all tables"
                yield from (Finding(name, "not looked at", why) for name in _OF_TABLES if name != "formats")
            else:
                yield run_check("times", lambda: lake_checks.check_times(settings))
                yield run_check("checkpoints", lambda: upgrade_checks.check_checkpoints(settings))
                yield run_check("definitions", lambda: upgrade_checks.check_definitions(settings, definitions))
        else:
            why = "they are tried in a catalog that is there"
            yield from (Finding(name, "not looked at", why) for name in ("commits", *_OF_TABLES))


def _rows(findings: Sequence[Finding]) -> Iterator[tuple[str | Text, ...]]:
    for state, style in _ORDER.items():
        for finding in (one for one in findings if one.state == state):
            yield finding.name, Text(state, style=style), finding.found
            if finding.mend:
                yield "", "", Text(f"→ {finding.mend}", style="bold" if state == "wrong" else "dim")
