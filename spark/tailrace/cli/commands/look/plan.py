"""`tailrace plan`: show the effect of a changed definition on the existing tables; nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.text import Text

from tailrace.cli.terminal.console import Output, facts, table
from tailrace.cli.terminal.formats import quantity, rate, span, time_text
from tailrace.model.definition.fingerprint import Change
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import log_names
from tailrace.plan.loader import load
from tailrace.settings import Settings
from tailrace.telemetry.json_fields import fields

if TYPE_CHECKING:
    from tailrace.plan.definition_changes import ChangePlan

SAYS = {
    Change.NOTHING: "nothing: the tables hold what this definition means",
    Change.NEW_COLUMNS: "new columns: it gives more results, and those that readers have stay what they are",
    Change.FIRES: "fires otherwise: panes come at other times or relate otherwise, and the answer of a window with all "
    "its records stays",
    Change.BREAKING: "breaking: something that readers have goes away or comes to mean something else",
    Change.UNKNOWN: "changed, but the tables do not say in which part: an older version made them",
}


def plan(definition: str, json: bool = False) -> None:
    """Show the effect of a changed definition on the existing tables, and what `apply` would do.

    The command reads only the catalog, the metadata of the tables, and the table of runs. The command changes nothing.
    """
    pipeline, settings, output = load(definition), Settings(), Output(json)
    from tailrace.lake.catalog.lake import Lake
    from tailrace.plan.definition_changes import plan_change

    compared = plan_change(Lake(settings), pipeline)
    output.report(_data(pipeline, compared), _lines(pipeline, compared, definition))


def _data(pipeline: Pipeline, compared: ChangePlan) -> dict[str, Any]:
    log, estimate = compared.log, compared.estimate
    cost: dict[str, Any] | None = None
    if estimate is not None:
        cost = {"seconds": round(estimate.seconds, 1), "rate": round(estimate.rate), "measured_by": estimate.measured}
    return {
        **fields(pipeline, "pipeline=name", "fingerprint"),
        "change": "new" if compared.generation is None else compared.change.name.lower(),
        "parts": {name: {"was": was, "is": now} for name, (was, now) in compared.parts.items()},
        **fields(compared, "generation", "left=before"),
        "log": log and fields(log, "records", "bytes", "rejected", "epochs", "event_time=events", "began"),
        "estimate": cost,
        **fields(compared, "refused", "readers", "unused"),
        "wider": {name: {"was": was, "is": now} for name, (was, now) in compared.wider.items()},
        **fields(compared, "renamed", "differ"),
        "placed": {name: {"was": was, "is": now} for name, (was, now) in compared.placed.items()},
    }


def _lines(pipeline: Pipeline, compared: ChangePlan, definition: str) -> Iterator[Any]:
    yield Text(pipeline.name, style="bold")
    if compared.generation is None:
        yield facts([("change", "none: it has no tables yet, and a stream makes them")])
        return
    before = f"; {', '.join(map(str, compared.before))} can be gone back to" if compared.before else ""
    rows = [("change", SAYS[compared.change]), ("generation", f"{compared.generation}{before}")]
    log, estimate = compared.log, compared.estimate
    if estimate is not None and log is not None:
        size = f"{quantity(log.records, 'record')}, {log.bytes / 1e6:,.1f} MB"
        rows.append(("reads", f"{size} of log {log_names(pipeline.sources)}"))
        if log.events is not None and log.epochs is not None:
            rows.append(("covers", f"event times from {time_text(log.events[0])} to {time_text(log.events[1])}"))
            trimmed = f"; none before {log.epochs[0]} is in it any more" if log.epochs[0] else ""
            rows.append(("", f"epochs {log.epochs[0]} to {log.epochs[1]}{trimmed}"))
        for name, at in log.began.items():
            rows.append(("", f"not the messages before the start of log {name}, {at}"))
        if log.rejected:
            rows.append(("", f"not the {quantity(log.rejected, 'record')} that it rejected"))
        by = f"as run {estimate.measured} had" if estimate.measured else "as measured on 2 cores, not in this lake"
        rows.append(("estimate", f"{span(round(estimate.seconds))} at {rate(round(estimate.rate), 1)} records/s, {by}"))
    if compared.wider:
        names = ", ".join(f"{name} ({was} to {now})" for name, (was, now) in compared.wider.items())
        effect = "the answers stay; tailrace tables apply, or the next stream, widens the tables in place"
        rows.append(("wider", f"{names}: {effect if compared.differ is None else compared.differ}"))
    if compared.renamed:
        names = ", ".join(f"{name} (it was {was})" for name, was in compared.renamed.items())
        rows.append(("renamed", f"{names}: {'the answers stay' if compared.differ is None else compared.differ}"))
    if compared.placed:
        names = ", ".join(f"{name} from {now} (it was {was})" for name, (was, now) in compared.placed.items())
        rows.append(("taken", f"{names}: in records that are landed from then on; the answers so far stay"))
    if compared.unused:
        names = ", ".join(compared.unused)
        rows.append(("does not use", f"{names} of log {pipeline.log.name}: a change of these columns changes nothing"))
    if compared.readers:
        rows.append(("read by", f"{', '.join(compared.readers)}: they read its panes"))
    if compared.change is not Change.NOTHING:
        effect = (
            f"tailrace apply {definition} builds a new generation of {pipeline.name} beside from all of the log, and "
            "swaps it in at an epoch boundary; the old one is kept for tailrace rollback"
        )
        rows.append(("apply", compared.refused or effect))
    yield facts(rows)
    if compared.parts:
        parts = ((name, _part_text(was), _part_text(now)) for name, (was, now) in compared.parts.items())
        yield from ("", table("part", "was", "is", rows=parts))


def _part_text(value: Any) -> str:
    """Return as text the old or the new value of a part of a definition that has changed, such as the key or the
    windows.
    """
    if value is None:
        return "–"
    if isinstance(value, list):
        pairs = (f"{one[0]}: {one[1]}" if isinstance(one, list) else str(one) for one in value)
        return ", ".join(pairs) or "none"
    return str(value)
