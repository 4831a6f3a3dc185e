"""Create the contents of the demo's page: the Dataflow paper's plot for a few windows, and tables of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.cli.demo.demo_tables import Answers, DemoTables, Flight, Span, version_of
from tailrace.cli.terminal.formats import quantity, span
from tailrace.model.base.time import moment
from tailrace.plots.plot import PanePlot, PlotPane, PlotRecord, PlotTable
from tailrace.verify.tampering.audit_result import Audit


def picture(tables: DemoTables, wide: Span) -> PanePlot:
    """Create the plot of the windows in `wide`. The plot shows records, panes, corrections and the watermark."""
    return PanePlot(
        title="Tailrace on real flights: a stream, late data, and a backfill",
        subtitle=f"Flights scheduled to leave {wide.origin} on {wide.first:%-d %B %Y}, {wide.first:%H:%M} to "
        f"{wide.last:%H:%M} UTC, in windows of one hour",
        key=f"origin = {wide.origin}",
        value="flights",
        panes=[PlotPane.of(pane, pane.values["flights"]) for pane in tables.panes(wide)],
        records=[_dot(flight) for flight in tables.flights(wide)],
        watermark=tables.watermarks(),
    )


def cards(counts: Mapping[str, Any]) -> dict[str, str]:
    """Return the cards that the page shows above the plot: a mapping from each card's title to its text."""
    numbers = {
        "flights": "records", "epochs": "epochs", "panes": "panes", "retractions": "retractions", "too late": "late",
        "backfill: changed": "backfill_changed", "backfill: left alone": "rows_left_alone",
    }  # fmt: skip
    audit = "adds up" if counts["audit_ok"] else "does not add up"
    return {card: f"{counts[name]:,}" for card, name in numbers.items()} | {
        "audit": audit,
        "took": span(counts["seconds"]),
    }


def _dot(flight: Flight) -> PlotRecord:
    delay = "cancelled" if flight.delay is None else f"{flight.delay} min late"
    return PlotRecord(flight.scheduled, flight.known, f"{flight.id}, {delay}", too_late=flight.late)


def panes_table(tables: DemoTables, shown: Span) -> PlotTable:
    """Create the table of the panes of the shown window."""
    rows = [
        [
            moment(pane.processing_time), moment(pane.watermark), pane.timing.replace("_", " "),
            "retraction" if pane.retraction else "pane", pane.values["flights"], to_a_tenth(pane.values["mean_delay"]),
            *pane.version,
        ]
        for pane in tables.panes(shown)
    ]  # fmt: skip
    return PlotTable(
        f"Panes of {shown.origin} {shown.first:%H:%M} to {shown.last:%H:%M}, in the order in which they fired",
        ["fired", "watermark", "timing", "what", "flights", "mean delay, min", "generation", "epoch", "pane index"],
        rows,
        note="The paper's accumulating and retracting mode: each new answer first takes back the one before.",
    )


def changes_table(old: Answers, new: Answers) -> PlotTable:
    """Create the table of the answers that the backfill changed."""
    keys = changed_keys(old, new)
    rows = []
    for key in keys:
        sides = (old.get(key), new.get(key))
        flights = [side and side["flights"] for side in sides]
        delays = [side and to_a_tenth(side["mean_delay"]) for side in sides]
        rows.append([*key, *flights, *delays, *(side and version_of(side) for side in sides)])
    return PlotTable(
        "What the backfill changed",
        ["airport", "window start", "flights before", "after", "mean delay before", "after", "version before", "after"],
        rows,
        note=f"{quantity(len(new) - len(keys), 'other row')} of the answer were left alone, version included. "
        "A version is generation.epoch.pane index.",
    )


def answers_table(query: str, rows: Sequence[Mapping[str, Any]]) -> PlotTable:
    """Create the table of the rows that an SQL query returned."""
    columns = list(rows[0]) if rows else []
    return PlotTable("The answer, by SQL", columns, [[row[name] for name in columns] for row in rows], note=query)


def audit_table(audit: Audit) -> PlotTable:
    """Create the table of the checks of an audit."""
    rows = [[check.name, "holds" if check.ok else "does NOT hold", check.detail] for check in audit.checks]
    return PlotTable("The audit", ["check", "", "found"], rows)


def changed_keys(old: Answers, new: Answers) -> list[tuple[str, Any]]:
    """List the keys of all rows that were added, changed or removed, in the order of their windows' start times."""
    keys = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    return sorted(keys, key=lambda key: (key[1], key[0]))


def to_a_tenth(value: float | None) -> float | None:
    """Round a number to one decimal place. Returns None if the number is None."""
    return None if value is None else round(value, 1)
