"""The page that shows a plot: event time to the right, processing time upwards, a box for every pane.

`render` gives one page of HTML that fetches and runs nothing: the chart is inline SVG, the tooltips are the titles of
the SVG's marks. `render_png` gives the chart alone. Both need the extra `plot` (altair, vl-convert-python, jinja2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.plots.plot import PanePlot, PlotError, PlotMissingError, format_value

if TYPE_CHECKING:
    import jinja2


def page_template(name: str) -> jinja2.Template:
    """Load the template of a page, which escapes all text. Raises `PlotMissingError` if jinja2 is not installed."""
    try:
        import jinja2
    except ImportError:
        raise PlotMissingError("jinja2 is not installed: install tailrace[plot]") from None
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tailrace.plots"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["written"] = format_value
    environment.tests["numeric"] = lambda value: isinstance(value, int | float) and not isinstance(value, bool)
    return environment.get_template(name)


def render(plot: PanePlot) -> str:
    """Render a self-contained page: title, facts, chart, how to read it, tables. The page fetches and runs nothing.

    With no pane and no record the page says so in the chart's place. All text is escaped. The same plot gives the
    same page.

    Raises:
        PlotMissingError: the extra `plot` is not installed.
    """
    chart = None
    if plot.panes or plot.records:
        from tailrace.plots.chart import svg

        chart = svg(plot)
    return page_template("plot.html").render(plot=plot, chart=chart)


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
