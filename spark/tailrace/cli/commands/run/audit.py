"""`tailrace audit`: prove by counting that no record was lost or counted twice, and that the answers are correct."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from tailrace.cli.runtime.options import EngineName, settings_on
from tailrace.cli.runtime.spark_session import activity, ending_spark
from tailrace.cli.terminal.console import Output, facts, mark, table
from tailrace.cli.terminal.corrections import behind_data, tell_behind
from tailrace.cli.terminal.usage import ExitStatus, UsageError
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition
from tailrace.plan.loader import load_any
from tailrace.telemetry.json_fields import ENGINE, chain_data, fields

if TYPE_CHECKING:
    from tailrace.verify.tampering.audit_result import Audit


def audit(
    definitions: list[str],
    deep: bool = False,
    engine: EngineName = None,
    json: bool = False,
) -> None:
    """Prove by counting that every record is accounted for, and that the answers equal one batch over the log.

    The exit status is 1 if a check fails. Every stage of each definition is audited; a stage that several definitions
    share is audited only once.
    """
    output, asked = Output(json), [load_any(one) for one in definitions]
    chains = [chain(one) for one in asked]
    stages, settings = _stages(chains), settings_on(engine)
    audits: dict[str, Audit] = {}
    with activity(output, f"auditing {', '.join(one.name for one in asked)}") as doing, ending_spark():
        from tailrace.lake.catalog.lake import Lake
        from tailrace.lake.corrections.stages_behind import stages_behind
        from tailrace.verify.audit import audit as run

        lake = Lake(settings)
        for stage in stages:
            doing(f"counting {stage.name}")
            audits[stage.name] = run(lake, stage, deep=deep)
        behind = {place: stages_behind(lake, one) for place, one in zip(definitions, asked, strict=True)}
    if json:
        data = [
            chain_data(_data(place, stage.name, audits[stage.name]) for stage in one)
            | ({"behind": list(behind_data(place, lacks))} if (lacks := behind[place]) else {})
            for place, one in zip(definitions, chains, strict=True)
        ]
        output.data(data[0] if len(data) == 1 else {"ok": all(one.ok for one in audits.values()), "definitions": data})
    else:
        named = {stage.name: place for place, one in zip(definitions, chains, strict=True) for stage in one}
        output.blocks(_lines(named[name], name, audited) for name, audited in audits.items())
        for definition, lacks in behind.items():
            tell_behind(output, definition, lacks)
    if not all(one.ok for one in audits.values()):
        raise typer.Exit(ExitStatus.FOUND)


def _stages(chains: Iterable[Sequence[Definition]]) -> list[Definition]:
    """List the stages in `chains` without repetition. A chain is a definition and the stages that it reads.

    Raises `UsageError` if two different stages have the same name.
    """
    stages: dict[str, Definition] = {}
    for stage in (stage for one in chains for stage in one):
        if stages.setdefault(stage.name, stage).fingerprint != stage.fingerprint:
            raise UsageError(f"two of the definitions are called {stage.name} and mean different things")
    return list(stages.values())


def _data(definition: str, name: str, audited: Audit) -> dict[str, Any]:
    from tailrace.verify.tampering.remedies import remedy

    checks = [
        fields(check, "name", "ok", "detail") | ({} if check.ok else {"remedy": remedy(check.name, definition)})
        for check in audited.checks
    ]
    return {"pipeline": name, **fields(audited, "ok", "counts"), "checks": checks, **fields(audited, *ENGINE)}


def _lines(definition: str, name: str, audited: Audit) -> Iterator[Any]:
    from tailrace.verify.tampering.remedies import remedy

    rows = table("", "check", "found")
    for check in audited.checks:
        rows.add_row(mark(ok=check.ok), check.name, Text(check.detail, style="" if check.ok else "red"))
        if not check.ok:
            rows.add_row("", "", Text(f"→ {remedy(check.name, definition)}", style="bold"))
    wrong = sum(not check.ok for check in audited.checks)
    yield Text(name, style="bold")
    yield facts([*((kind, f"{count:,}") for kind, count in audited.counts.items()), ("engine", str(audited.engine))])
    yield from ("", rows, "")
    if audited.ok:
        yield Text("it adds up", style="bold green")
    else:
        yield Text(f"{wrong} of {len(audited.checks)} do not hold", style="bold red")
