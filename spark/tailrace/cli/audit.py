"""`tailrace audit`: prove by counting that nothing was lost or doubled, and that the answers are right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from tailrace.cli.console import Output, facts, table
from tailrace.cli.definitions import load_any
from tailrace.cli.errors import Status
from tailrace.cli.options import Definition, EngineName, Json, on_engine
from tailrace.cli.sessions import ending_spark, waiting
from tailrace.settings import Settings

if TYPE_CHECKING:
    from tailrace.verify.audit import Audit


def audit(definition: Definition, engine: EngineName = None, json: Json = False) -> None:
    """Prove by counting that every record is accounted for, and that the answers are those of one batch over the log.

    The exit status is 1 where a check does not hold. Of a definition of several stages each is audited.
    """
    output = Output(json)
    pipeline = load_any(definition)
    settings = on_engine(Settings(), engine)
    with waiting(output, f"auditing {pipeline.name}") as doing, ending_spark():
        from tailrace.lake.catalog import Lake
        from tailrace.model.chains import chain
        from tailrace.model.computation import Computation
        from tailrace.verify.audit import audit as run
        from tailrace.verify.audit_computation import audit_computation

        found = {}
        for stage in chain(pipeline):
            doing(f"counting {stage.name}")
            lake = Lake(settings)
            if isinstance(stage, Computation):
                found[stage.name] = audit_computation(lake, stage)
            else:
                found[stage.name] = run(lake, stage)
    if json:
        *earlier, last = (_data(name, one) for name, one in found.items())
        output.data(last | ({"earlier": earlier} if earlier else {}))
    else:
        for place, (name, one) in enumerate(found.items()):
            output.text(*([""] if place else []), *_shown(name, one))
    if not all(one.ok for one in found.values()):
        raise typer.Exit(Status.FOUND)


def _data(name: str, found: Audit) -> dict[str, Any]:
    checks = [{"name": check.name, "ok": check.ok, "detail": check.detail} for check in found.checks]
    engine = {"engine": found.engine.engine.value, "engine_because": found.engine.why}
    return {"pipeline": name, "ok": found.ok, "counts": dict(found.counts), "checks": checks, **engine}


def _shown(name: str, found: Audit) -> Iterator[Any]:
    rows = table("", "check", "found")
    for check in found.checks:
        mark = Text("✓", style="green") if check.ok else Text("✗", style="bold red")
        rows.add_row(mark, check.name, Text(check.detail, style="" if check.ok else "red"))
    wrong = sum(not check.ok for check in found.checks)
    yield Text(name, style="bold")
    yield facts([*((kind, f"{count:,}") for kind, count in found.counts.items()), ("engine", str(found.engine))])
    yield from ("", rows, "")
    if found.ok:
        yield Text("it adds up", style="bold green")
    else:
        yield Text(f"{wrong} of {len(found.checks)} do not hold", style="bold red")
