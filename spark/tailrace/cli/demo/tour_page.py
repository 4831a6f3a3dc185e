"""Write the demo's page in one HTML file: the paper's plot of a few windows, and tables of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.cli.demo.reads import Answers, Fired, Flight, Reads, Span
from tailrace.cli.terminal.formats import counted, span
from tailrace.plots.plot import PanePlot, PlotPane, PlotRecord, PlotTable
from tailrace.verify.tampering.audit_result import Audit


def picture(reads: Reads, wide: Span) -> PanePlot:
    """Build the plot of the windows in `wide`: their records, panes and corrections, and the watermark."""
    panes, _ = reads.panes(wide)
    return PanePlot(
        title="Tailrace on real flights: a stream, late data, and a backfill",
        subtitle=f"Flights scheduled to leave {wide.origin} on {wide.first:%-d %B %Y}, {wide.first:%H:%M} to "
        f"{wide.last:%H:%M} UTC, in windows of one hour",
        key=f"origin = {wide.origin}",
        value="flights",
        panes=[_box(pane) for pane in panes],
        records=[_dot(flight) for flight in reads.flights(wide)],
        watermark=reads.watermarks(),
    )


def facts(counts: Mapping[str, Any]) -> dict[str, str]:
    """Write the cards above the chart, from the demo's summary."""
    return {
        "flights": f"{counts['records']:,}",
        "epochs": f"{counts['epochs']:,}",
        "panes": f"{counts['panes']:,}",
        "retractions": f"{counts['retractions']:,}",
        "too late": f"{counts['late']:,}",
        "backfill: changed": f"{counts['backfill_changed']:,}",
        "backfill: left alone": f"{counts['rows_left_alone']:,}",
        "audit": "adds up" if counts["audit_ok"] else "does not add up",
        "took": span(counts["seconds"]),
    }


def tables(reads: Reads, shown: Span, old: Answers, new: Answers, query: str, rows: Sequence[Mapping[str, Any]],
           audit: Audit) -> list[PlotTable]:  # fmt: skip
    """Build the tables below the chart."""
    return [_panes(reads, shown), _changes(old, new), _answer(query, rows), _audit(audit)]


def _box(pane: Fired) -> PlotPane:
    generation, epoch, index = pane.version
    return PlotPane(
        window_start=pane.start,
        window_end=pane.end,
        fired_at=pane.at,
        value=pane.flights,
        timing=pane.timing,
        retraction=pane.retraction,
        index=index,
        epoch=epoch,
        generation=generation,
    )


def _dot(flight: Flight) -> PlotRecord:
    delay = "cancelled" if flight.delay is None else f"{flight.delay} min late"
    return PlotRecord(flight.scheduled, flight.known, f"{flight.id}, {delay}", too_late=flight.late)


def _panes(reads: Reads, shown: Span) -> PlotTable:
    panes, _ = reads.panes(shown)
    return PlotTable(
        f"Panes of {shown.origin} {shown.first:%H:%M} to {shown.last:%H:%M}, in the order in which they fired",
        ["fired", "watermark", "timing", "what", "flights", "mean delay, min", "generation", "epoch", "pane index"],
        [
            [
                pane.at,
                pane.watermark,
                pane.timing.replace("_", " "),
                "retraction" if pane.retraction else "pane",
                pane.flights,
                rounded(pane.mean_delay),
                *pane.version,
            ]
            for pane in panes
        ],
        note="The paper's accumulating and retracting mode: each new answer first takes back the one before.",
    )


def _changes(old: Answers, new: Answers) -> PlotTable:
    keys = changed(old, new)
    rows = []
    for key in keys:
        before, after = old.get(key), new.get(key)
        flights = [answer.flights if answer else None for answer in (before, after)]
        delays = [rounded(answer.mean_delay) if answer else None for answer in (before, after)]
        versions = [".".join(map(str, answer.version)) if answer else None for answer in (before, after)]
        rows.append([key[0], key[1], *flights, *delays, *versions])
    return PlotTable(
        "What the backfill changed",
        ["airport", "window start", "flights before", "after", "mean delay before", "after", "version before", "after"],
        rows,
        note=f"{counted(len(new) - len(keys), 'other row')} of the answer were left alone, version included. "
        "A version is generation.epoch.pane index.",
    )


def _answer(query: str, rows: Sequence[Mapping[str, Any]]) -> PlotTable:
    columns = list(rows[0]) if rows else []
    return PlotTable("The answer, by SQL", columns, [[row[name] for name in columns] for row in rows], note=query)


def _audit(audit: Audit) -> PlotTable:
    rows = [[check.name, "holds" if check.ok else "does NOT hold", check.detail] for check in audit.checks]
    return PlotTable("The audit", ["check", "", "found"], rows)


def changed(old: Answers, new: Answers) -> list[tuple[str, Any]]:
    """List the keys of all rows that differ, are new, or are gone, by time."""
    keys = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    return sorted(keys, key=lambda key: (key[1], key[0]))


def rounded(value: float | None) -> float | None:
    """Round to a tenth; None stays None."""
    return None if value is None else round(value, 1)
