"""The page that shows a plot: event time to the right, processing time upwards, a box for every pane.

`render` gives one page of HTML that fetches and runs nothing: the chart is inline SVG, the tooltips are the SVG's
own titles. `render_png` gives the chart alone. Both need the extra `plot` (altair, vl-convert-python).
"""

from __future__ import annotations

import html
from importlib.resources import files
from string import Template

from tailrace.plots.plot import PanePlot, PlotError, PlotTable, written


def render(plot: PanePlot) -> str:
    """Render a self-contained page: title, facts, chart, how to read it, tables. The page fetches and runs nothing.

    With no pane and no record the page says so in the chart's place. All text is escaped. The same plot gives the
    same page.

    Raises:
        PlotMissingError: the extra `plot` is not installed.
    """
    page = Template(files("tailrace.plots").joinpath("page.html").read_text(encoding="utf-8"))
    if plot.panes or plot.records:
        from tailrace.plots.chart import svg

        chart = svg(plot)
    else:
        chart = "<p>No record has arrived and no pane has fired yet.</p>"
    return page.substitute(
        title=html.escape(plot.title),
        subtitle=html.escape(plot.subtitle),
        key=html.escape(plot.key),
        value=html.escape(plot.value),
        facts="".join(f"<div><dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd></div>" for k, v in plot.facts.items()),
        chart=chart,
        tables="".join(_table(table) for table in plot.tables),
    )


def render_png(plot: PanePlot, scale: float = 2.0) -> bytes:
    """Render the chart alone as a PNG with the title on it, about 1,200 times `scale` pixels wide.

    Raises:
        PlotError: neither a pane nor a record.
        PlotMissingError: the extra `plot` is not installed.
    """
    if not plot.panes and not plot.records:
        raise PlotError(f"plot {plot.title!r} has neither a pane nor a record: expected one of them to draw")
    from tailrace.plots.chart import png

    return png(plot, scale)


def _table(table: PlotTable) -> str:
    numeric = [all(_is_number(row[at]) for row in table.rows) for at in range(len(table.columns))]
    heads = zip(table.columns, numeric, strict=True)
    head = "".join(f"<th{_aligned(right)}>{html.escape(column)}</th>" for column, right in heads)
    body = "".join("<tr>" + "".join(_cell(value) for value in row) + "</tr>" for row in table.rows)
    note = f"<p>{html.escape(table.note)}</p>" if table.note else ""
    rows = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<h2>{html.escape(table.heading)}</h2>{note}<div class="scroll"><table>{rows}</table></div>'


def _cell(value: object) -> str:
    return f"<td{_aligned(_is_number(value))}>{html.escape(written(value))}</td>"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _aligned(right: bool) -> str:
    return ' class="number"' if right else ""
